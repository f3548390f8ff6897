"""All-reduce of eight RTX PRO 6000 over PCIe by message size, measured and fitted."""

from dataclasses import replace

from founding import EVIDENCE, Rows, founding, save
from matplotlib.figure import Figure

from specsim.cost.allreduce import AllReduce, fit_allreduce
from specsim.cost.model import CostModel, cost_values
from specsim.report.figure import new_figure
from specsim.report.plots_cost import plot_allreduce

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


def figure() -> Figure:
    """Draw it."""
    cost: CostModel = founding().system().cost
    cost = replace(cost, allreduce=fitted(), parameters=cost_values())
    sizes = [size for size, _ in measured()]
    result, axes = new_figure(
        "Eight RTX PRO 6000, NCCL over PCIe 5 (aiconfigurator; calibration/tables). Evidence: "
        "measured, one host; others differ by up to ten times. Lines: fitted protocols."
    )
    plot_allreduce(axes, cost, measured(), (0.7 * min(sizes), 1.4 * max(sizes)))
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
