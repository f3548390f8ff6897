"""One run of the probe: rates, target, draft, extend, all-reduce, within a time and a memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.errors import InputError
from specsim.probe import device as devices
from specsim.probe import grid
from specsim.probe.bench import Bench, Deadline, affordable, sample
from specsim.probe.document import Dtype, MoeKind, ProbeDocument, Stack
from specsim.probe.grid import Point, Timed
from specsim.probe.layers import Model, moe_kind, route_layers
from specsim.probe.rates import GEMM_TOKENS, measure_allreduce, measure_rates
from specsim.probe.shapes import Layers, StackShape

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]

POINT_S = 2.0  # most seconds for one point, warm-up and both numbers of layers included
RATES_SHARE, TARGET_SHARE, DRAFT_SHARE, LAST_SHARE = 0.15, 0.7, 0.5, 0.95
"""Of the time that is left when each begins; what one does not use the next has."""
HEAT_S = 0.5
OTHERS_SHARE = 0.03  # a driver and a CUDA context take less of a GPU's memory than this
CLOCK_DRIFT = 0.05
LEAST_ALLREDUCE_S = 5.0  # several devices are worth so much even where the time is used up


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be measured."""

    target: StackShape  # of one GPU's share, as the others
    draft: StackShape | None = None
    extend: StackShape | None = None
    tp: int = 1  # GPUs that the shares are of
    dtype: Dtype = "bf16"
    seconds: float = 300.0
    memory_bytes: float | None = None  # at most; None for all that may be taken
    layers: int = grid.MOST_LAYERS  # to build, at least two where the model has them
    tokens: tuple[int, ...] = grid.TOKENS  # of the decode steps
    context_len: int = grid.CONTEXT  # KV tokens per request of the steps over tokens
    contexts: tuple[int, ...] = grid.CONTEXTS  # and of the steps over KV length
    gemm_tokens: tuple[int, ...] = GEMM_TOKENS  # rows of the single products
    ranks: int | None = None  # of the all-reduce; None for `tp`, or all devices that are there
    seed: int = 0  # of weights and routing


def probe(
    request: Request,
    device: torch.device,
    *,
    version: str,
    date: str,
    progress: Progress = lambda done, total: None,
) -> ProbeDocument:
    """Measure a device within the bounds of a request; `progress` is told points done, and all."""
    deadline = Deadline(request.seconds)
    about = devices.describe(device)
    before, taken = devices.clock_mhz(device), devices.occupied_bytes(device)
    forwards = _forwards(request)
    shares = {**dict.fromkeys(forwards, DRAFT_SHARE), "target": TARGET_SHARE}
    shares[next(reversed(forwards))] = LAST_SHARE
    steps = 1 + sum(len(points) * len(shape.groups) for shape, points in forwards.values())
    with devices.import_torch().inference_mode():
        bench = Bench.of(device, about, request.dtype, request.memory_bytes, request.seed)
        run = _Run(request, bench, progress, steps, np.random.default_rng(request.seed))
        devices.heat_up(device, HEAT_S)
        share = deadline.share(RATES_SHARE)
        rates = measure_rates(bench, request.target, share, request.gemm_tokens)
        devices.release(device)
        run.advance()
        stacks = {
            name: run.stack(shape, points, deadline.share(shares[name]))
            for name, (shape, points) in forwards.items()
        }
    after, notes = devices.clock_mhz(device), run.notes
    ranks = request.ranks or (request.tp if 1 < request.tp <= about.count else about.count)
    allreduce = None
    try:
        allreduce = measure_allreduce(about.kind, ranks, max(LEAST_ALLREDUCE_S, deadline.left_s))
    except Exception as error:  # of torch.distributed; the other measurements stand without it
        lines = str(error).strip().splitlines()
        notes.append(f"no all-reduce: {lines[-1][:160] if lines else type(error).__name__}")
    if not stacks["target"].points:
        why = "do not suffice for one step"
        raise InputError(f"{request.seconds:g} s", why, "raise --max-seconds")
    if taken > OTHERS_SHARE * about.mem_bytes:
        notes.append(
            f"{taken / 1e9:.1f} GB of the device were taken before: if another process also ran "
            "on it, the times are of both"
        )
    if before and after and abs(after[0] / before[0] - 1) > CLOCK_DRIFT:
        notes.append(
            f"the clock went from {before[0]:.0f} to {after[0]:.0f} MHz: times are of both"
        )
    return ProbeDocument(
        specsim=version,
        date=date,
        seconds=deadline.spent_s,
        seed=request.seed,
        device=replace(about, clock_mhz=(*before, *after)),
        rates=rates,
        target=stacks["target"],
        draft=stacks.get("draft"),
        extend=stacks.get("extend"),
        allreduce=allreduce,
        notes=tuple(dict.fromkeys([*notes, *bench.timer.notes])),
    )


def _forwards(request: Request) -> dict[str, tuple[StackShape, tuple[Point, ...]]]:
    """Return what is timed, and at which points, the target first."""
    of = (request.tokens, request.context_len)
    rows = {
        "target": (request.target, grid.target_points(*of, request.contexts)),
        "draft": (request.draft, grid.draft_points(*of)),
        "extend": (request.extend, grid.extend_points(*of)),
    }
    return {name: (shape, points) for name, (shape, points) in rows.items() if shape is not None}


@dataclass(slots=True)
class _Run:
    """What the forwards of a run share: the bench, random routing, progress, notes."""

    request: Request
    bench: Bench
    progress: Progress
    total: int  # points
    rng: np.random.Generator
    done: int = 0
    notes: list[str] = field(default_factory=list)

    def advance(self) -> None:
        """Count one point."""
        self.done += 1
        self.progress(self.done, max(self.total, self.done))

    def stack(self, stack: StackShape, wanted: Sequence[Point], deadline: Deadline) -> Stack:
        """Time a forward: each kind of layer by itself, the most frequent with what is around."""
        bench = self.bench
        routed = any(layers.shape.experts for layers in stack.groups)
        moe = moe_kind(bench.device, bench.fill.dtype) if routed else None
        kinds, points = grid.fitting(
            stack, wanted, bench, self.request.layers, self.request.context_len
        )
        found: list[dict[Point, Timed]] = []
        for layers, part in zip(kinds, deadline.parts(len(kinds)), strict=True):
            found.append(self._timed(stack, layers, moe, points, part, around=not found))
            devices.release(bench.device)
        joined = grid.joined_points(kinds, found)
        lost = {"memory": len(wanted) - len(points), "time": len(points) - len(joined)}
        self.notes += [
            f"{stack.id}: {missing} points left out for want of {reason}"
            for reason, missing in lost.items()
            if missing
        ]
        return Stack(
            id=stack.id,
            dtype=self.request.dtype,
            tp=self.request.tp,
            built=tuple(layers.built for layers in kinds),
            small=tuple(layers.small for layers in kinds),
            whole=tuple(layers.whole for layers in kinds),
            graphs=bench.timer.graphs,
            moe=moe,
            points=tuple(joined),
        )

    def _timed(
        self,
        stack: StackShape,
        layers: Layers,
        moe: MoeKind | None,
        points: Sequence[Point],
        deadline: Deadline,
        *,
        around: bool,
    ) -> dict[Point, Timed]:
        layer = layers.shape
        cache = max((p.batch * layer.seen(p.context_len) for p in points), default=0)
        model = Model(stack, layers, self.bench.fill, moe, cache_tokens=cache, around=around)
        counts = (layers.built, layers.small) if layers.small or around else (layers.built,)
        found: dict[Point, Timed] = {}
        done: list[tuple[int, float]] = []
        for index, point in enumerate(points):
            self.advance()
            if not affordable(point.tokens, done, deadline.left_s):
                continue
            routings, touched = route_layers(layers, point.tokens, self.bench.device, self.rng)
            steps = [model.step(point, count, routings) for count in counts]
            seconds = min(POINT_S, deadline.left_s / max(1, (len(points) - index) / 4))
            large, *small = sample(self.bench.timer, steps, seconds)
            done.append((point.tokens, large.seconds + sum(s.seconds for s in small)))
            found[point] = Timed.of(large, small[0] if small else None, layers, touched)
        return found
