"""The report: one HTML file that needs no network, from a profile and a curve.

The page is ``report.html.j2``, its look ``report.css``, its life ``report.js`` and ``sliders.js``;
here is what they are filled with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.calibrate.validate import Validation
from specsim.curve import Curve
from specsim.decide import Verdict
from specsim.decide.launch import Launch
from specsim.profile import Profile
from specsim.profile.profile import server_line
from specsim.report import View, curve_title, load_axis, series_labels
from specsim.report import figure as fig
from specsim.report.answer import answer, choice_cells, evidence_line, rule
from specsim.report.plots_accept import MOST_NODES, plot_tree, typical_tree
from specsim.report.plots_cost import plot_residuals
from specsim.report.plots_round import PARTS, parts_of, rounds_at
from specsim.report.sliders import plans_of, slider_data
from specsim.tree import tree_capacity
from specsim.workload import Workload

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

POINT = (
    *("output_tps", "output_tps_low", "output_tps_high", "tpot_s", "accept_length", "batch_size"),
    *("gain", "gain_low", "gain_high"),
)
"""What the script draws of a point of the curve."""

MOST_TREES = 2


def report_html(
    profile: Profile,
    curve: Curve,
    verdict: Verdict,
    commands: Sequence[str],
    validation: Validation | None = None,
    workload: Workload | None = None,
    *,
    launches: Sequence[Launch] = (),
    date: str = "",
) -> str:
    """Return the report of a curve: closed loops over one load or more, on the profile's server.

    The numbers of the curve stand in the file as its document has them. `commands` make it again;
    `validation` is predictions beside measurements; `workload` are the requests of the curve, if
    they are not the profile's; `launches` are what to type for the choices; `date` is the page's.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    requests = workload or profile.setup.workload
    page = Environment(
        loader=PackageLoader("specsim.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template("report.html.j2")
    view = View.of(curve, verdict)
    asked = [view.series[i] for i in view.having("asked")]
    return page.render(
        title=curve_title(curve),
        server=server_line(profile.setup),
        date=date,
        choices=choice_cells(view.loads, view.axis, asked[0] if len(asked) == 1 else None),
        loads=view.loads,
        rule=rule(view.loads, verdict.settings_considered),
        launches=launches,
        answer=answer(view, verdict.free),
        evidence=evidence_line(curve),
        axis=view.axis,
        names=series_labels(curve),
        curve=curve,
        trees=_trees(profile, curve),
        fit=profile.fit,
        residuals=None if validation is None else _residuals(validation),
        assumptions=_assumptions(profile, requests),
        commands=commands,
        document=_in_script(curve.to_json()),
        data=_in_script(json.dumps(_data(profile, curve, requests), allow_nan=False)),
        sliders=_in_script(json.dumps(slider_data(profile, curve, requests), allow_nan=False)),
    )


def _in_script(text: str) -> Markup:
    """Return JSON that no closing tag ends."""
    from markupsafe import Markup

    return Markup(text.replace("<", "\\u003c"))


def _data(profile: Profile, curve: Curve, requests: Workload) -> dict[str, Any]:
    """Return what the script draws."""
    axis = load_axis(curve)
    series = [
        {
            "name": name,
            "role": one.role,
            "colour": fig.Style.of(i).colour,
            "points": [{key: getattr(p, key) for key in POINT} for p in one.points],
        }
        for i, (name, one) in enumerate(zip(series_labels(curve), curve.series, strict=True))
    ]
    return {
        "loads": list(axis.values),
        "axis": axis.label,
        "places": [axis.at(j).removeprefix("at ") for j in range(len(axis.values))],
        "series": series,
        "parts": [{"id": name, **part._asdict()} for name, part in PARTS.items()],
        "rounds": _rounds(profile, curve, requests),
    }


def _rounds(profile: Profile, curve: Curve, requests: Workload) -> list[list[list[float]]]:
    """Milliseconds by load, series and part, in closed form."""
    plans = plans_of(profile, curve)
    loads = [point.concurrency for point in curve.series[0].points]
    rounds = (rounds_at(profile, plans, load, requests) for load in loads)
    return [np.round(1e3 * parts_of(at_load), 4).tolist() for at_load in rounds]


def _trees(profile: Profile, curve: Curve) -> list[Markup]:
    """Draw the trees of the first small settings that have more than a chain."""
    settings = [series.points[0].setting.with_scheduler("auto") for series in curve.series]
    small = [
        setting
        for setting in dict.fromkeys(settings)
        if setting.topk > 1 and tree_capacity(setting.topk, setting.num_steps) <= MOST_NODES
    ]
    pictures = []
    for setting in small[:MOST_TREES]:
        figure, axes = fig.new_figure("", (7.0, 4.5))
        plot_tree(axes, typical_tree(profile.acceptance(algorithm=setting.algorithm), setting))
        pictures.append(_inline(figure))
    return pictures


def _residuals(validation: Validation) -> Markup:
    figure, axes = fig.new_figure("", (7.5, 4.5))
    plot_residuals(axes, validation)
    return _inline(figure)


def _inline(figure: Figure) -> Markup:
    from markupsafe import Markup

    svg = fig.drawn(figure, "svg").decode()
    return Markup(svg[svg.index("<svg") :])


def _assumptions(profile: Profile, requests: Workload) -> list[tuple[str, ...]]:
    """Every number: name, value, prior, evidence, driven by, state, source; the assumed ones first.

    Before them the requests and the drafter, which are no parameters.
    """
    acceptance = profile.acceptance()
    lengths = f"{requests.input_len.mean:g}, {requests.output_len.mean:g}"
    parameters = [
        (
            *(p.name, f"{p.value:.3g}", f"{p.prior_median:.3g}", p.evidence, p.driven),
            "fitted" if p.fitted else "at its prior",
            p.source,
        )
        for p in profile.parameters
    ]
    return [
        ("prompt, answer tokens", lengths, "", requests.evidence, "", "", ""),
        ("acceptance", "", "", acceptance.evidence, "", "", acceptance.source),
        *sorted(parameters, key=lambda row: row[3] != "assumed"),
    ]
