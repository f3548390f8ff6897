"""The sliders of the report: the grid is the closed form, the page interpolates as Python does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, opened, probed
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.cli.main import run
from specsim.curve import Curve
from specsim.decide.breakeven import gain_map
from specsim.decide.contest import verdict
from specsim.predict import Grid
from specsim.profile import Profile, load_profile
from specsim.question import Question
from specsim.report.html import EVERY, plans_of, report_html, slider_data
from specsim.scenario import load_server
from specsim.setting import SpecSetting
from specsim.workload import Load

MOST = 2000  # clients: beyond those that are solved one by one


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile()


@pytest.fixture(scope="module")
def curve(profile: Profile) -> Curve:
    # a wide tree has the highest stairs, where its batch passes a captured size
    asked = [SpecSetting.of(2, 2), SpecSetting.of(8, 7)]
    return profile.predict(*asked, concurrency=[1, 30, MOST], solver="analytic")


@pytest.fixture(scope="module")
def data(profile: Profile, curve: Curve) -> dict[str, Any]:
    return slider_data(profile, curve, profile.setup.workload)


def interpolated(data: dict[str, Any], grid: dict[str, Any], accept: float, clients: int) -> float:
    """Bilinear in logarithms, by numpy."""
    rows = np.log(np.array(grid["output_tps"]))
    at = [np.interp(np.log(clients), np.log(data["clients"]), row) for row in rows]
    return float(np.exp(np.interp(np.log(accept), np.log(grid["accept_length"]), at)))


def test_intervals_are_those_of_the_report(data: dict[str, Any], curve: Curve) -> None:
    for grid, series in zip((data["plain"], *data["settings"]), curve.series, strict=True):
        for point in series.points:
            low, high = (end[data["clients"].index(point.concurrency)] for end in grid["interval"])
            assert low * point.output_tps == pytest.approx(point.output_tps_low, rel=1e-4)
            assert high * point.output_tps == pytest.approx(point.output_tps_high, rel=1e-4)
        assert all(low < 1 < high for low, high in zip(*grid["interval"], strict=True))


def test_off_the_grid_it_is_within_two_per_cent_of_the_closed_form(
    profile: Profile, curve: Curve, data: dict[str, Any]
) -> None:
    clients = (3, 24, 41, 129, EVERY, EVERY + 1, 300, 411, 700, 1234, MOST)
    plain, *plans = plans_of(profile, curve)
    for plan, grid in zip(plans, data["settings"], strict=True):
        found = gain_map(profile, plan, Question(concurrency=clients), rows=12)
        inside = set(found.accept_length.round(6)) & set(np.round(grid["accept_length"], 6))
        assert len(inside) == 2  # the ends alone
        for i, accept in enumerate(found.accept_length):
            for j, load in enumerate(clients):
                read = interpolated(data, grid, accept, load)
                assert read == pytest.approx(found.output_tps[i, j], rel=0.02), (accept, load)
    loads = tuple(Load("closed_loop", c) for c in clients)
    base = Grid((plain,), loads, profile.setup.workload).solve(profile).output_tps[0]
    for j, load in enumerate(clients):
        assert interpolated(data, data["plain"], 1.0, load) == pytest.approx(base[j], rel=0.02)


def test_where_the_profile_stands_it_is_the_curve(data: dict[str, Any], curve: Curve) -> None:
    for grid, series in zip(data["settings"], curve.series[1:], strict=True):
        assert grid["expected"] == pytest.approx(series.points[0].accept_length)
        for j, point in enumerate(series.points):
            read = interpolated(data, grid, grid["expected"], point.concurrency)
            assert read == pytest.approx(point.output_tps, rel=0.003)
            plain = interpolated(data, data["plain"], 1.0, point.concurrency)
            assert plain == pytest.approx(curve.series[0].points[j].output_tps, rel=0.003)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, MOST))
def test_more_accepted_is_never_slower(
    data: dict[str, Any], one: float, other: float, clients: int
) -> None:
    for grid in data["settings"]:
        least, most = grid["accept_length"][0], grid["accept_length"][-1]
        low, high = sorted(least + share * (most - least) for share in (one, other))
        slow, fast = (interpolated(data, grid, accept, clients) for accept in (low, high))
        assert slow <= fast * (1 + 1e-4)  # five digits


def test_requests_are_those_of_the_report(profile: Profile, curve: Curve) -> None:
    asked = Question(concurrency=(1, 30), input_len=30000, output_len=100)
    long = asked.workload(profile.setup.workload)
    grid = slider_data(profile, curve, long)["settings"][1]
    plan = plans_of(profile, curve)[2]
    found = gain_map(profile, plan, asked, rows=9)
    assert grid["output_tps"][3][29] == pytest.approx(found.output_tps[3, 1], rel=1e-4)


def test_one_client_no_speculation_and_a_perfect_drafter(profile: Profile) -> None:
    work = profile.setup.workload
    alone = profile.predict(topk=1, num_steps=2, concurrency=[1], solver="analytic")
    assert slider_data(profile, alone, work)["clients"] == [1, 2]
    perfect = load_server(None, ("accept_length=2.9999999",)).profile
    grid = slider_data(perfect, alone, work)["settings"][0]
    assert (np.diff(grid["accept_length"]) > 1e-5).all()
    assert len(grid["accept_length"]) == len(grid["output_tps"])
    none = Curve(alone.profile, 0, "analytic", alone.series[0].points)
    assert slider_data(profile, none, work)["settings"] == []


MOVES = [(0, 1.37, 7, 2.5), (1, 2.2, 77, 0.1), (2, 1.01, 300, 20), (3, 4.44, 1999, 3.35)]
"""Setting, accept length, clients, price."""

SCRIPT = """
const find = (id) => document.getElementById(id);
const cells = (row) =>
  [...find(row).querySelectorAll("td")].map((cell) => Number(cell.dataset.value));
const move = (id, value, kind) => {
  find(id).value = value;
  find(id).dispatchEvent(new Event(kind, { bubbles: true }));
};
result.start = { setting: find("whose").selectedOptions[0].text,
  accept: Number(find("accept").value), clients: Number(find("clients").value) };
result.seen = MOVES.map(([setting, accept, clients, price]) => {
  move("whose", setting, "change");
  move("accept", accept, "input");
  move("clients", clients, "input");
  move("price", price, "input");
  return { with: cells("with"), without: cells("without"), said: find("with").innerText };
});
const ranges = [...document.querySelectorAll("#sliders input")];
result.named = ranges.every((r) => r.labels.length === 1 && r.getAttribute("aria-valuetext"));
result.reached = ranges.every((r) => { r.focus(); return document.activeElement === r; });
result.thumb = Math.min(...ranges.map((r) => r.getBoundingClientRect().height));
result.fits = ranges.every((r) => r.getBoundingClientRect().right <= window.innerWidth);
""".replace("MOVES", json.dumps(MOVES))


@pytest.fixture(scope="module")
def page(profile: Profile, curve: Curve) -> str:
    asked = tuple(dict.fromkeys(s.points[0].setting.with_scheduler("auto") for s in curve.series))
    question = Question(tuple(s for s in asked if s.speculates), (1, 30, MOST), max_steps=1)
    return report_html(profile, curve, verdict(profile, question), ["c"])


def test_the_script_is_small_and_what_a_strict_policy_allows(page: str) -> None:
    script = Path("specsim/report/sliders.js").read_text(encoding="utf-8")
    assert len(script.splitlines()) < 120
    assert not re.search(r"\beval\b|new Function|innerHTML|document\.write|import", script)
    assert not re.search(r"<[a-z][^>]*\son[a-z]+=", page)  # handlers in attributes
    assert 'name="viewport"' in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_computes_as_python_does(
    page: str, data: dict[str, Any], curve: Curve, tmp_path: Path
) -> None:
    result = probed(page, SCRIPT, tmp_path, size="500,900")
    start = next(g for g in data["settings"] if g["name"] == result["start"]["setting"])
    assert result["start"]["accept"] == pytest.approx(start["expected"], abs=0.006)
    assert result["start"]["clients"] == 30
    for (setting, accept, clients, price), seen in zip(MOVES, result["seen"], strict=True):
        grid = data["settings"][setting]
        tps = interpolated(data, grid, accept, clients)
        plain = interpolated(data, data["plain"], 1.0, clients)
        cost = 1e6 * price * data["gpus"] / 3600
        assert seen["with"] == pytest.approx([tps, tps / plain - 1, cost / tps], rel=1e-6)
        assert seen["without"] == pytest.approx([plain, 0, cost / plain], rel=1e-6)
        assert grid["name"] in seen["said"]
        assert f"{100 * (tps / plain - 1):+.1f} %" in seen["said"]
        assert re.search(r"\(\d[\d.]*\u2013\d[\d.]*\)", seen["said"])
    assert result["named"]
    assert result["reached"]
    assert result["fits"]
    assert result["thumb"] >= 24


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_where_nothing_speculates_there_are_no_sliders(tmp_path: Path) -> None:
    file, server = tmp_path / "r.html", ["--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
    words = ["--engine", "vllm", "--solver", "analytic", "--concurrency", "1,8"]
    assert run(["report", *server, *words, "-o", str(file)]) == 0
    assert '<section hidden=""' in opened(file.as_uri(), tmp_path)
