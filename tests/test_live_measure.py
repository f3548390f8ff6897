"""Loads on a made-up endpoint: cells, caps, interrupts, and the loop from plan to profile."""

from __future__ import annotations

import tomllib
from pathlib import Path

import live_server as made
import pytest
from live_server import Answer, Endpoint, serving

from specsim.cli.main import run
from specsim.live.fetch import KEY
from specsim.observations import read_observations

SETTING = ("--algorithm", "EAGLE3", "--steps", "3")
SMALL = ("--concurrency", "1,3", "--input-len", "40", "--output-len", "20")


def test_a_cell_per_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 tokens in 40 ms after 20 ms: TPOT at least 2 ms, TTFT at least 24 ms, and 2 a round."""
    monkeypatch.setenv(KEY, "sk-1")
    endpoint, target = Endpoint(), tmp_path / "cells.csv"
    with serving(endpoint.routes) as (url, asked):
        assert run(["measure", url, *SETTING, *SMALL, "-o", str(target)]) == 0
    one, three = read_observations(target)
    assert (one.concurrency, three.concurrency) == (1, 3)
    assert (one.num_requests, three.num_requests) == (4, 12)
    assert endpoint.most == 3
    for row in (one, three):
        assert row.kind == "closed_loop"
        assert row.setting.key == (3, 1, 4)
        assert row.accept_length == pytest.approx(2.0)
        assert row.output_len == 20
        assert row.input_len == pytest.approx(40)  # two tokens a word, which the first answer told
        assert 0.024 <= row.ttft_s < 2
        assert 0.0018 <= row.tpot_s < 0.2
        assert row.output_tps <= row.concurrency * 20 / 0.06
    assert all(body["ignore_eos"] and body["temperature"] == 0 for body in endpoint.bodies)
    assert {key for _, _, key in asked} == {"Bearer sk-1"}
    assert len({str(body["prompt"]) for body in endpoint.bodies}) == 17  # no prefix is shared


def test_caps_leave_loads_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "cells.csv"
    with serving(Endpoint(speculates=False).routes) as (url, _):
        assert run(["measure", url, *SMALL, "--max-requests", "6", "-o", str(target)]) == 0
    assert [row.concurrency for row in read_observations(target)] == [1]
    said = capsys.readouterr().err
    assert "3 clients: not measured" in said
    assert "prompts are random words" in said


def test_prompts_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, target = tmp_path / "prompts.txt", str(tmp_path / "cells.csv")
    endpoint = Endpoint(speculates=False)
    for text, code in (("one\n\ntwo\n", 0), ("\n \n", 2)):
        prompts.write_text(text)
        with serving(endpoint.routes) as (url, _):
            assert run(["measure", url, *SMALL, "--prompts", str(prompts), "-o", target]) == code
    assert {body["prompt"] for body in endpoint.bodies} == {"one", "two"}
    said = capsys.readouterr().err
    assert "random words" not in said
    assert "is empty" in said


def test_an_interrupt_keeps_whole_cells(tmp_path: Path) -> None:
    """Ctrl-C while three clients wait: the cell of one client is written."""
    endpoint, target = Endpoint(speculates=False), tmp_path / "cells.csv"
    patched = pytest.MonkeyPatch()

    def interrupt(done: int, total: int) -> None:
        if total == 12:
            raise KeyboardInterrupt

    class Bar:
        def __enter__(self) -> object:
            return interrupt

        def __exit__(self, *_: object) -> None: ...

    patched.setattr("specsim.cli.output.progress_bar", lambda _: Bar())
    with patched.context(), serving(endpoint.routes) as (url, _):
        assert run(["measure", url, *SMALL, "-o", str(target)]) == 130
    patched.undo()
    assert [row.concurrency for row in read_observations(target)] == [1]
    assert len(endpoint.bodies) <= 5 + 3 + 3


def test_an_endpoint_that_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def routes() -> dict[str, Answer]:
        return {**Endpoint().routes(), "/v1/completions": (400, {}, b"no ignore_eos here")}

    with serving(routes) as (url, _):
        assert run(["measure", url, *SETTING, "-o", str(tmp_path / "cells.csv")]) == 2
    assert "status 400" in capsys.readouterr().err
    assert not (tmp_path / "cells.csv").exists()


@pytest.mark.parametrize("body", [b"<html>", b"data: [DONE]\n\n", b'data: {"usage": 3}\n\n'])
def test_a_stream_that_says_nothing(body: bytes, tmp_path: Path) -> None:
    routes = {**Endpoint().routes(), "/v1/completions": body}
    with serving(lambda: routes) as (url, _):
        assert run(["measure", url, *SETTING, "-o", str(tmp_path / "cells.csv")]) == 2


def test_a_setting_that_nobody_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda: {"/v1/models": made.models("llamacpp")}) as (url, _):
        assert run(["measure", url, "-o", str(tmp_path / "cells.csv")]) == 2
    assert "--algorithm none" in capsys.readouterr().err


def test_plan_measure_calibrate_recommend(tmp_path: Path) -> None:
    """The loop: what the plan asks for is measured, and the cells make a profile."""
    plan, cells, profile = (tmp_path / name for name in ("plan.toml", "cells.csv", "my.toml"))
    server = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", "1", "--engine", "vllm")
    asked = ("--concurrency", "1,2", "--input-len", "30", "--output-len", "10")
    assert run(["plan", *server, *asked, "-o", str(plan)]) == 0
    said = tomllib.loads(plan.read_text())
    assert (said["concurrency"], said["input_len"], said["output_len"]) == ([1, 2], 30, 10)
    assert said["sweep"]
    with serving(Endpoint().routes) as (url, _):
        known = (*SETTING, "-o", str(cells))
        assert run(["measure", url, "--plan", str(plan), *known]) == 0
        assert [row.concurrency for row in read_observations(cells)] == [1, 2]
        given = ("--gpu", "h100-sxm", "--tp", "1", *SETTING, "-o", str(profile))
        assert run(["calibrate", str(cells), url, *given]) == 0
    assert run(["recommend", "-p", str(profile), "--concurrency", "1,2"]) == 0
