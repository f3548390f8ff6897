"""From a few layers to the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.probe.document import StepPoint
from specsim.probe.grid import Layers, Point
from specsim.probe.timing import Split


@dataclass(frozen=True, slots=True)
class Timed:
    """One point over the layers of one kind.

    Parameters
    ----------
    split
        Per layer, and besides.
    large_s, error, repeats
        Over all layers that were built: seconds, relative error, runs.
    experts
        Experts that a layer touched; None without experts.
    """

    split: Split
    large_s: float
    error: float
    repeats: int
    experts: float | None


def joined_points(layers: Sequence[Layers], found: Sequence[dict[Point, Timed]]) -> list[StepPoint]:
    """Scale every point to the whole model; points that a kind of layer lacks are left out.

    seconds = fixed + sum over kinds of layers x layer_s, where `fixed` is what the first kind,
    which has the head, costs besides its layers. A model that was built whole is its own time.

    Parameters
    ----------
    layers, found
        By kind of layer, the first with what is around.
    """
    joined = []
    for point in sorted(found[0]):
        if not all(point in one for one in found):
            continue
        parts = [one[point] for one in found]
        first = parts[0]
        whole = len(parts) == 1 and layers[0].built == layers[0].whole
        per_layer = [part.split.layer_s for part in parts]
        in_layers = sum(s * x.whole for s, x in zip(per_layer, layers, strict=True))
        noise = sum(
            (part.split.error * part.split.layer_s * x.whole) ** 2
            for part, x in zip(parts, layers, strict=True)
        )
        seconds = first.large_s if whole else first.split.fixed_s + in_layers
        joined.append(
            StepPoint(
                batch=point.batch,
                width=point.width,
                context_len=point.context_len,
                seconds=seconds,
                fixed_s=first.split.fixed_s,
                layers_s=tuple(per_layer),
                error=first.error if whole else noise**0.5 / seconds,
                repeats=min(part.repeats for part in parts),
                experts=next((p.experts for p in parts if p.experts is not None), None),
            )
        )
    return joined
