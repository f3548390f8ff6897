"""probe.json of ``specsim probe``: step times by batch, all-reduce, and what the hardware does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specsim.errors import FormatError
from specsim.logs.diagnose import finding
from specsim.logs.entry import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.json_values import json_values
from specsim.logs.source import Source

if TYPE_CHECKING:
    from specsim.probe.document import ProbeDocument


def parse(source: Source) -> list[LogEntry]:
    """Read one probe.json.

    Rows are plain decode steps (one token a request); verify steps, draft steps and draft extends
    are timings beside them: what a round costs besides these the probe cannot know. Raises
    :class:`FormatError`, which names the field, if it is damaged or of another schema.
    """
    from specsim.probe.document import parse_probe  # pydantic: other files are read without it

    value = next(iter(json_values(source.lines())), None)
    if not isinstance(value, dict):
        raise FormatError(source.path, "is cut short or damaged", "restore the file, or probe anew")
    document = parse_probe(value, source.path)
    device, rates, target = document.device, document.rates, document.target
    settings: dict[str, object] = {
        "model": target.id,
        "gpu": device.name,
        "gpu_count": device.count,
        "tp": target.tp,
        "algorithm": "none",
        "dtype": target.dtype,
        "device": device.kind,
        "mem_bytes": device.mem_bytes,
        "read_bandwidth": rates.read_bytes_per_s,
        "gemm_flops": rates.flops,
        "launch_s": rates.graph_launch_s or rates.launch_s,
        "moe": target.moe,
        "date": document.date,
    }
    rows = tuple(
        LogRow(
            batch_size=float(point.batch),
            round_time_s=point.seconds,
            windows=point.repeats,
            cuda_graph=target.graphs,
            extra={"context_len": float(point.context_len), "error": point.error},
        )
        for point in target.points
        if point.width == 1
    )
    verify = len(target.points) - len(rows)
    dropped = {"verify steps: timings, no rows": verify} if verify else {}
    eager = device.kind == "cuda" and not target.graphs
    said = {key: value for key, value in settings.items() if value is not None}
    windows = WindowCount(len(target.points), len(rows), dropped)
    found, timings = (finding("eager", "probe"),) if eager else (), tuple(_timings(document))
    entry = LogEntry(source.path, "probe", None, None, said, rows, windows, found, timings=timings)
    return [entry]


def _timings(document: ProbeDocument) -> Iterator[Timing]:
    stacks = {"verify": document.target, "draft": document.draft, "extend": document.extend}
    for phase, stack in stacks.items():
        if stack is None:
            continue
        for point in stack.points:
            if phase != "verify" or point.width > 1:
                name = f"{stack.id}, {point.width} tokens each, {point.context_len} of context"
                yield Timing(phase, point.seconds, point.repeats, point.batch, name=name)
    if reduce := document.allreduce:
        ranks, name = reduce.ranks, f"torch.distributed {reduce.backend}"
        for of in reduce.points:
            yield Timing("allreduce", of.seconds, size_bytes=of.size_bytes, ranks=ranks, name=name)
