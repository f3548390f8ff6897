"""The JSON documents: keys in the order of the contract, strict types, stable bytes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from specsim.documents import (
    CurveDocument,
    CurveRow,
    Diagnosis,
    LogDocument,
    LogFile,
    LogRow,
    LogSettings,
    LogTiming,
    LogWindows,
    to_json,
)

# Keys as the contract writes them.
CURVE_KEYS = ["schema", "profile", "seed", "solver", "rows", "notes"]
CURVE_ROW_KEYS = [
    *("role", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler", "engine"),
    *("engine_version", "allowed", "what_if", "reason", "concurrency", "input_len", "output_len"),
    *("context_len", "output_tps", "output_tps_low", "output_tps_high", "speedup"),
    *("accept_length", "batch_size", "round_time_s", "tpot_s", "tpot_p50_s", "tpot_p99_s"),
    *("ttft_s", "ttft_p50_s", "ttft_p99_s", "evidence", "limit"),
]
LOG_FILE_KEYS = [
    *("path", "format", "engine", "engine_version", "settings", "concurrency", "batch_size"),
    *("output_tps", "accept_length", "survival", "tpot_s", "ttft_s", "round_time_s", "windows"),
    *("rows", "diagnoses", "unread_lines"),
]

CURVE_ROW: dict[str, Any] = {
    "role": "asked",
    "algorithm": "EAGLE3",
    "topk": 2,
    "num_steps": 2,
    "num_draft_tokens": 7,
    "scheduler": "sequential",
    "engine": "sglang",
    "engine_version": "0.5.9",
    "allowed": True,
    "what_if": False,
    "reason": None,
    "concurrency": 30,
    "input_len": 1024,
    "output_len": 512,
    "context_len": None,
    "evidence": "fitted",
    "limit": "verify",
    **dict.fromkeys(CURVE_ROW_KEYS[15:28], 0.5),
}


def curve(**changes: Any) -> CurveDocument:
    row = CurveRow(**(CURVE_ROW | changes))
    return CurveDocument(profile="founding", seed=0, solver="simulate", rows=(row,), notes=("a",))


def log() -> LogDocument:
    level = LogRow(batch_size=8.0, output_tps=800.0, survival=(0.6, 0.4), cuda_graph=True)
    return LogDocument(
        files=(
            LogFile(
                path="server.log",
                format="sglang",
                engine="sglang",
                settings=LogSettings(algorithm="EAGLE3", topk=1, tp=8, quantisation=None),
                batch_size=8.0,
                windows=LogWindows(read=5, used=4, dropped={"idle": 1}),
                rows=(level,),
                diagnoses=(Diagnosis(code="capped", message="48 running, more queued"),),
            ),
        )
    )


def test_curve_keys_stand_in_the_order_of_the_contract() -> None:
    content = json.loads(to_json(curve()))
    assert content["schema"] == "specsim.curve/1"
    assert list(content) == CURVE_KEYS
    assert list(content["rows"][0]) == CURVE_ROW_KEYS


def test_log_keys() -> None:
    content = json.loads(to_json(log()))
    assert content["schema"] == "specsim.log/1"
    (entry,) = content["files"]
    assert list(entry) == LOG_FILE_KEYS
    assert list(entry["settings"]) == [
        *("algorithm", "topk", "num_steps", "num_draft_tokens", "tp", "quantisation"),
    ]
    assert entry["rows"][0]["survival"] == [0.6, 0.4]
    assert set(LOG_FILE_KEYS[5:14]) < set(entry["rows"][0])


def test_timings_of_a_trace_follow_only_where_there_are_some() -> None:
    timing = dict.fromkeys(LogTiming.model_fields) | {"phase": "verify", "name": "step"}
    file = LogFile(path="x", format="trace", timings=(LogTiming(**(timing | {"seconds": 0.02})),))
    (entry,) = json.loads(to_json(LogDocument(files=(file,))))["files"]
    assert list(entry) == [*LOG_FILE_KEYS, "timings"]


@pytest.mark.parametrize("document", [curve(), log()])
def test_bytes_are_stable_and_read_back(
    document: CurveDocument | LogDocument,
) -> None:
    text = to_json(document)
    assert text.endswith("}\n")
    assert text.isascii()
    assert to_json(type(document).model_validate_json(text)) == text
    assert "NaN" not in text


def test_floats_are_rounded_to_ten_digits() -> None:
    # 0.1 + 0.2 differs from 0.3 in the 17th digit, a third in binary does not end
    row = json.loads(to_json(curve(speedup=0.1 + 0.2, tpot_s=1 / 3, ttft_s=-0.0)))["rows"][0]
    assert row["speedup"] == 0.3
    assert row["tpot_s"] == 0.3333333333
    assert math.copysign(1, row["ttft_s"]) == 1


def test_nan_is_null_and_infinity_is_refused() -> None:
    assert json.loads(to_json(curve(tpot_p99_s=math.nan)))["rows"][0]["tpot_p99_s"] is None
    with pytest.raises(ValidationError, match="finite number"):
        curve(tpot_p99_s=math.inf)


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": "guessed"},
        {"evidence": None},
        {"limit": "luck"},
        {"role": "best"},
        {"scheduler": "auto"},
        {"topk": 2.0},
        {"topk": "2"},
        {"topk": -1},
        {"allowed": 1},
        {"output_tps": "92.7"},
        {"output_tps": -1.0},
        {"extra_key": 1},
    ],
)
def test_types_are_strict(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        curve(**changes)


@pytest.mark.parametrize("key", CURVE_ROW_KEYS)
def test_no_key_of_a_curve_row_may_be_left_out(key: str) -> None:
    row = {name: value for name, value in CURVE_ROW.items() if name != key}
    with pytest.raises(ValidationError, match="Field required"):
        CurveRow(**row)


def test_documents_are_frozen() -> None:
    document = curve()
    with pytest.raises(ValidationError, match="frozen"):
        document.seed = 1  # type: ignore[misc]


@settings(deadline=None)
@given(st.floats(min_value=0, allow_infinity=False))
def test_a_rounded_float_is_within_half_a_unit_of_its_tenth_digit(value: float) -> None:
    written = json.loads(to_json(curve(output_tps=value)))["rows"][0]["output_tps"]
    # half a unit of the tenth of ten digits is at most 5e-10 of the value; 1e-320 has fewer digits
    assert abs(written - value) <= 5.001e-10 * value + 5e-324
