"""Validation: rows, summary, sign of the gain, leaving out, the JSON document."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pytest

from specsim.calibrate.validate import validate
from specsim.errors import CalibrationError
from specsim.observations import Observation, observations_from_rows
from specsim.profile import Profile, load_profile


@lru_cache(maxsize=1)
def profile() -> Profile:
    return load_profile("kimi-k2.6-8x-rtx-pro-6000")


def row(algorithm: str, concurrency: int, tps: float, **more: object) -> dict[str, object]:
    n = 1 if algorithm == "none" else 4
    return {
        "kind": "steady_decode",
        "algorithm": algorithm,
        "topk": 1,
        "num_steps": n - 1,
        "num_draft_tokens": n,
        "scheduler": "overlap",
        "concurrency": concurrency,
        "context_len": 0.0,
        "window_s": 30.0,
        "output_tps": tps,
        **more,
    }


def rows(*cells: dict[str, object]) -> tuple[Observation, ...]:
    return observations_from_rows(list(cells)).rows


def test_summary_is_what_the_rows_say() -> None:
    cells = rows(row("none", 1, 91.4), row("none", 2, 200.0), row("EAGLE3", 1, 110.1))
    result = validate(profile(), cells)
    errors = np.array([r.error for r in result.rows])
    assert result.mape == pytest.approx(np.abs(errors).mean())
    assert result.median_ape == pytest.approx(np.median(np.abs(errors)))
    assert result.worst == 1  # 200 tok/s at two clients is far from what the server does
    assert not result.rows[1].inside
    assert result.coverage == pytest.approx(2 / 3)
    for r in result.rows:
        assert r.low < r.predicted < r.high


def test_sign_counts_only_gains_beyond_5_percent() -> None:
    def sign(none: float, speculating: float) -> float | None:
        cells = rows(row("none", 1, none), row("EAGLE3", 1, speculating))
        return validate(profile(), cells).sign_accuracy

    assert sign(91.4, 110.1) == 1.0
    assert sign(110.1, 91.4) == 0.0
    assert sign(100.0, 103.0) is None
    assert validate(profile(), rows(row("EAGLE3", 1, 110.0))).sign_accuracy is None


def test_times_are_compared_as_times() -> None:
    cell = row("none", 1, 0.0) | {"tpot_s": 0.0109}
    del cell["output_tps"]
    only = validate(profile(), rows(cell)).rows[0]
    assert only.quantity == "tpot_s"
    assert only.predicted == pytest.approx(0.0109, rel=0.05)  # 91.4 tok/s at one client


def test_rows_without_a_comparable_number_are_noted_or_refused() -> None:
    silent = row("EAGLE3", 1, 0.0, accept_length=2.2)
    del silent["output_tps"]
    result = validate(profile(), rows(row("none", 1, 91.4), silent))
    assert len(result.rows) == 1
    assert "1 rows" in result.notes[0]
    with pytest.raises(CalibrationError, match="none measures"):
        validate(profile(), rows(silent))


def test_an_unknown_dataset_is_predicted_with_the_first_acceptance() -> None:
    known = validate(profile(), rows(row("EAGLE3", 8, 507.9))).rows[0]
    other = validate(profile(), rows(row("EAGLE3", 8, 507.9, dataset="poems"))).rows[0]
    assert other.predicted == pytest.approx(known.predicted, rel=1e-9)


def test_leaving_out_predicts_every_row_once() -> None:
    cells = rows(row("none", 1, 91.4), row("none", 16, 641.8), row("EAGLE3", 1, 110.1))
    calls: list[tuple[int, int]] = []
    result = validate(
        profile(), cells, "concurrency", lambda done, total: calls.append((done, total))
    )
    assert [r.observation for r in result.rows] == list(cells)
    assert calls == [(1, 2), (2, 2)]
    with pytest.raises(CalibrationError, match="only one"):
        validate(profile(), cells[:1], "setting")


def test_json_is_the_contract_and_the_same_bytes() -> None:
    cells = rows(row("none", 1, 91.4), row("EAGLE3", 1, 110.1))
    text = validate(profile(), cells).to_json()
    assert text == validate(profile(), cells).to_json()
    document = json.loads(text)
    assert document["schema"] == "specsim.validation/1"
    assert list(document) == ["schema", "rows", "summary", "notes"]
    assert list(document["summary"]) == [
        *("n", "mape", "median_ape", "worst", "coverage", "sign_accuracy"),
    ]
    assert list(document["rows"][0]) == [
        *("kind", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"),
        *("engine_version", "concurrency", "request_rate", "batch_size", "max_running_requests"),
        *("num_requests", "input_len", "output_len", "input_cached", "shared_prefix_len"),
        *("context_len", "window_s"),
        *("measured", "predicted", "low", "high", "error"),
    ]
    first = document["rows"][0]
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)
