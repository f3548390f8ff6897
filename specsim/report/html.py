"""The report: one HTML file that needs no network, from a profile and a curve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.curve import Curve
from specsim.engine import RunPlan
from specsim.profile import Profile
from specsim.report.answer import answer, evidence_line
from specsim.report.figure import STYLES, drawn, new_figure
from specsim.report.plots_accept import MOST_NODES, plot_tree, typical_tree
from specsim.report.plots_cost import plot_residuals
from specsim.report.plots_round import PARTS, round_parts
from specsim.report.words import described_requests, load_axis, series_names
from specsim.setting import SpecSetting
from specsim.tree import tree_capacity
from specsim.workload import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.calibrate.validate import Validation

DASHES = ("", "7 3", "7 3 2 3", "2 3", "9 2 2 2 2 2", "3 3", "11 4")
MARKERS = ("circle", "square", "up", "diamond", "down")
"""As in the plots: line and marker alone tell series apart."""

HATCHES = {
    "///": "M-2,6l4,4M0,0l8,8M6,-2l4,4",
    "xxx": "M0,0l8,8M0,8l8,-8",
    "\\\\\\": "M-2,2l4,-4M0,8l8,-8M6,10l4,-4",
    "...": "M4,4h1",
    "|||": "M4,0v8",
    "---": "M0,4h8",
    "": "",
}

MOST_TREES = 2


def report_html(
    profile: Profile,
    curve: Curve,
    commands: Sequence[str],
    validation: Validation | None = None,
    workload: Workload | None = None,
) -> str:
    """Return the report.

    Parameters
    ----------
    profile
        The server.
    curve
        Closed loops over one load or more; its numbers stand in the file as its document has them.
    commands
        Command lines that make it again.
    validation
        Predictions beside measurements, if there are any.
    workload
        Requests of the curve, if they are not the profile's.
    """
    head = curve.series[0].points[0]
    title = f"{curve.profile}: {head.engine} {head.engine_version}, {described_requests(curve)}"
    requests = workload or profile.setup.workload.workload
    first, *others = answer(curve)
    sections = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead" id="answer">{escape(first)}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in others),
        f'<p class="small">{escape(evidence_line(curve))}</p>',
        _curve_section(),
        _numbers(curve),
        _rounds_section(),
        _trees(profile, curve),
        _quality(profile, validation),
        _assumptions(profile, curve, requests),
        _reproduce(commands),
    ]
    script = json.dumps(_data(profile, curve, requests), allow_nan=False).replace("<", "\\u003c")
    document = curve.to_json().replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_asset('report.css')}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + f'\n<script type="application/json" id="curve-json">{document}</script>'
        + f'\n<script type="application/json" id="data">{script}</script>'
        + f"\n<script>\n{_asset('report.js')}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("specsim.report").joinpath(name).read_text(encoding="utf-8")


def _data(profile: Profile, curve: Curve, requests: Workload) -> dict[str, Any]:
    """Return what the script draws."""
    axis = load_axis(curve)
    series = []
    for i, (name, one) in enumerate(zip(_names(curve), curve.series, strict=True)):
        points = [{key: getattr(p, key) for key in _POINT} for p in one.points]
        comparisons = [
            {"gain": c.gain, "gain_low": c.gain_low, "gain_high": c.gain_high}
            for c in one.comparisons
        ]
        series.append(
            {
                "name": name,
                "role": one.role,
                "colour": STYLES[i % len(STYLES)][0],
                "dash": DASHES[i % len(DASHES)],
                "marker": MARKERS[i % len(MARKERS)],
                "points": points,
                "comparisons": comparisons,
            }
        )
    parts = [
        {"id": key, "words": words, "colour": colour, "path": HATCHES[hatch]}
        for key, (words, colour, hatch) in PARTS.items()
    ]
    return {
        "loads": list(axis.values),
        "axis": axis.label,
        "places": [axis.at(j).removeprefix("at ") for j in range(len(axis.values))],
        "series": series,
        "parts": parts,
        "rounds": _rounds(profile, curve, requests),
    }


_POINT = (
    "output_tps",
    "output_tps_low",
    "output_tps_high",
    "tpot_s",
    "accept_length",
    "batch_size",
)


def _names(curve: Curve) -> list[str]:
    """Names of the series, with what a reader must know of them."""
    names = []
    for name, series in zip(series_names(curve), curve.series, strict=True):
        words = ["runs today"] if series.role == "current" else []
        words += ["what-if"] if series.points[0].what_if else []
        names.append(f"{name} ({', '.join(words)})" if words else name)
    return names


def _rounds(profile: Profile, curve: Curve, requests: Workload) -> list[list[list[float]]]:
    """Milliseconds by load, series and part, in closed form."""
    system = profile.system()
    plans: list[RunPlan] = []
    for series in curve.series:
        head = series.points[0]
        setting = head.setting
        plans.append(system.plan(setting, engine_version=head.engine_version, what_if=True))
    rows = []
    for point in curve.series[0].points:
        solved = round_parts(profile, plans, _names(curve), point.concurrency, requests)
        rows.append(np.round(1e3 * solved.seconds, 4).tolist())
    return rows


def _curve_section() -> str:
    return """<h2>Throughput over load</h2>
<div class="controls"><label>show <select id="metric"></select></label>
<label>loads <select id="scale"></select></label></div>
<div class="controls" id="toggles"></div>
<div class="chart" id="curve"><div class="tip" id="tip" hidden></div></div>
<p class="small">Bands: central 90 % of the prediction. Hover for the numbers.</p>"""


def _rounds_section() -> str:
    return """<h2>Where the time of a round goes</h2>
<div class="controls"><label>at <select id="load"></select></label></div>
<div class="chart" id="rounds"></div><div class="controls" id="parts"></div>
<p class="small">In closed form, at the same requests. The CPU counts where nothing
hides it.</p>"""


def _numbers(curve: Curve) -> str:
    """Return the curve as a table; every cell carries its number unrounded."""
    rows = []
    axis = load_axis(curve)
    for j in range(len(axis.values)):
        cells = [f"<td>{axis.number(j)}</td>"]
        for series, name in zip(curve.series, _names(curve), strict=True):
            p, c = series.points[j], series.comparisons[j]
            gain = "" if series.role == "baseline" else f" ({100 * c.gain:+.0f} %)"
            cells.append(
                f'<td data-series="{escape(name)}" data-load="{axis.number(j)}" '
                f'data-tps="{p.output_tps:.10g}">{p.output_tps:.0f}{gain}<br>'
                f"{p.output_tps_low:.0f} to {p.output_tps_high:.0f}</td>"
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in _names(curve))
    return (
        "<details><summary>The numbers: tokens/s (gain), 90 % interval</summary>"
        f'<div class="scroll"><table id="numbers"><tr><th>{escape(axis.heading)}</th>{head}</tr>'
        f"{''.join(rows)}</table></div></details>"
    )


def _trees(profile: Profile, curve: Curve) -> str:
    """Draft trees of the asked settings, small ones."""
    shown: list[SpecSetting] = []
    for series in curve.series:
        setting = series.points[0].setting.with_scheduler("auto")
        small = tree_capacity(setting.topk, setting.num_steps) <= MOST_NODES
        if setting.topk > 1 and small and setting not in shown:
            shown.append(setting)
    if not shown:
        return ""
    figures = []
    for setting in shown[:MOST_TREES]:
        figure, axes = new_figure("", (7.0, 4.5))
        plot_tree(axes, typical_tree(profile.acceptance(), setting))
        figures.append(_inline(figure, "Path probabilities, per cent, in a typical context."))
    return f"<h2>The draft tree</h2>{''.join(figures)}"


def _inline(figure: Figure, caption: str) -> str:
    svg = drawn(figure, "svg").decode()
    return f"<figure>{svg[svg.index('<svg') :]}<figcaption>{escape(caption)}</figcaption></figure>"


def _quality(profile: Profile, validation: Validation | None) -> str:
    """How the profile was fitted, and its errors if measurements are at hand."""
    fit = profile.fit
    text = "Nothing was measured on this server: library physics with wide priors."
    if fit.observations:
        text = (
            f"Fitted to {fit.observations} measured cells; one cell scatters by "
            f"{100 * fit.noise:.1f} % around the model, and every prediction carries a model error "
            f"of {100 * fit.model_error:.1f} %. {fit.source}"
        )
    parts = ["<h2>Calibration</h2>", f"<p>{escape(text)}</p>"]
    if validation is not None:
        figure, axes = new_figure("", (7.5, 4.5))
        plot_residuals(axes, validation)
        parts.append(_inline(figure, "Error of each measured cell, with its 90 % interval."))
    return "".join(parts)


def _assumptions(profile: Profile, curve: Curve, requests: Workload) -> str:
    """Every number with its evidence, the weakest first."""
    rows: list[tuple[str, ...]] = [
        (p.name, f"{p.value:.3g}", f"{p.prior_median:.3g}", p.evidence, p.driven, p.source)
        for p in profile.parameters
    ]
    rows.sort(key=lambda row: row[3] != "assumed")
    acceptance = profile.acceptance()
    rows.insert(
        0,
        (
            "prompt, answer tokens",
            f"{requests.input_len.mean:g}, {requests.output_len.mean:g}",
            "",
            requests.evidence,
            "",
            "",
        ),
    )
    rows.insert(1, ("acceptance", "", "", acceptance.evidence, "", acceptance.source))
    notes = "".join(f"<li>{escape(note)}</li>" for note in curve.notes)
    head = ("number", "value", "prior", "evidence", "driven by", "source of the prior")
    return (
        f"<h2>What it rests on</h2><ul>{notes}</ul><details><summary>All numbers</summary>"
        f'<div class="scroll"><table>{_row("th", head)}'
        + "".join(_row("td", row, "assumed" if row[3] == "assumed" else "") for row in rows)
        + "</table></div></details>"
    )


def _row(tag: str, cells: Iterable[str], kind: str = "") -> str:
    css = ("", "", "", "word", "word", "source")
    inner = "".join(
        f'<{tag} class="{name}">{escape(cell)}</{tag}>'
        for cell, name in zip(cells, css, strict=True)
    )
    return f'<tr class="{kind}">{inner}</tr>'


def _reproduce(commands: Sequence[str]) -> str:
    lines = escape("\n".join(commands))
    return f"<h2>Make it again</h2><pre>{lines}</pre>"
