"""Drafters as they run: K = 0, figures, commands, a head that is cut down."""

from __future__ import annotations

import json
import runpy
from typing import Any, get_args

import pytest
from test_drafters import LLAMA, ROOT, eagle, fitted, server

from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.main import run as command
from specsim.cost.forward import draft_forward_s
from specsim.engine.command import parse_command
from specsim.errors import InputError
from specsim.observations import observations_from_rows
from specsim.setting import Algorithm, SpecSetting

# --- K = 0 as a row


def test_zero_steps_have_rows_of_their_own() -> None:
    """Their time says what the loaded drafter costs, and nothing is accepted."""
    idle = eagle(num_steps=0, output_tps=90.0)
    del idle["accept_length"]
    (row,) = observations_from_rows([idle]).rows
    assert (row.accept_length, row.setting.drafts) == (1.0, False)
    profile = fitted(eagle(), idle)
    curve = profile.predict(SpecSetting.of(1, 0), concurrency=[1], solver="analytic")
    asked = next(s for s in curve.series if s.role == "asked")
    plain = next(s for s in curve.series if s.role == "baseline")
    assert asked.points[0].accept_length == 1.0
    assert asked.points[0].output_tps < 0.85 * plain.points[0].output_tps


# --- figures


def test_published_depths_and_rounds_are_met() -> None:
    figures = runpy.run_path(str(ROOT / "benchmarks" / "figures_drafters.py"))
    depth = figures["depth_errors"]()
    error = depth[["specsim", "decay", "textbook"]].abs().mean()
    assert error.specsim < figures["DEPTH_TARGET"]
    assert error.specsim < error.decay < error.textbook
    cost = figures["cost_table"]()
    held = cost[~cost.given]
    assert held["round_time_s error"].abs().max() < figures["COST_TARGET"]
    assert held["draft_time_s error"].abs().mean() < figures["COST_TARGET"] * 0.6


# --- on the command line


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    box = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", "1")
    shown = ("--solver", "analytic", "--concurrency", "1", "--json")
    assert command(["predict", *box, *words, *shown]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("algorithm", [a for a in get_args(Algorithm) if a not in ("none", "MTP")])
def test_every_algorithm_is_asked_with_its_own_drafter(
    algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--algorithm", algorithm, "--steps", "3", "--what-if")
    found = asked(capsys, *words, "--assume-accept-length", "1.5")
    (row,) = [r for r in found["rows"] if r["role"] == "asked"]
    assert row["accept_length"] == pytest.approx(1.5, abs=0.01)
    kind = "eagle3" if algorithm == "STANDALONE" else algorithm.lower().replace("_", "-")
    assert any(note.startswith(f"drafter {kind}:") for note in found["notes"])


def test_an_assumed_length_belongs_to_the_drafter_that_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--draft", "p-eagle", "--steps", "5", "--what-if", "--assume-accept-length", "2.9")
    (row,) = [r for r in asked(capsys, *words)["rows"] if r["role"] == "asked"]
    assert (row["algorithm"], row["accept_length"]) == ("P_EAGLE", pytest.approx(2.9, abs=0.01))


# --- a head that is cut down


def test_a_drafter_may_score_fewer_words() -> None:
    """FR-Spec: a quarter of the words is a quarter of the head, and a copy of it in memory."""
    whole, cut = server("eagle"), server("eagle", vocab=LLAMA.vocab // 4)
    assert whole.cost.draft is not None
    assert cut.cost.draft is not None
    read = [s.cost.draft.part.head_bytes for s in (whole, cut)]  # type: ignore[union-attr]
    assert read[1] == pytest.approx(read[0] / 4)
    copied = cut.cost.draft.weight_bytes_per_gpu - whole.cost.draft.weight_bytes_per_gpu
    assert copied == pytest.approx(read[1])
    saved = [float(draft_forward_s(s.cost, 1, 1000, 1)) for s in (whole, cut)]
    assert saved[0] - saved[1] == pytest.approx((read[0] - read[1]) / whole.cost.bandwidth)


@pytest.mark.parametrize(
    ("draft", "vocab", "words"),
    [
        ("eagle3", 16_000, "its own"),
        ("ngram", 16_000, "its own"),
        ("eagle", LLAMA.vocab + 1, "128256 words"),
        ("eagle", 0, "vocab"),
    ],
)
def test_a_head_that_cannot_be_cut(draft: str, vocab: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        server(draft, vocab=vocab)


def test_a_token_map_says_how_many_words() -> None:
    line = (
        "sglang serve --model meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm {} "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--speculative-token-map org/freq_32768.pt"
    )
    found = []
    for algorithm in ("EAGLE", "EAGLE3"):
        launch = parse_command(line.format(algorithm))
        assert launch is not None
        known = Known(dict(launch.settings), launch.engine, "0.5.19")
        setup = build_setup(known, Stated(gpu="h100-sxm"), (), drafts=True)
        found.append(setup.draft.vocab if setup.draft else 0)
    assert found == [32768, None]
