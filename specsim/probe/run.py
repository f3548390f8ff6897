"""One run of the probe: rates, target, draft, extend, all-reduce, within a time and a memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from specsim.errors import InputError
from specsim.probe import device as devices
from specsim.probe.allreduce import measure_allreduce
from specsim.probe.document import (
    AllReduce,
    Device,
    ProbeDocument,
    Rates,
    Stack,
)
from specsim.probe.grid import (
    MOST_LAYERS,
    TOKENS,
    Layers,
    Point,
    activation_bytes,
    draft_points,
    extend_points,
    fitted_points,
    layers_that_fit,
    target_points,
)
from specsim.probe.layers import Filler, Model, MoeKind, Routing, draw_experts, moe_kind, route
from specsim.probe.rates import GEMM_TOKENS, measure_rates
from specsim.probe.scaling import Timed, joined_points
from specsim.probe.shapes import LayerShape, StackShape
from specsim.probe.timing import Deadline, Split, Timer, affordable, sample, split_layers

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]

POINT_S = 2.0
"""Most seconds for one point, warm-up and both numbers of layers included."""
SHARES = {"rates": 0.15, "target": 0.7, "draft": 0.5, "extend": 0.5}
"""Of the time that is left when each begins; what one does not use the next has."""
HEAT_S = 0.5
OTHERS_SHARE = 0.03
"""A driver and a CUDA context take less of a GPU's memory than this."""
LEAST_ALLREDUCE_S = 5.0
"""Several devices are worth so much even where the time is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be measured.

    Parameters
    ----------
    target, draft, extend
        Shapes of one GPU's share; None for none.
    tp
        GPUs that the shares are of.
    dtype
        bf16, fp16 or fp32.
    seconds, memory_bytes
        Bounds; None for all memory that may be taken.
    layers
        Layers to build, at least two where the model has them.
    tokens
        Token counts of the decode steps.
    context_len
        KV tokens per request of the steps over tokens.
    contexts
        KV tokens per request of the steps over KV length.
    gemm_tokens
        Rows of the single products.
    ranks
        Processes of the all-reduce; None for `tp`, or all devices that are there.
    seed
        Of weights and routing.
    """

    target: StackShape
    draft: StackShape | None = None
    extend: StackShape | None = None
    tp: int = 1
    dtype: str = "bf16"
    seconds: float = 300.0
    memory_bytes: float | None = None
    layers: int = MOST_LAYERS
    tokens: tuple[int, ...] = TOKENS
    context_len: int = 1024
    contexts: tuple[int, ...] = (1024, 4096, 16384)
    gemm_tokens: tuple[int, ...] = GEMM_TOKENS
    ranks: int | None = None
    seed: int = 0


@dataclass(slots=True)
class _Bench:
    """What all measurements of a run share."""

    device: torch.device
    timer: Timer
    fill: Filler
    request: Request
    memory_bytes: float
    cache_bytes: float
    rng: np.random.Generator
    progress: Progress
    done: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list)

    def advance(self) -> None:
        """Count one point."""
        self.done += 1
        self.progress(self.done, max(self.total, self.done))


def probe(
    request: Request,
    device: torch.device,
    *,
    version: str,
    date: str,
    progress: Progress = lambda done, total: None,
) -> ProbeDocument:
    """Measure a device.

    Parameters
    ----------
    request
        What, and within which bounds.
    device
        From :func:`specsim.probe.device.choose_device`.
    version, date
        For the document.
    progress
        Called with (points done, points in all).

    Raises
    ------
    InputError
        If not even one layer fits into memory.
    """
    torch = devices.import_torch()
    deadline = Deadline(request.seconds)
    about = devices.describe(device)
    before, taken = devices.clock_mhz(device), devices.occupied_bytes(device)
    with torch.inference_mode():
        bench = _bench(request, device, about, progress)
        devices.heat_up(device, HEAT_S)
        rates = _rates(bench, deadline.share(SHARES["rates"]))
        stacks = {
            name: None if shape is None else _stack(bench, shape, points, share)
            for name, shape, points, share in _parts(request, deadline)
        }
    after = devices.clock_mhz(device)
    ranks = request.ranks or (request.tp if 1 < request.tp <= about.count else about.count)
    allreduce = _allreduce(bench, about.kind, ranks, deadline)
    target = stacks["target"]
    if target is None or not target.points:
        raise InputError(
            f"{request.seconds:g} s", "do not suffice for one step", "raise --max-seconds"
        )
    _note_neighbours(bench, taken, about.mem_bytes)
    _note_clock(bench, before, after)
    bench.notes += getattr(bench.timer, "notes", [])
    return ProbeDocument(
        specsim=version,
        date=date,
        seconds=deadline.spent_s,
        seed=request.seed,
        device=devices.describe(device, (*before, *after)),
        rates=rates,
        target=target,
        draft=stacks["draft"],
        extend=stacks["extend"],
        allreduce=allreduce,
        notes=tuple(dict.fromkeys(bench.notes)),
    )


def _bench(request: Request, device: torch.device, about: Device, progress: Progress) -> _Bench:
    torch = devices.import_torch()
    dtype = getattr(torch, devices.DTYPES[request.dtype])
    free = devices.free_bytes(device)
    memory = free if request.memory_bytes is None else min(free, request.memory_bytes)
    parts = _parts(request, Deadline(request.seconds))
    return _Bench(
        device=device,
        timer=devices.timer_of(device, about.cache_bytes),
        fill=Filler(device, dtype, request.seed),
        request=request,
        memory_bytes=memory,
        cache_bytes=about.cache_bytes,
        rng=np.random.default_rng(request.seed),
        progress=progress,
        total=1 + sum(len(points) * len(shape.groups) for _, shape, points, _ in parts if shape),
    )


def _parts(
    request: Request, deadline: Deadline
) -> list[tuple[str, StackShape | None, tuple[Point, ...], Callable[[], Deadline]]]:
    """Return the forwards to time: name, shape, points, and the time each may take."""
    tokens, context = request.tokens, request.context_len
    points = {
        "target": target_points(tokens, context, request.contexts),
        "draft": draft_points(tokens, context),
        "extend": extend_points(tokens, context),
    }
    shapes = {"target": request.target, "draft": request.draft, "extend": request.extend}
    last = [name for name, shape in shapes.items() if shape is not None][-1]

    def share(name: str) -> Callable[[], Deadline]:
        fraction = 0.95 if name == last else SHARES[name]
        return lambda: deadline.share(fraction)

    return [(name, shape, points[name], share(name)) for name, shape in shapes.items()]


def _rates(bench: _Bench, deadline: Deadline) -> Rates:
    rates = measure_rates(
        bench.device,
        bench.timer,
        bench.fill,
        bench.request.target,
        memory_bytes=bench.memory_bytes,
        cache_bytes=bench.cache_bytes,
        deadline=deadline,
        tokens=bench.request.gemm_tokens,
    )
    devices.release(bench.device)
    bench.advance()
    return rates


def _stack(
    bench: _Bench, stack: StackShape, points: Sequence[Point], share: Callable[[], Deadline]
) -> Stack:
    """Time a forward: each kind of layer by itself, the most frequent with what is around."""
    deadline = share()
    size = bench.fill.dtype.itemsize
    moe: MoeKind | None = None
    if any(layer.experts for layer, _ in stack.groups):
        moe = moe_kind(bench.device, bench.fill.dtype)
    chosen: list[Layers] = []
    fitting = tuple(points)
    for index, (layer, whole) in enumerate(stack.groups):
        layers = _layers(bench, stack, layer, whole, index == 0)
        weights = layers.built * layer.params + (stack.around_params if index == 0 else 0)
        left = bench.memory_bytes - weights * size
        context = bench.request.context_len
        fitting = fitted_points(fitting, stack, layer, layers, left, size, context)
        chosen.append(layers)
    found: list[dict[Point, Timed]] = []
    for index, (layer, _) in enumerate(stack.groups):
        part = deadline.share(1.0 / (len(stack.groups) - index))
        found.append(_group(bench, stack, layer, chosen[index], moe, fitting, index == 0, part))
        devices.release(bench.device)
    joined = joined_points(chosen, found)
    for reason, missing in (
        ("memory", len(points) - len(fitting)),
        ("time", len(fitting) - len(joined)),
    ):
        if missing:
            bench.notes.append(f"{stack.id}: {missing} points left out for want of {reason}")
    return Stack.model_validate(
        {
            "id": stack.id,
            "dtype": bench.request.dtype,
            "tp": bench.request.tp,
            "built": tuple(x.built for x in chosen),
            "small": tuple(x.small for x in chosen),
            "whole": tuple(x.whole for x in chosen),
            "graphs": devices.captured(bench.timer),
            "moe": moe,
            "points": joined,
        }
    )


def _layers(
    bench: _Bench, stack: StackShape, layer: LayerShape, whole: int, around: bool
) -> Layers:
    size = bench.fill.dtype.itemsize
    around_bytes = stack.around_params * size * around
    around_bytes += activation_bytes(Point(1, 1, 1), stack, layer, size)
    return layers_that_fit(
        layer,
        whole,
        around_bytes,
        bench.memory_bytes,
        bench.cache_bytes,
        size,
        bench.request.layers,
    )


def _group(
    bench: _Bench,
    stack: StackShape,
    layer: LayerShape,
    layers: Layers,
    moe: MoeKind | None,
    points: Sequence[Point],
    around: bool,
    deadline: Deadline,
) -> dict[Point, Timed]:
    """Time every point over the layers of one kind."""
    cache = max((p.batch * layer.seen(p.context_len) for p in points), default=0)
    model = Model(stack, layer, layers, bench.fill, moe, cache_tokens=cache, around=around)
    found: dict[Point, Timed] = {}
    done: list[tuple[int, float]] = []
    for index, point in enumerate(points):
        bench.advance()
        if not affordable(point.tokens, done, deadline.left_s):
            continue
        routings, touched = _routings(bench, layer, layers.built, point.tokens)
        counts = (layers.built, layers.small) if layers.small or around else (layers.built,)
        steps = [model.step(point, count, routings) for count in counts]
        seconds = min(POINT_S, deadline.left_s / max(1, (len(points) - index) / 4))
        large, *small = sample(bench.timer, steps, seconds)
        split = (
            split_layers(small[0], large, layers.small, layers.built)
            if small
            else Split(large.seconds / layers.built, 0.0, large.error)
        )
        done.append((point.tokens, large.seconds + sum(s.seconds for s in small)))
        found[point] = Timed(split, large.seconds, large.error, large.repeats, touched)
    return found


def _routings(
    bench: _Bench, layer: LayerShape, layers: int, tokens: int
) -> tuple[list[Routing], float | None]:
    """Draw each layer's routing; mean experts that are touched."""
    if not layer.experts:
        return [], None
    drawn = [
        draw_experts(tokens, layer.experts, layer.experts_per_token, bench.rng)
        for _ in range(layers)
    ]
    touched = float(np.mean([len(np.unique(one)) for one in drawn]))
    return [route(one, layer.experts, bench.device) for one in drawn], touched


def _allreduce(bench: _Bench, kind: str, ranks: int, deadline: Deadline) -> AllReduce | None:
    """Time the all-reduce; a note where it fails: the other measurements stand without it."""
    if ranks < 2:
        return None
    try:
        return measure_allreduce(kind, ranks, max(LEAST_ALLREDUCE_S, deadline.left_s))
    except Exception as error:  # whatever a process of torch.distributed dies of
        lines = str(error).strip().splitlines()
        bench.notes.append(f"no all-reduce: {lines[-1][:160] if lines else type(error).__name__}")
        return None


def _note_neighbours(bench: _Bench, taken: float, mem_bytes: float) -> None:
    if taken > OTHERS_SHARE * mem_bytes:
        bench.notes.append(
            f"{taken / 1e9:.1f} GB of the device were taken before: if another process also ran "
            "on it, the times are of both"
        )


def _note_clock(bench: _Bench, before: Sequence[float], after: Sequence[float]) -> None:
    if before and after and abs(after[0] / before[0] - 1) > 0.05:
        bench.notes.append(
            f"the clock went from {before[0]:.0f} to {after[0]:.0f} MHz: times are of both"
        )
