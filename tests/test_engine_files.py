"""Tables that engines leave to the user, filled from a profile."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specsim.cli.main import run
from specsim.cost.rounds import OVERLAP, round_time
from specsim.decide.schedule import sps_table
from specsim.engine import engine_named
from specsim.errors import InputError
from specsim.profile import Profile, load_profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.question import Question
from specsim.server import setup_from_mapping
from specsim.setting import SpecSetting

WISH = Question(max_steps=7)


def dspark() -> Profile:
    return uncalibrated_profile(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "h200-sxm"},
                "model": {"id": "qwen3-8b"},
                "engine": {"name": "sglang", "version": "0.5.23"},
                "draft": {"id": "eagle3"},
                "current": {
                    "algorithm": "DSPARK",
                    "topk": 1,
                    "num_steps": 7,
                    "num_draft_tokens": 8,
                },
            }
        )
    )


def test_the_table_is_what_sglang_reads_and_what_rounds_cost() -> None:
    profile, chain = dspark(), SpecSetting("DSPARK", 1, 7, 8)
    table = json.loads(sps_table(profile, WISH))
    # what 0.5.23 dspark_sps.py checks
    assert set(table) == {
        *("bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds"),
    }
    assert table["bias_seconds"] > 0
    for probes, values in (("bs_probes", "alpha_seconds"), ("m_probes", "theta_seconds")):
        assert table[probes] == sorted(set(table[probes]))
        assert len(table[probes]) == len(table[values])
    work, cost = profile.setup.workload, profile.system().cost
    context = work.input_len.mean + work.output_len.mean / 2
    survival = profile.accept_tables([chain])[0].pooled_survival
    errors = []
    for batch in (1, 3, 16, 64, 200):
        for width in (2, 3, 8):
            additive = table["bias_seconds"] + sum(
                float(np.interp(at, table[probes], table[values]))
                for at, probes, values in (
                    (batch, "bs_probes", "alpha_seconds"),
                    (batch * width, "m_probes", "theta_seconds"),
                )
            )
            whole = round_time(
                *(cost, batch, width, batch * context),
                topk=7,
                draft_forwards=1,
                extend_tokens=batch * width,
                timeline=OVERLAP,  # as SGLang runs DSPARK
                committed=1 + survival[: width - 1].sum(),
            ).round_s
            errors.append(abs(additive / float(whole) - 1))
    # attention of a round goes with B n contexts, which no sum of B and B n holds exactly
    assert np.mean(errors) < 0.015
    assert max(errors) < 0.04


def test_other_servers_take_no_such_table() -> None:
    with pytest.raises(InputError, match="DSPARK"):
        sps_table(load_profile(), WISH)


def test_schedule_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sps.json"
    words = "schedule --load ramp:1..4@20s --repeats 1 --max-steps 3 --sps-table"
    server = "--model qwen3-8b --gpu h200-sxm --tp 1 --draft eagle3 --engine sglang"
    assert run([*words.split(), str(path), *server.split()]) == 2
    assert "DSPARK" in capsys.readouterr().err
    assert not path.exists()


def test_tensorrt_llm_takes_a_table_of_last_batches() -> None:
    syntax = engine_named("tensorrt-llm").schedule
    assert syntax is not None
    rows = ((1, 4), (5, 2), (9, 1), (33, 0))
    written = syntax.write(rows, 64)
    assert json.loads(written.config) == {"4": 4, "8": 2, "32": 1}
    (line,) = written.lines
    assert "max_draft_len: 4, draft_len_schedule: {4: 4, 8: 2, 32: 1}" in line
