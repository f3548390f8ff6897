"""A profile as a short table for notebooks."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.profile.parameter import Parameter
    from specsim.profile.profile import Profile
    from specsim.setup import Setup


def profile_html(profile: Profile) -> str:
    """Return the server, what it was fitted to, and its numbers with errors, as HTML.

    Numbers that the fit left at their priors are counted, and so are the knots of the smooth
    correction. Every text is escaped.

    Parameters
    ----------
    profile
        What to show.
    """
    fitted = [p for p in profile.parameters if p.fitted]
    shown = [p for p in fitted if not p.name.startswith("correction_")]
    held, knots = len(profile.parameters) - len(fitted), len(fitted) - len(shown)
    fit = profile.fit
    sentences = [
        f"Fitted to {fit.observations} measured cells; model error {100 * fit.model_error:.1f} %."
        if fit.observations
        else "Nothing was measured on this server.",
        f"Weakest evidence: {profile.evidence}.",
    ]
    sentences += [f"{held} numbers stand at their priors."] if held else []
    sentences += [f"A smooth correction has {knots} knots."] if knots else []
    rows = [_row("th", ("number", "value", "prior", "driven by"))] if shown else []
    for p in shown:
        value, prior = valued(p, p.value, p.sd), valued(p, p.prior_median, p.prior_sd)
        rows.append(_row("td", (p.name, value, prior, p.driven)))
    return (
        f"<p><b>{escape(profile.name)}</b>: {escape(server(profile.setup))}</p>"
        f"<table>{''.join(rows)}</table><p>{escape(' '.join(sentences))}</p>"
    )


def server(setup: Setup) -> str:
    """Say in a line what a server is: GPUs, link, model, drafter, engine."""
    hardware, engine, draft = setup.hardware, setup.engine, setup.draft
    gpu = hardware.gpu if isinstance(hardware.gpu, str) else hardware.gpu.get("name", "own GPU")
    parts = [f"{hardware.gpu_count} x {gpu}"]
    parts += [f"link {hardware.link}"] if hardware.gpu_count > 1 else []
    model = setup.model.id or setup.model.config or "model"
    parts.append(f"{model} {setup.model.quantisation or ''}".strip())
    if draft is not None:
        parts.append(f"drafter {draft.id or 'own'}")
    parts.append(f"{engine.name} {engine.version}, tp {engine.tp}")
    return ", ".join(parts)


def valued(parameter: Parameter, value: float, sd: float) -> str:
    """Write a value with one standard error; on a log scale that is a factor.

    >>> from specsim.profile.parameter import Parameter
    >>> p = Parameter("host", "log", 1.0, 0.5, 0.9, 0.02)
    >>> valued(p, p.value, p.sd), valued(p, p.prior_median, p.prior_sd)
    ('0.9 x/: 1.02', '1 x/: 1.65')
    """
    if parameter.scale == "log":
        return f"{value:.3g} x/: {math.exp(sd):.2f}"
    return f"{value:.3g} +- {sd:.2g}"


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
