"""Lines of the newest releases, as tests/fixtures/engines/make.py makes them from their wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.logs import LogEntry, read_file

FOLDER = Path(__file__).parent / "fixtures" / "engines"
LOGS = sorted(FOLDER.glob("*.txt"))
SCRAPES = sorted(FOLDER.glob("*.prom"))

SGLANG = {
    "model": "org/model-70b",
    "tp": 8,
    "algorithm": "EAGLE3",
    "draft": "org/model-70b-eagle3",
    "num_steps": 3,
    "topk": 2,
    "num_draft_tokens": 6,
    "max_running_requests": 32,
    "cuda_graph_max_bs": 32,
    "chunked_prefill_size": 8192,
    "mem_fraction_static": 0.86,
    "attention_backend": "flashinfer",
    "kv_tokens": 190_000,
    "kv_dtype": "fp8_e4m3",
    "page_size": 1,
    "context_len": 32768,
}
VLLM = {
    "model": "org/model-70b",
    "tp": 4,
    "algorithm": "EAGLE3",
    "draft": "org/eagle3",
    "num_steps": 3,
    "num_draft_tokens": 4,
    "max_running_requests": 32,
    "cuda_graph_max_bs": 32,
    "chunked_prefill_size": 8192,
    "mem_fraction_static": 0.92,
    "kv_tokens": 190_016,
    "kv_dtype": "fp8",
    "context_len": 32768,
    "disable_cuda_graph": False,
}


def read(path: Path) -> LogEntry:
    (entry,) = read_file(path)
    return entry


def test_there_are_six_releases_of_each() -> None:
    for engine in ("sglang", "vllm"):
        assert len([path for path in LOGS if path.name.startswith(engine)]) == 6
    assert [path.stem for path in LOGS] == [path.stem for path in SCRAPES]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_a_release_is_read_completely(path: Path) -> None:
    entry = read(path)
    engine, version = path.stem.split("-")
    expected = SGLANG if engine == "sglang" else VLLM
    assert {key: entry.settings.get(key) for key in expected} == expected
    assert entry.unread == {}
    assert entry.engine == engine
    if engine == "vllm":
        assert entry.engine_version == version
    (row,) = entry.rows
    assert (row.batch_size, row.accept_length) == (8.0, 2.6)
    assert row.output_tps == pytest.approx(602.0)
    assert row.round_time_s == pytest.approx(2.6 * 8 / 602.0)
    if engine == "sglang":
        assert row.cuda_graph is True


@pytest.mark.parametrize("path", SCRAPES, ids=lambda path: path.stem)
def test_metrics_of_a_release_are_read(path: Path) -> None:
    entry = read(path)
    (row,) = entry.rows
    assert row.accept_length == pytest.approx(2.6)
    # SGLang to 0.5.21 has no time per token of a request, only gaps that it spreads over tokens
    assert (row.tpot_s or row.itl_s) == pytest.approx(0.0133)
    if path.stem.startswith("sglang"):
        assert row.output_tps == 602.0


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (
            "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 900, K size: 1.00 GB",
            "kv_tokens",
            900,
        ),
        (
            "Capture target verify NPU graph end. bs=[1, 2, 4], elapsed=1.00 s",
            "cuda_graph_max_bs",
            4,
        ),
        ("server_args={'tp_size': 8, 'attn_dp_size': 4, 'dp_size': 1}", "dp", 4),
        ("server_args={'dp_size': 2, 'enable_dp_attention': False}", "replicas", 2),
        (
            "server_args={'speculative_algorithm': 'DSPARK', 'speculative_num_steps': 1, "
            "'speculative_num_draft_tokens': 8}",
            "num_steps",
            7,
        ),
        (
            "server_args={'cuda_graph_config': {'decode': {'backend': 'disabled'}}}",
            "disable_cuda_graph",
            True,
        ),
        ("server_args={'tp_size': 8, 'x': <object>, 'page_size': 64}", "page_size", 64),
    ],
)
def test_start_up_lines_of_other_servers(
    line: str, key: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "log.txt"
    decode = (FOLDER / "sglang-0.5.23.txt").read_text().splitlines()[6]
    path.write_text(f"[2026-01-01 00:00:00 TP0] {line}\n{decode}\n")
    assert read(path).settings[key] == value


def test_a_window_pool_is_not_the_pool(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    decode = (FOLDER / "sglang-0.5.23.txt").read_text().splitlines()[6]
    pool = "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 900, K size: 1.00 GB"
    path.write_text(f"[2026-01-01 00:00:00 TP0] {pool}\n{decode}\n")
    assert "kv_tokens" not in read(path).settings
