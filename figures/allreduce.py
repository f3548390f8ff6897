"""All-reduce of eight RTX PRO 6000 over PCIe by message size, measured and fitted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from founding import EVIDENCE, Rows, founding, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from specsim.cost.allreduce import AllReduce, fit_allreduce
from specsim.report import figure as fig

HEADER = ("bytes", "measured_us", "fitted_us")


def measured() -> list[tuple[float, float]]:
    """(bytes, seconds) of NCCL."""
    lines = (EVIDENCE / "tables" / "allreduce.csv").read_text().splitlines()
    names = next(line for line in lines if not line.startswith("#")).split(",")
    table = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:] if line]
    wanted = {"gpu": "rtx-pro-6000", "path": "nccl", "num_gpus": "8"}
    chosen = [row for row in table if all(row[k] == v for k, v in wanted.items())]
    return [(float(row["bytes"]), float(row["latency_s"])) for row in chosen]


def fitted() -> AllReduce:
    """At most three protocols."""
    sizes, seconds = zip(*measured(), strict=True)
    return fit_allreduce(sizes, seconds)


def rows() -> Rows:
    """Return the numbers of the figure."""
    curve = fitted()
    return [(size, 1e6 * s, 1e6 * float(curve.time_s(size))) for size, s in measured()]


def plot_allreduce(
    axes: Axes, allreduce: AllReduce, measured: Sequence[tuple[float, float]], token_bytes: float
) -> None:
    """Draw the time of one all-reduce over the message, with its protocol switches.

    `measured` (bytes, seconds) are circles; above stand the tokens, each of so many bytes.
    """
    size, seconds = np.array(measured).T
    low, high = 0.7 * float(size.min()), 1.4 * float(size.max())
    switches = [piece.max_bytes for piece in allreduce.pieces[:-1] if low < piece.max_bytes < high]
    edges = [low, *switches, high]
    for i in range(len(edges) - 1):
        at = np.geomspace(edges[i], edges[i + 1] * (1 - 1e-9), 60)
        style, us = fig.Style.of(i + 1), 1e6 * allreduce.time_s(at)
        axes.plot(at, us, color=style.colour, linestyle=style.line, label=f"protocol {i + 1}")
    for i, switch in enumerate(switches):
        axes.axvline(switch, color="0.5", linestyle=":", linewidth=1.0)
        place, offset = (switch, 0.0), (3, 4 + 11 * (i % 3))
        words = {"xycoords": ("data", "axes fraction"), "color": "0.3"}
        fig.note(axes, in_bytes(switch), place, offset, **words)
    looks: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "zorder": 3}
    axes.scatter(size, 1e6 * seconds, 28, label="measured", **looks)
    fig.frame(axes, "One all-reduce", "message (bytes)", "time (µs)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [2.0**e for e in range(8, 31, 2) if low <= 2.0**e <= high]
    axes.set_xticks(ticks, [in_bytes(t) for t in ticks])
    there_and_back = (lambda b: np.divide(b, token_bytes), lambda n: np.multiply(n, token_bytes))
    tokens = axes.secondary_xaxis("top", functions=there_and_back)
    shown = [t for t in (1, 4, 16, 64, 256, 1024) if low <= t * token_bytes <= high]
    tokens.set_xticks(shown, [str(t) for t in shown])
    tokens.xaxis.set_minor_locator(NullLocator())
    tokens.set_xlabel("tokens of the forward", fontsize="small")
    fig.legend(axes, loc="upper left", bbox_to_anchor=(0.0, 0.93))


def in_bytes(size: float) -> str:
    """Write a message size."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def figure() -> Figure:
    """Draw it."""
    result, axes = fig.new_figure(
        "Eight RTX PRO 6000, NCCL over PCIe 5 (aiconfigurator; calibration/tables). Evidence: "
        "measured, one host; others differ by up to ten times. Lines: fitted protocols."
    )
    token_bytes = 2 * founding().system().cost.target.model.hidden
    plot_allreduce(axes, fitted(), measured(), token_bytes)
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
