"""Commands that are given the URL of a running server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import live_server as made
import pytest
from live_server import serving
from test_live import watched

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.log_setup import Stated
from specsim.calibrate.sources import read_sources
from specsim.cli.live import _predicted
from specsim.cli.main import run
from specsim.live.watch import Watch
from specsim.observations import read_observations
from specsim.profile import load_profile
from specsim.profile.uncalibrated import MODEL_ERROR
from specsim.setting import SpecSetting


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsim.live.watch.LOOK_S", 0.1)


def test_from_a_url_to_a_recommendation(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda: made.sglang()) as (url, _):
        code = run(["recommend", url, "--gpu", "h100-sxm", "--concurrency", "1,8", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    answer = json.loads(out)
    assert {launch["engine_version"] for launch in answer["launch"]} == {"0.5.9"}
    assert [load["concurrency"] for load in answer["loads"]] == [1, 8]


def test_an_idle_server_gets_a_recommendation_by_its_accept_length(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(lambda: made.sglang(running=0.0)) as (url, _):
        code = run(["recommend", url, "--gpu", "h100-sxm", "--concurrency", "1", "--full"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "is idle" in " ".join(out.split())


def test_acceptance_alone_leaves_the_error_of_a_server_that_nobody_measured() -> None:
    with serving(lambda: made.sglang(running=0.0)) as (url, _):
        found = read_sources([url], Stated(gpu="h100-sxm"))
    assert found.name == "llama-3.1-8b-1x-h100-sxm-sglang"
    (row,) = found.observations
    assert (row.accept_length, row.output_tps) == (2.4, None)
    assert fit_profile(found.setup, found.observations).profile.fit.model_error == MODEL_ERROR


def test_what_a_server_does_not_say_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda: made.sglang()) as (url, _):
        assert run(["recommend", url]) == 2
    assert "--gpu" in capsys.readouterr().err


def test_calibrate_takes_a_url(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{tmp_path}/live.toml"
    with serving(lambda: made.sglang()) as (url, _):
        assert run(["calibrate", url, "--gpu", "h100-sxm", "-o", target]) == 0
    assert run(["recommend", "-p", target, "--concurrency", "8"]) == 0


class Screen(io.StringIO):
    """A terminal that keeps what it is shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_ends_with_an_interrupt_and_writes_its_rows(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows, then ctrl-C; a terminal saw the table beside what the profile predicts."""
    screen, target, seen = Screen() if terminal else io.StringIO(), tmp_path / "now.csv", []
    monkeypatch.setattr("sys.stdout", screen)
    window = Watch.window

    def interrupted(self: Watch, seconds: float) -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(seconds)
        window(self, seconds)

    monkeypatch.setattr(Watch, "window", interrupted)
    profile = ("-p", "kimi-k2.5-int4-8x-rtx-pro-6000")
    with serving(lambda: made.sglang()) as (url, _):
        argv = ["read", url, "--watch", "0.2s", *profile, "--csv", "-o", str(target)]
        assert run(argv) == 0
    assert seen == [0.2, 0.2]
    (row,) = read_observations(target)
    assert (row.concurrency, row.setting.key) == (8, (3, 1, 4))
    assert row.output_tps == pytest.approx(900)
    assert ("predicted" in screen.getvalue()) == terminal


def test_a_profile_predicts_what_runs() -> None:
    entry = watched(lambda _: made.sglang())
    profile = load_profile()
    text = _predicted(profile, entry, entry.rows[0])
    curve = profile.predict(
        SpecSetting.of(1, 3, 4, "EAGLE3"), concurrency=[8], solver="analytic", what_if=True
    )
    assert float(text) == pytest.approx(curve.rows[-1].output_tps, rel=0.01)
