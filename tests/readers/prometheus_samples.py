"""Answers of Prometheus' API with numbers of our own: 600 tok/s at 8 running, tau 2.5."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

STEP_S = 15
_VLLM = {  # per second; by position below
    "vllm:generation_tokens_total": 600.0,
    "vllm:spec_decode_num_drafts_total": 240.0,
    "vllm:spec_decode_num_draft_tokens_total": 720.0,
    "vllm:spec_decode_num_accepted_tokens_total": 360.0,
}
_POSITIONS = (180.0, 120.0, 60.0)
_LABELS = {"instance": "10.0.0.4:8000", "job": 'v"llm', "model_name": "org/m", "engine": "0"}


def series(name: str, values: Sequence[float], **labels: str) -> dict[str, object]:
    """A series of a range: a value for each step."""
    points = [[1762938000 + STEP_S * i, f"{value:g}"] for i, value in enumerate(values)]
    return {"metric": {"__name__": name, **_LABELS, **labels}, "values": points}


def counter(per_s: float, count: int) -> list[float]:
    return [per_s * STEP_S * i for i in range(1, count + 1)]


def vllm(running: Sequence[float]) -> list[dict[str, object]]:
    """What a server counts at so many running requests."""
    n, by_position = len(running), "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    found = [series("vllm:num_requests_running", running)]
    found += [series(name, counter(per_s, n)) for name, per_s in _VLLM.items()]
    for at, per_s in enumerate(_POSITIONS):
        found.append(series(by_position, counter(per_s, n), position=str(at)))
    return found


def answer(result: Sequence[Mapping[str, object]], kind: str = "matrix") -> str:
    data = {"resultType": kind, "result": list(result)}
    return json.dumps({"status": "success", "data": data}) + "\n"


RANGE = answer(vllm([8.0] * 5))
GAUGES = {
    "sglang:num_running_reqs": 16,
    "sglang:gen_throughput": 1200.0,
    "sglang:spec_accept_length": 2.4,
    "sglang:num_queue_reqs": 0,
}
SGLANG_RANGE = answer([series(name, [value] * 5) for name, value in GAUGES.items()])
API = [RANGE, SGLANG_RANGE]
