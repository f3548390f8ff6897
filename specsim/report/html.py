"""The report: one HTML file that needs no network, from a profile and a curve.

The page is ``report.html.j2``, its look ``report.css``, its life ``report.js`` and ``sliders.js``;
here is what they are filled with. The sliders move over throughput in closed form by accept length
and load; ``sliders.js`` interpolates the grid bilinearly in logarithms, where a throughput that
saturates and one that grows with the accept length are both nearly straight.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.arrays import Floats
from specsim.calibrate.validate import Validation
from specsim.curve import Curve, Series
from specsim.decide import Verdict
from specsim.decide.breakeven import gain_map
from specsim.decide.launch import Launch
from specsim.engine import RunPlan
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.profile.profile import server_line
from specsim.question import Question
from specsim.report import View, curve_title, load_axis, plots, series_labels
from specsim.report import figure as fig
from specsim.report.answer import answer, choice_cells, evidence_line, rule
from specsim.tree import tree_capacity
from specsim.workload import Load, Workload

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
    residuals, axes = fig.new_figure("", (7.5, 4.5))
    if validation is not None:
        plots.plot_residuals(axes, validation)
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
        residuals=None if validation is None else _inline(residuals),
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
    axis, plans = load_axis(curve), plans_of(profile, curve)
    loads = [point.concurrency for point in curve.series[0].points]
    rounds = (plots.rounds_at(profile, plans, load, requests) for load in loads)  # ms by part
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
        "parts": [{"id": name, **part._asdict()} for name, part in plots.PARTS.items()],
        "rounds": [np.round(1e3 * plots.parts_of(at_load), 4).tolist() for at_load in rounds],
    }


def _trees(profile: Profile, curve: Curve) -> list[Markup]:
    """Draw the trees of the first small settings that have more than a chain."""
    settings = [series.points[0].setting.with_scheduler("auto") for series in curve.series]
    small = [
        setting
        for setting in dict.fromkeys(settings)
        if setting.topk > 1 and tree_capacity(setting.topk, setting.num_steps) <= plots.MOST_NODES
    ]
    pictures = []
    for setting in small[:MOST_TREES]:
        figure, axes = fig.new_figure("", (7.0, 4.5))
        plots.plot_tree(
            axes, plots.typical_tree(profile.acceptance(algorithm=setting.algorithm), setting)
        )
        pictures.append(_inline(figure))
    return pictures


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


ROWS = 9  # drafters from useless to perfect
EVERY = 256  # clients up to which each load is solved: captured sizes make stairs of it
BEYOND = 128  # loads further up, evenly in logarithm


def plans_of(profile: Profile, curve: Curve) -> list[RunPlan]:
    """Return how the engine runs each series."""
    system = profile.system()
    heads = [series.points[0] for series in curve.series]
    return [system.plan(p.setting, engine_version=p.engine_version, what_if=True) for p in heads]


def slider_data(profile: Profile, curve: Curve, requests: Workload) -> dict[str, Any]:
    """Return the grids of a curve's settings in tokens/s, from one client to its largest load."""
    most = max(curve.series[0].points[-1].concurrency, 2)
    each = np.arange(1, min(most, EVERY) + 1)
    further = np.geomspace(each[-1], most, BEYOND)
    clients = sorted({int(load) for load in np.append(each, further.round())})
    middle = curve.series[0].points[len(curve.series[0].points) // 2].concurrency
    roles = [series.role for series in curve.series[1:]]
    served = replace(profile, setup=replace(profile.setup, workload=requests))
    question = Question(concurrency=tuple(clients))
    plain, *plans = plans_of(profile, curve)
    loads = tuple(Load("closed_loop", c) for c in clients)
    base = Grid((plain,), loads, requests).solve(served).output_tps
    maps = [gain_map(served, plan, question, ROWS) for plan in plans]
    # a drafter that is perfect already has no more rows
    rows = [np.unique(one.accept_length.round(4), return_index=True)[1] for one in maps]
    return {
        "gpus": profile.setup.hardware.gpu_count,
        "clients": clients,
        "start": {"setting": roles.index("asked") if "asked" in roles else 0, "clients": middle},
        "plain": {
            "accept_length": [1.0],
            "output_tps": _short(base),
            "interval": _interval(curve.series[0], clients),
        },
        "settings": [
            {
                "name": name,
                "expected": one.expected,
                "accept_length": one.accept_length[kept].tolist(),
                "output_tps": _short(one.output_tps[kept]),
                "interval": _interval(series, clients),
            }
            for name, series, one, kept in zip(
                series_labels(curve)[1:], curve.series[1:], maps, rows, strict=True
            )
        ],
    }


def _interval(series: Series, clients: Sequence[int]) -> list[list[float]]:
    """Return the ends of a series' 90 % interval over its value, at each load."""
    points = series.points
    ends = [
        [math.log(end / p.output_tps) for p, end in zip(points, side, strict=True)]
        for side in zip(*((p.output_tps_low, p.output_tps_high) for p in points), strict=True)
    ]
    at = np.log([p.concurrency for p in points])
    return _short(np.exp([np.interp(np.log(clients), at, end) for end in ends]))


def _short(values: Floats) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in row] for row in values]
