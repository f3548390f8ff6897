"""What keeps the command fast: what is imported when, and that the short ways end up the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import specsim
from specsim.engine import engine_named, engine_names
from specsim.errors import InputError, UnknownNameError
from specsim.predict import predict
from specsim.profile import load_profile, profile_names
from specsim.profile.other_engine import under_engine
from specsim.question import Question
from specsim.setting import SpecSetting

HEAVY = ("numpy", "pydantic", "pydantic_core", "rich", "scipy", "pandas", "matplotlib", "simpy")
MEMORY_KB = 300_000
MODULES, OF_A_FIT = 50, 75
"""The bars of the command; modules of ours that a prediction imports, and a log's calibration."""


def imported(code: str) -> tuple[set[str], int]:
    """Top-level modules that a process has imported at its end, and its peak memory in KB."""
    tail = (  # ru_maxrss would be the parent's: Linux keeps it over fork and exec
        "import json, sys; "
        "peak = next((int(l.split()[1]) for l in open('/proc/self/status') if 'VmHWM' in l), 0); "
        "sys.stderr.write(json.dumps([sorted({m.split('.')[0] for m in sys.modules}), peak]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    )
    modules, peak = json.loads(done.stderr)
    return set(modules), peak


def running(*argv: str) -> str:
    return f"from specsim.cli.main import run; assert run({list(argv)!r}) == 0"


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["predict", "--help"]])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    modules, _ = imported(running(*argv))
    assert not modules & set(HEAVY)


def test_import_specsim_imports_nothing() -> None:
    modules, _ = imported("import specsim")
    assert not modules & {*HEAVY, "click"}


def test_the_analytic_command_imports_numpy_click_and_rich_only() -> None:
    modules, peak = imported(
        running("predict", "--topk", "2", "--steps", "2", "--solver", "analytic")
    )
    assert modules & set(HEAVY) == {"numpy", "rich"}
    assert peak < MEMORY_KB


def modules_of_ours(*words: str) -> int:
    """How many files of ours a newcomer meets who follows a command."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "specsim", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return len({name for name in done.stderr.split() if name.split(".")[0] == "specsim"})


def test_a_prediction_runs_through_few_modules_of_ours() -> None:
    words = ("predict", "--topk", "2", "--steps", "2", "--solver", "analytic")
    assert modules_of_ours(*words) <= MODULES


def test_a_log_becomes_parameters_in_few_modules_of_ours(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "".join(
            f"[2026-01-02 03:04:{i:02d}] Decode batch, #running-req: 8, #token: 9000, token usage: "
            "0.12, cuda graph: True, gen throughput (token/s): 800.00, #queue-req: 0\n"
            for i in range(20)
        )
    )
    said = "--model llama-3.1-8b --gpu h100-sxm --tp 1 --input-len 1024 --output-len 256"
    target = str(tmp_path / "profile.toml")
    assert modules_of_ours("calibrate", str(log), *said.split(), "-o", target) <= OF_A_FIT


def test_the_simulated_command_stays_within_its_memory() -> None:
    modules, peak = imported(running("predict", "--topk", "2", "--steps", "2"))
    assert not modules & {"pandas", "matplotlib", "pydantic"}
    assert peak < MEMORY_KB


# --- the short ways


def test_three_lines() -> None:
    profile = specsim.load_profile()
    curve = profile.predict(topk=2, num_steps=2, concurrency=[1, 30], solver="analytic")
    frame = curve.to_frame()
    assert list(frame["role"].unique()) == ["baseline", "current", "asked", "alternative"]
    assert len(frame) == 8


def test_the_method_asks_what_the_function_asks() -> None:
    profile = load_profile()
    one, two = SpecSetting.of(2, 2), SpecSetting.of(1, 4)
    question = Question((two, one), (1, 30), engine_version="0.5.13")
    short = profile.predict(
        two, topk=2, num_steps=2, concurrency=(1, 30), solver="analytic", engine_version="0.5.13"
    )
    assert short == predict(profile, question, solver="analytic")


def test_the_method_refuses_half_a_setting() -> None:
    with pytest.raises(InputError, match="steps"):
        load_profile().predict(topk=2)
    with pytest.raises(TypeError, match="colour"):
        load_profile().predict(colour="red")


def test_public_names() -> None:
    for name in specsim.__all__:
        assert getattr(specsim, name) is not None
        assert name in dir(specsim)
    with pytest.raises(AttributeError, match="predictions"):
        specsim.predictions  # noqa: B018


def test_default_algorithm() -> None:
    for name in profile_names():
        assert load_profile(name).default_algorithm == "EAGLE3"


# --- another engine


def test_another_engine_keeps_the_hardware_and_drops_the_knobs() -> None:
    profile = load_profile()
    other, notes = under_engine(profile, "vllm")
    assert other.setup.engine.version == engine_named("vllm").newest
    assert other.setup.engine.tp == profile.setup.engine.tp
    assert other.setup.engine.mem_fraction_static is None
    assert other.setup.hardware == profile.setup.hardware
    assert other.parameters == profile.parameters
    assert "0.33.0, the newest whose rules are known" in notes[0]
    assert under_engine(profile, "sglang", "0.5.13") == (profile, ())
    assert under_engine(profile, "vllm", "0.20.2")[0].setup.engine.version == "0.20.2"


@pytest.mark.parametrize("engine", engine_names())
def test_every_engine_answers(engine: str) -> None:
    other, _ = under_engine(load_profile(), engine)
    curve = other.predict(SpecSetting.of(1, 3), concurrency=[1, 4], solver="analytic")
    assert all(point.output_tps > 0 for point in curve.rows)
    assert {point.engine for point in curve.rows} == {engine}


def test_unknown_engine() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tensorrt-llm'"):
        engine_named("tensorrt")
