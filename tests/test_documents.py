"""The JSON documents: keys in the order of the contract, strict types, stable bytes."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.curve import Curve
from specsim.documents import document
from specsim.logs import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.document import log_json
from specsim.logs.entry import Diagnosis
from specsim.profile import load_profile

ROOT = Path(__file__).resolve().parent.parent

# Keys as the contract writes them.
CURVE_KEYS = ["schema", "profile", "seed", "solver", "rows", "notes"]
CURVE_ROW_KEYS = [
    *("role", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler", "engine"),
    *("engine_version", "allowed", "what_if", "reason", "saturated", "concurrency"),
    *(
        "input_len",
        "output_len",
        "context_len",
        "output_tps",
        "output_tps_low",
        "output_tps_high",
        "speedup",
    ),
    *("accept_length", "batch_size", "round_time_s", "tpot_s", "tpot_p50_s", "tpot_p99_s"),
    *("ttft_s", "ttft_p50_s", "ttft_p99_s", "evidence", "limit"),
]
LOG_FILE_KEYS = [
    *("path", "format", "engine", "engine_version", "settings", "concurrency", "batch_size"),
    *("output_tps", "accept_length", "survival", "tpot_s", "ttft_s", "round_time_s", "windows"),
    *("rows", "diagnoses", "unread_lines"),
]


@pytest.fixture(scope="module")
def curve() -> Curve:
    return load_profile().predict(topk=2, num_steps=2, concurrency=[1, 30], solver="analytic")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The JSON Schema of a curve, as the reference shows it."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.json_schema("specsim.curve", "Curve")
    return found


def log(**more: Any) -> dict[str, Any]:
    entry = LogEntry(
        path="server.log",
        format="sglang",
        engine="sglang",
        settings={"tp": 8, "algorithm": "EAGLE3", "topk": 1, "quantisation": None},
        rows=(LogRow(batch_size=8.0, output_tps=800.0, survival=(0.6, 0.4), cuda_graph=True),),
        windows=WindowCount(read=5, used=4, dropped={"idle": 1}),
        diagnoses=(Diagnosis(code="capped", message="48 running, more queued"),),
    )
    found: dict[str, Any] = json.loads(log_json([replace(entry, **more)]))
    return found


def test_curve_keys_stand_in_the_order_of_the_contract(curve: Curve) -> None:
    content = json.loads(curve.to_json())
    assert content["schema"] == "specsim.curve/2"
    assert list(content) == CURVE_KEYS
    assert list(content["rows"][0]) == CURVE_ROW_KEYS


def test_log_keys() -> None:
    content = log()
    assert content["schema"] == "specsim.log/1"
    (entry,) = content["files"]
    assert list(entry) == LOG_FILE_KEYS
    assert list(entry["settings"]) == [
        *("algorithm", "topk", "num_steps", "num_draft_tokens", "tp", "quantisation"),
    ]
    assert entry["rows"][0]["survival"] == [0.6, 0.4]
    assert set(LOG_FILE_KEYS[5:14]) < set(entry["rows"][0])


def test_timings_of_a_trace_follow_only_where_there_are_some() -> None:
    (entry,) = log(timings=(Timing(phase="verify", seconds=0.02, name="step"),))["files"]
    assert list(entry) == [*LOG_FILE_KEYS, "timings"]


def test_a_curve_is_what_its_schema_says(curve: Curve, schema: dict[str, Any]) -> None:
    content = json.loads(curve.to_json())
    jsonschema.validate(content, schema)
    assert list(schema["properties"]) == CURVE_KEYS
    assert list(schema["$defs"]["CurvePoint"]["properties"]) == CURVE_ROW_KEYS


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": "guessed"},
        {"evidence": None},
        {"limit": "luck"},
        {"role": "best"},
        {"scheduler": "auto"},
        {"topk": 2.5},
        {"topk": "2"},
        {"allowed": 1},
        {"output_tps": "92.7"},
        {"extra_key": 1},
    ],
)
def test_the_schema_is_strict(
    curve: Curve, schema: dict[str, Any], changes: dict[str, Any]
) -> None:
    content = json.loads(curve.to_json())
    content["rows"][0] |= changes
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)


@pytest.mark.parametrize("key", CURVE_ROW_KEYS)
def test_no_key_of_a_curve_row_may_be_left_out(
    curve: Curve, schema: dict[str, Any], key: str
) -> None:
    content = json.loads(curve.to_json())
    del content["rows"][0][key]
    with pytest.raises(jsonschema.ValidationError, match="required property"):
        jsonschema.validate(content, schema)


def written(value: float) -> Any:
    return json.loads(document("specsim.test/1", {"value": value}))["value"]


def test_floats_are_rounded_to_ten_digits() -> None:
    # 0.1 + 0.2 differs from 0.3 in the 17th digit, a third in binary does not end
    assert written(0.1 + 0.2) == 0.3
    assert written(1 / 3) == 0.3333333333
    assert math.copysign(1, written(-0.0)) == 1


def test_what_is_not_finite_is_null(curve: Curve) -> None:
    assert written(math.nan) is written(math.inf) is None
    point = replace(curve.rows[0], tpot_s=math.nan)
    content = json.loads(replace(curve, rows=(point,)).to_json())
    assert content["rows"][0]["tpot_s"] is None


@settings(deadline=None)
@given(st.floats(min_value=0, allow_infinity=False))
def test_a_rounded_float_is_within_half_a_unit_of_its_tenth_digit(value: float) -> None:
    # half a unit of the tenth of ten digits is at most 5e-10 of the value; 1e-320 has fewer digits
    assert abs(written(value) - value) <= 5.001e-10 * value + 5e-324
