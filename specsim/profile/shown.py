"""A profile as a short table for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.profile.profile import Profile
    from specsim.server import Setup
    from specsim.uncertainty import Parameter


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
    rows = [_row("th", ("number", "value (90 %)", "prior (90 %)", "driven by"))] if shown else []
    rows += [_row("td", (p.name, *valued(p), p.driven)) for p in shown]
    return (
        f"<p><b>{escape(profile.name)}</b>: {escape(server(profile.setup))}</p>"
        f"<table>{''.join(rows)}</table><p>{escape(' '.join(sentences))}</p>"
    )


def server(setup: Setup) -> str:
    """Say in a line what a server is: GPUs, link, model, drafter, engine."""
    hardware, engine, draft = setup.hardware, setup.engine, setup.draft
    gpu = hardware.gpu if isinstance(hardware.gpu, str) else hardware.gpu.name
    parts = [f"{hardware.gpu_count} x {gpu}"]
    parts += [f"link {hardware.link}"] if hardware.gpu_count > 1 else []
    model = setup.model.id or setup.model.config or "model"
    parts.append(f"{model} {setup.model.quantisation or ''}".strip())
    if draft is not None:
        parts.append(f"drafter {draft.id or 'own'}")
    parts.append(f"{engine.name} {engine.version}, tp {engine.tp}")
    return ", ".join(parts)


def valued(parameter: Parameter) -> tuple[str, str]:
    """Write the value and the prior's median, each with its central 90 %.

    >>> from specsim.uncertainty import Parameter
    >>> valued(Parameter("host", "log", 1.0, 0.5, 0.9, 0.02))
    ('0.9 (0.871 to 0.93)', '1 (0.439 to 2.28)')
    """
    (least, most), (low, high) = parameter.stated, parameter.prior_interval
    return (
        f"{parameter.value:.3g} ({least:.3g} to {most:.3g})",
        f"{parameter.prior_median:.3g} ({low:.3g} to {high:.3g})",
    )


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
