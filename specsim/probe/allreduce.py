"""All-reduce over the devices of this machine, by message size: a process per device."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.probe.device import import_torch
from specsim.probe.document import AllReduce, AllReducePoint

if TYPE_CHECKING:
    import torch

SIZES = tuple(1 << power for power in range(10, 27))
"""1 KiB .. 64 MiB: from one token's activations to a batch's logits."""
IN_A_ROW = 20
"""All-reduces in one graph or one timed stretch: launches and skew between ranks average out."""
REPEATS = 9


def measure_allreduce(
    kind: str, ranks: int, seconds: float, sizes: Sequence[int] = SIZES
) -> AllReduce | None:
    """Time all-reduces of bf16 (CPU: fp32) messages over `ranks` processes.

    Parameters
    ----------
    kind
        ``cuda`` (NCCL, a GPU each) or ``cpu`` (gloo).
    ranks
        Processes.
    seconds
        No size is begun after so many seconds.
    sizes
        Bytes per rank.

    Returns
    -------
    The slowest rank's medians; None for one rank, or if nothing could be measured.
    """
    if ranks < 2:
        return None
    torch = import_torch()
    if not torch.distributed.is_available():
        return None
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _rank, args=(kind, ranks, folder, seconds, tuple(sizes)), nprocs=ranks, join=True
        )
        found = [
            json.loads((Path(folder) / f"{rank}.json").read_text(encoding="utf-8"))
            for rank in range(ranks)
        ]
    points = slowest([dict(map(tuple, one["times"])) for one in found])
    if not points:
        return None
    graphs = all(bool(one["graphs"]) for one in found)
    return AllReduce(backend=_backend(kind), ranks=ranks, graphs=graphs, points=points)


def slowest(by_rank: Sequence[dict[int, float]]) -> tuple[AllReducePoint, ...]:
    """Join the ranks' times: an all-reduce is over when its last rank is.

    Examples
    --------
    >>> [(p.size_bytes, p.seconds) for p in slowest([{1: 2e-6, 2: 1.0}, {1: 3e-6}])]
    [(1, 3e-06)]
    """
    common = set(by_rank[0]).intersection(*by_rank[1:])
    return tuple(
        AllReducePoint(size_bytes=size, seconds=max(times[size] for times in by_rank))
        for size in sorted(common)
    )


def _backend(kind: str) -> str:
    return "nccl" if kind == "cuda" else "gloo"


def _rank(
    rank: int, kind: str, ranks: int, folder: str, seconds: float, sizes: tuple[int, ...]
) -> None:
    """Run one process: times of every size into FOLDER/RANK.json."""
    torch = import_torch()
    dist = torch.distributed
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        _backend(kind),
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=max(60.0, 2 * seconds)),
        device_id=device if kind == "cuda" else None,
    )
    end = time.monotonic() + seconds
    times: list[tuple[int, float]] = []
    graphs = kind == "cuda"
    for size in sizes:
        go_on = torch.tensor([float(time.monotonic() < end)], device=device)
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)  # all ranks stop at the same size
        if not go_on.item():
            break
        done, in_graph = _time(size, device, kind)
        graphs = graphs and in_graph
        times.append((size, done))
    (Path(folder) / f"{rank}.json").write_text(
        json.dumps({"times": times, "graphs": graphs}), encoding="utf-8"
    )
    dist.destroy_process_group()


def _time(size: int, device: torch.device, kind: str) -> tuple[float, bool]:
    """Median seconds of one all-reduce, and whether it ran in a CUDA graph."""
    torch = import_torch()
    dist = torch.distributed
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    message = torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=device)

    def many() -> None:
        for _ in range(IN_A_ROW):
            dist.all_reduce(message)

    if kind != "cuda":
        message.zero_()
        many()
        found = []
        for _ in range(REPEATS):
            dist.barrier()
            began = time.perf_counter()
            many()
            found.append((time.perf_counter() - began) / IN_A_ROW)
        return statistics.median(found), False
    run, in_graph = _captured(many, device)
    found = []
    for _ in range(REPEATS):
        dist.barrier()
        torch.cuda.synchronize(device)
        begin, finish = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        finish.record()
        torch.cuda.synchronize(device)
        found.append(begin.elapsed_time(finish) * 1e-3 / IN_A_ROW)
    return statistics.median(found), in_graph


def _captured(many: Any, device: torch.device) -> tuple[Any, bool]:
    """Return the replay of a captured graph, or `many` itself where capturing fails."""
    torch = import_torch()
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        many()
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            many()
    except RuntimeError:
        torch.cuda.synchronize(device)
        return many, False
    return graph.replay, True
