"""The probe with torch, on a CPU with tiny shapes; skipped where torch is not installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsim.architecture import load_model
from specsim.cli.main import run
from specsim.errors import InputError
from specsim.probe import bench
from specsim.probe import device as devices
from specsim.probe import run as running
from specsim.probe.document import ProbeDocument, parse_probe
from specsim.probe.layers import draw_experts
from specsim.probe.rates import measure_allreduce
from specsim.probe.run import Request, probe
from specsim.probe.shapes import target_shape

WHY = "torch is not installed: pip install 'specsim-llm[probe]'"

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "vocab_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = pytest.importorskip("torch", reason=WHY)
    threads = module.get_num_threads()
    module.set_num_threads(1)  # a busy machine stalls the threads of tiny products
    monkeypatch.setattr(bench, "MOST_REPEATS", 4)
    monkeypatch.setattr(devices, "_cpu_cache", lambda: 1e5)  # else all layers would be built
    yield module
    module.set_num_threads(threads)


def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.mark.slow
def test_command_to_profile_to_prediction(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured on this machine, fitted, predicted: a whole step is at least its layers."""
    model, out = config(tmp_path), str(tmp_path / "probed")
    words = ["probe", "--model", model, "--draft", "eagle3", "-o", out, "--max-seconds", "60"]
    words += ["--device", "cpu", "--tokens", "1,2,64", "--context-len", "16", "--contexts", "32"]
    assert run([*words, "--max-memory-gb", "0.5"]) == 0
    assert "draft step" in capsys.readouterr().out
    (found,) = (parse_probe(json.loads((Path(out) / "probe.json").read_text()), out),)
    assert isinstance(found, ProbeDocument)
    assert found.target.built == found.target.whole == (6,)
    for point in found.target.points:
        assert point.seconds > 0
        assert point.fixed_s + 6 * point.layers_s[0] == pytest.approx(point.seconds, rel=0.01)
    assert {p.width for p in found.target.points} >= {1, 2}
    assert found.draft is not None
    assert found.extend is not None
    assert run([*words[:-2], "--seed", "1"]) == 2  # the folder is taken
    profile = str(tmp_path / "my.toml")
    engine = ["--engine", "sglang", "--engine-version", "0.5.9", "--model", model]
    log = tmp_path / "observations.csv"
    log.write_text(
        "kind,algorithm,topk,num_steps,num_draft_tokens,concurrency,context_len,output_tps\n"
        "steady_decode,none,1,0,1,4,16,900\n"
    )
    assert run(["calibrate", out, str(log), *engine, "-o", profile]) == 0
    capsys.readouterr()
    predict = ["predict", "-p", profile, "--algorithm", "none", "--solver", "analytic", "--json"]
    assert run([*predict, "--concurrency", "4"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["output_tps"] > 0


def tiny_request(name: str, **changes: Any) -> Request:
    """A library model with everything that costs memory cut down."""
    from dataclasses import replace

    stack = target_shape(load_model(name), 8)
    groups = tuple(
        replace(
            group,
            shape=replace(
                layer := group.shape,
                hidden=64,
                inputs=64,
                heads=4,
                kv_heads=4 if layer.latent else 2,
                head_dim=16,
                q_rank=32 if layer.q_rank else 0,
                kv_rank=32 if layer.kv_rank else 0,
                nope=16 if layer.nope else 0,
                rope=8 if layer.rope else 0,
                value=16 if layer.value else 0,
                window=min(layer.window, 8),
                ffn=min(layer.ffn, 64),
                experts=min(layer.experts, 16),
                expert_ffn=min(layer.expert_ffn, 32),
            ),
        )
        for group in stack.groups
    )
    small = replace(stack, groups=groups, vocab=256)
    fields: dict[str, Any] = {
        "tokens": (1, 8),
        "contexts": (32,),
        "context_len": 16,
        "gemm_tokens": (1, 8),
        "seconds": 60.0,
    }
    return Request(target=small, memory_bytes=3e8, layers=2, **{**fields, **changes})


@pytest.mark.parametrize("name", ["kimi-k2.5", "gpt-oss-20b", "qwen3-30b-a3b"])
def test_latent_windowed_and_routed_layers_run(name: str, torch: Any) -> None:
    request = tiny_request(name)
    found = probe(request, devices.choose_device("cpu"), version="0", date="2026-01-01")
    assert len(found.target.built) == len(request.target.groups)
    plain = {p.batch: p for p in found.target.points if p.width == 1 and p.context_len == 16}
    assert {1, 8} <= set(plain)
    experts = request.target.groups[0].shape.experts_per_token
    assert plain[1].experts == experts
    assert plain[8].experts > experts
    assert found.target.moe == "loop"
    assert found.device.kind == "cpu"
    assert not found.target.graphs


def test_grouped_experts_are_those_of_the_loop(torch: Any) -> None:
    """bf16 sums in another order: within 2 % of the largest."""
    from specsim.probe.bench import Filler
    from specsim.probe.layers import Layer, route

    layer = tiny_request("qwen3-30b-a3b").target.groups[0].shape
    cpu = torch.device("cpu")
    drawn = draw_experts(9, layer.experts, layer.experts_per_token, np.random.default_rng(0))
    routing = route(drawn, layer.experts, cpu)
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    results = []
    for kind in ("grouped", "loop"):
        built = Layer(layer, Filler(cpu, torch.bfloat16, 0), kind, 64)  # type: ignore[arg-type]
        try:
            results.append(built._experts(x, routing).float())
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            pytest.skip(f"this torch has no grouped product on a CPU: {error}")
    assert (results[0] - results[1]).abs().max() < 0.02 * results[1].abs().max()


def test_time_that_is_up_leaves_points_out(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "affordable", lambda tokens, done, left_s: tokens <= 4)
    request = tiny_request("qwen3-8b")
    found = probe(request, devices.choose_device("cpu"), version="0", date="2026-01-01")
    assert max(p.batch * p.width for p in found.target.points) == 4
    assert any("want of time" in note for note in found.notes)
    none = tiny_request("qwen3-8b", seconds=1e-3)
    monkeypatch.undo()
    with pytest.raises(InputError, match="max-seconds"):
        probe(none, devices.choose_device("cpu"), version="0", date="2026-01-01")


def test_filler_repeats_one_block(torch: Any) -> None:
    from specsim.probe.bench import BLOCK, Filler

    made = Filler(torch.device("cpu"), torch.float32, 5)(BLOCK + 10)
    assert bool((made[BLOCK:] == made[:10]).all())
    assert 0.015 < float(made.std()) < 0.025


@pytest.mark.slow
def test_two_processes_reduce(torch: Any) -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    found = measure_allreduce("cpu", 2, 20.0, (1024, 1 << 20))
    assert found is not None
    assert (found.backend, found.ranks, found.graphs) == ("gloo", 2, False)
    times = {p.size_bytes: p.seconds for p in found.points}
    assert times[1 << 20] > times[1024] > 0
