"""Accept length over topk and verified tokens, beside the drafter's bound."""

from collections.abc import Sequence
from dataclasses import replace

from founding import Rows, founding, save
from matplotlib.figure import Figure

from specsim.acceptance import accept_tables
from specsim.report import figure as fig
from specsim.setting import SpecSetting
from specsim.tree import tree_capacity

HEADER = ("topk", "num_steps", "num_draft_tokens", "accept_length", "bound")
STEPS = 4
TOKENS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)


def lengths(topk: int, tokens: Sequence[int]) -> list[tuple[SpecSetting, float, float]]:
    """Return the settings of a topk with their accept length and the drafter's bound.

    The bound is the same drafter, knowing its own accept probabilities (confidence shift 0).
    """
    acceptance = founding().acceptance()
    calibrated = replace(acceptance, confidence_shift=0.0)
    settings = [SpecSetting.of(topk, STEPS, n) for n in tokens]
    built, bound = (
        [table.accept_length for table in accept_tables(law, settings)]
        for law in (acceptance, calibrated)
    )
    return list(zip(settings, built, bound, strict=True))


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (s.topk, s.num_steps, s.num_draft_tokens, built, bound)
        for k in (1, 2, 4, 8)
        for s, built, bound in lengths(
            k, [n for n in (2, 4, 8, 16, 32, 64) if n <= tree_capacity(k, STEPS)]
        )
    ]


def figure() -> Figure:
    """Draw a line per topk, and a thin one for its bound."""
    note = "Bound: the same drafter, ranking nodes by its true accept probabilities."
    result, axes = fig.new_figure(fig.profile_caption(founding(), note))
    for i, k in enumerate((1, 2, 4, 8)):
        capacity, style = tree_capacity(k, STEPS), fig.Style.of(i)
        budgets = sorted({n for n in TOKENS if n <= capacity} | {min(capacity, max(TOKENS))})
        _, built, bound = zip(*lengths(k, budgets), strict=True)
        fig.draw_line(axes, budgets, built, style, f"topk={k}")
        if k > 1:
            axes.plot(budgets, bound, color=style.colour, linestyle=style.line, linewidth=0.7)
            axes.fill_between(budgets, built, bound, color=style.colour, alpha=0.1, linewidth=0)
    axes.plot([], [], color="0.3", linewidth=0.7, label="bound: confidence = truth")
    law = founding().acceptance()
    title = f"steps={STEPS}, {law.dataset or 'default'} at temperature {law.temperature:g}"
    x = "verified per request and round, root included (tokens)"
    fig.frame(axes, title, x, "accept length, bonus included (tokens)")
    axes.set_xscale("log", base=2)
    ticks = [n for n in (2, 4, 8, 16, 32, 64) if n <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_ylim(bottom=1.0)
    fig.legend(axes)
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
