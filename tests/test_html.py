"""The report: self-contained, its numbers those of the JSON, and alive in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import CHROMIUM, probed

from specsim.calibrate.validate import ValidatedRow, Validation
from specsim.cli import main
from specsim.curve import Curve
from specsim.decide import Verdict
from specsim.decide.contest import verdict
from specsim.observations import Observation
from specsim.profile import DEFAULT_PROFILE, Profile, load_profile
from specsim.question import Question
from specsim.report import View
from specsim.report.answer import answer
from specsim.report.html import report_html
from specsim.setting import SpecSetting


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile()


@pytest.fixture(scope="module")
def curve(profile: Profile) -> Curve:
    return profile.predict(topk=2, num_steps=2, concurrency=[1, 30, 100], solver="analytic")


@pytest.fixture(scope="module")
def decision(profile: Profile) -> Verdict:
    return verdict(profile, Question((SpecSetting.of(2, 2),), (1, 30, 100)))


@pytest.fixture(scope="module")
def report(profile: Profile, curve: Curve, decision: Verdict) -> str:
    cell = Observation(
        kind="closed_loop", setting=SpecSetting.none(), concurrency=1, output_tps=92.7
    )
    validation = Validation((ValidatedRow(cell, "output_tps", 92.7, 93.0, 85.0, 100.0),))
    return report_html(profile, curve, decision, ["specsim predict 2,2,7 --json"], validation)


def embedded(report: str, name: str) -> dict:
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', report, re.S)
    assert found is not None
    return json.loads(found[1])


class Outside(HTMLParser):
    """Collects what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            fetches = name in ("src", "srcset", "data", "action") or (
                name in ("href", "xlink:href") and tag in ("link", "image", "script")
            )
            if fetches and value and not value.startswith(("data:", "#")):
                self.fetched.append(value)


def test_needs_no_network_and_is_small(report: str) -> None:
    parser = Outside()
    parser.feed(report)
    assert parser.fetched == []
    assert "@import" not in report
    assert not re.search(r"url\(\s*['\"]?https?:", report)
    assert "fetch(" not in report
    assert len(report.encode()) < 6_000_000


def test_the_answer_stands_first(report: str, curve: Curve, decision: Verdict) -> None:
    body = report[report.index("<body>") :]
    lead = re.search(r'<p class="lead" id="answer">(.*?)</p>', body)
    assert lead is not None
    assert unescape(lead[1]) == answer(View.of(curve, decision), decision.free)[0]
    assert body.index('id="answer"') < body.index("<h2>")
    for heading in ("Throughput over load", "If more were accepted", "time of a round",
                    "draft tree", "Calibration", "rests on", "again"):  # fmt: skip
        assert heading in body


def test_numbers_equal_the_json(report: str, curve: Curve) -> None:
    rows = json.loads(curve.to_json())["rows"]
    assert embedded(report, "curve-json")["rows"] == rows
    cells = [float(v) for v in re.findall(r'data-tps="([^"]+)"', report)]
    assert sorted(cells) == sorted(row["output_tps"] for row in rows)
    data = embedded(report, "data")
    drawn = [p["output_tps"] for series in data["series"] for p in series["points"]]
    assert drawn == [p.output_tps for p in curve.rows]


def test_rounds_add_up_to_the_curve_s(report: str, curve: Curve) -> None:
    data = embedded(report, "data")
    for j, rows in enumerate(data["rounds"]):
        for series, row in zip(curve.series, rows, strict=True):
            ms = 1e3 * series.points[j].round_time_s
            assert sum(row) == pytest.approx(ms, rel=1e-4)  # parts are rounded to 0.1 us


def test_the_same_inputs_give_the_same_bytes(
    profile: Profile, curve: Curve, decision: Verdict, report: str
) -> None:
    one, two = (report_html(profile, curve, decision, ["c"]) for _ in range(2))
    assert one == two
    assert one != report


def test_names_from_files_are_text_not_markup(
    profile: Profile, curve: Curve, decision: Verdict
) -> None:
    evil = replace(
        curve,
        profile="</script><script>alert(1)</script>",
        notes=("<img src=x onerror=alert(2)>",),
    )
    report = report_html(profile, evil, decision, ["<b>"])
    assert "<script>alert" not in report
    assert "<img" not in report
    assert report.count("</script>") == 4


SCRIPT = """
const svg = () => document.querySelector("#curve svg");
const hover = (share) => {
  const box = svg().getBoundingClientRect();
  svg().dispatchEvent(new MouseEvent("mousemove",
    { clientX: box.left + share * box.width, clientY: box.top + 50, bubbles: true }));
  return document.getElementById("tip").innerText;
};
const lines = () => svg().querySelectorAll("polyline").length;
Object.assign(result, { right: hover(0.97), left: hover(0.08), lines: lines() });
document.querySelector("#toggles input").click();
result.toggled = lines();
const axis = document.getElementById("scale");
const before = svg().innerHTML;
axis.value = "linear";
axis.dispatchEvent(new Event("change"));
result.switched = svg().innerHTML !== before;
const metric = document.getElementById("metric");
metric.value = "gain";
metric.dispatchEvent(new Event("change"));
result.gain = hover(0.97);
result.rounds = document.querySelectorAll("#rounds svg rect title").length;
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_hover_toggles_and_axis_in_a_browser(report: str, curve: Curve, tmp_path: Path) -> None:
    probe = probed(report, SCRIPT, tmp_path)
    points = [series.points for series in curve.series]
    assert probe["right"].startswith("100 clients")
    assert probe["left"].startswith("1 client")
    for series in points:
        assert f"{series[-1].output_tps:.0f} tok/s" in probe["right"]
    assert probe["lines"] == len(points)
    assert probe["toggled"] == len(points) - 1
    assert probe["switched"] is True
    gain = 100 * curve.series[2].points[-1].gain
    assert f"{gain:+.1f} %" in probe["gain"]
    assert probe["rounds"] > 10


def run_cli(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setitem(main.COMMANDS, "report", "words")
    return main.run(words)


def test_command_writes_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, cells = tmp_path / "r.html", tmp_path / "observations.csv"
    cells.write_text(
        "kind,algorithm,topk,num_steps,num_draft_tokens,concurrency,output_tps\n"
        "closed_loop,none,1,0,1,1,92.7\n"
    )
    words = ["--topk", "2", "--steps", "2", "--concurrency", "1,30", "--solver", "analytic"]
    files = ["-o", str(page), "--observations", str(cells)]
    assert run_cli(monkeypatch, "report", *words, *files) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    text = page.read_text()
    assert "2,2,7 --concurrency 1,30" in text
    assert "Error of each measured cell" in text
    assert run_cli(monkeypatch, "report", *words, "-o", "report.txt") == 2
    assert "end the name in .html" in capsys.readouterr().err


def test_report_of_a_changed_server_and_other_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page, cells = tmp_path / "r.html", tmp_path / "observations.csv"
    cells.write_text(
        "kind,algorithm,topk,num_steps,num_draft_tokens,concurrency,output_tps\n"
        "closed_loop,none,1,0,1,1,92.7\n"
    )
    words = ["2,2,7", "--concurrency", "1,30", "--solver", "analytic", "-o", str(page)]
    lengths = ["--input-len", "4000", "--osl", "300"]
    assert run_cli(monkeypatch, "report", *words, *lengths) == 0
    plain = page.read_text()
    assert "4000 tokens in, 300 out" in plain
    assert ">4000, 300<" in plain  # in the table of assumptions
    assert "--input-len 4000 --output-len 300" in unescape(plain)
    assert "specsim timeline" in plain
    rows = embedded(plain, "curve-json")["rows"]
    ms = [1e3 * row["round_time_s"] for row in rows if row["concurrency"] == 30]
    rounds = [sum(parts) for parts in embedded(plain, "data")["rounds"][1]]
    assert rounds == pytest.approx(ms, rel=1e-4)  # rounds are of the asked requests too
    more = ["--set", "allreduce.latency=*0.5", "--observations", str(cells)]
    assert run_cli(monkeypatch, "report", *words, *lengths, *more) == 0
    changed = page.read_text()
    faster = embedded(changed, "curve-json")["rows"]
    assert all(a["output_tps"] > b["output_tps"] for a, b in zip(faster, rows, strict=True))
    again = unescape(changed[changed.index("Make it again") :])
    assert "--set 'allreduce.latency=*0.5'" in again
    assert again.count(f"--profile {DEFAULT_PROFILE} --set 'allreduce.latency=*0.5'") == 4
    assert "Error of each measured cell" in changed
