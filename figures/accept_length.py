"""Accept length over topk and verified tokens, beside the drafter's bound."""

from dataclasses import replace

from founding import Rows, founding, save
from matplotlib.figure import Figure

from specsim.acceptance import accept_table
from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots_accept import plot_accept_length
from specsim.setting import SpecSetting
from specsim.tree import tree_capacity

HEADER = ("topk", "num_steps", "num_draft_tokens", "accept_length", "bound")
STEPS = 4


def rows() -> Rows:
    """Return the numbers of the figure."""
    acceptance = founding().acceptance()
    calibrated = replace(acceptance, confidence_shift=0.0)
    settings = [
        SpecSetting.of(k, STEPS, n)
        for k in (1, 2, 4, 8)
        for n in (2, 4, 8, 16, 32, 64)
        if n <= tree_capacity(k, STEPS)
    ]
    return [
        (
            s.topk,
            s.num_steps,
            s.num_draft_tokens,
            accept_table(acceptance, s).accept_length,
            accept_table(calibrated, s).accept_length,
        )
        for s in settings
    ]


def figure() -> Figure:
    """Draw it."""
    note = "Bound: the same drafter, ranking nodes by its true accept probabilities."
    result, axes = new_figure(profile_caption(founding(), note))
    plot_accept_length(axes, founding().acceptance(), STEPS)
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
