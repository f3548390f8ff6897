"""The probe without torch: shapes, grid, time limits; CUDA with a stand-in that records calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.architecture import load_draft, load_model, model_names
from specsim.cli.main import run
from specsim.errors import InputError
from specsim.probe import bench
from specsim.probe import device as devices
from specsim.probe.bench import MOST_REPEATS, Deadline, Sample, affordable, sample
from specsim.probe.grid import (
    Point,
    Timed,
    coarse_first,
    fitted_points,
    joined_points,
    layers_that_fit,
    target_points,
)
from specsim.probe.layers import draw_experts
from specsim.probe.rates import measure_allreduce, slowest
from specsim.probe.shapes import Layers, draft_shapes, target_shape
from specsim.sharding import shard

# --- shapes: the probe builds what the architecture library prices ---


@pytest.mark.parametrize("name", model_names())
def test_layers_have_the_parameters_of_the_architecture(name: str) -> None:
    model = load_model(name)
    two_kinds = any((model.sliding_heads, model.sliding_kv_heads, model.sliding_head_dim))
    sparse = model.index_topk or model.compressed
    if model.linear_layers or sparse or two_kinds or model.ffn_matrices == 2:
        with pytest.raises(InputError, match="cannot build"):
            target_shape(model)
        return
    shape = target_shape(model)
    layers = sum(g.shape.params * g.whole for g in shape.groups)
    routed = model.moe_layers * model.experts * model.expert_params
    assert sum(g.whole for g in shape.groups) == model.layers
    assert layers + model.hidden == model.dense_params + routed  # the last norm is not a layer's
    assert shape.around_params == model.head_params + model.hidden


@pytest.mark.parametrize(("name", "tp"), [("kimi-k2.5", 8), ("qwen3-30b-a3b", 8), ("qwen3-8b", 4)])
def test_a_share_reads_the_bytes_of_the_sharded_model(name: str, tp: int) -> None:
    """Within 1 %: the share counts the last norm with the head."""
    model = load_model(name)
    part = shard(model, "bf16", tp)
    shape = target_shape(model, tp)
    ours = 2 * sum(g.shape.params * g.whole for g in shape.groups)
    theirs = part.dense_bytes + part.moe_layers * part.experts * part.expert_bytes
    assert ours == pytest.approx(theirs, rel=0.01)
    kv = sum(g.shape.kv_numbers * g.whole for g in shape.groups)
    assert 2 * kv == pytest.approx(part.kv_bytes_per_token)


@pytest.mark.parametrize("name", ["eagle3", "eagle", "mtp", "qwen3-8b"])
def test_drafts_read_what_a_draft_step_reads(name: str) -> None:
    target = load_model("deepseek-v3")
    draft = load_draft(name, target)
    shapes = draft_shapes(draft)
    assert shapes is not None
    step, extend = shapes
    assert draft.shape is not None
    routed = draft.shape.moe_layers * draft.shape.experts * draft.shape.expert_params
    active = draft.shape.moe_layers * draft.shape.experts_per_token * draft.shape.expert_params
    ours = step.around_params + sum(g.shape.params * g.whole for g in step.groups)
    assert ours - routed + active == draft.shape.active_params + draft.input_params
    if extend is not None:
        assert extend.around_params - step.around_params == draft.fc_params


def test_ngram_has_no_shapes_and_a_bad_split_is_refused() -> None:
    assert draft_shapes(load_draft("ngram", load_model("qwen3-8b"))) is None
    with pytest.raises(InputError, match="tp 5"):
        target_shape(load_model("qwen3-8b"), 5)


def test_windowed_layers_are_a_kind_of_their_own() -> None:
    shape = target_shape(load_model("gpt-oss-20b"))
    windows = {g.shape.window for g in shape.groups}
    assert windows == {0, 128}
    windowed = next(g.shape for g in shape.groups if g.shape.window)
    assert windowed.seen(4096) == 128
    assert windowed.seen(16) == 16


# --- grid ---


@given(st.sets(st.integers(1, 4096), min_size=1, max_size=40))
def test_coarse_first_keeps_all_and_begins_with_the_ends(values: set[int]) -> None:
    order = coarse_first(sorted(values))
    assert sorted(order) == sorted(values)
    assert set(order[:2]) == {min(values), max(values)}


def test_points_cover_tokens_widths_and_contexts() -> None:
    points = target_points()
    plain = {p.tokens for p in points if p.width == 1 and p.context_len == 1024}
    assert {1, 64, 1024} <= plain
    assert {(b, n) for b in (1, 4, 16, 64) for n in (2, 4, 8, 16)} <= {
        (p.batch, p.width) for p in points
    }
    assert {p.context_len for p in points} == {1024, 4096, 16384}
    assert len(points) == len(set(points))


def test_layers_shrink_to_memory_and_grow_past_the_cache() -> None:
    (llama,) = target_shape(load_model("llama-3.1-8b")).groups
    size = llama.shape.params * 2
    four = layers_that_fit(llama, 0, 1e12, 50e6, 2)
    assert (four.shape, four.built, four.small, four.whole) == (llama.shape, 4, 2, 32)
    two = layers_that_fit(llama, 0, 5 * size, 50e6, 2)
    assert (two.built, two.small, two.whole) == (2, 1, 32)
    (small,) = target_shape(load_model("smollm2-135m")).groups
    all_of_it = layers_that_fit(small, 0, 1e12, 500e6, 2)
    assert (all_of_it.built, all_of_it.small, all_of_it.whole) == (30, 15, 30)
    with pytest.raises(InputError, match="max-memory-gb"):
        layers_that_fit(llama, 0, size, 50e6, 2)


def test_contexts_shrink_but_a_kv_point_keeps_its_length() -> None:
    stack = target_shape(load_model("llama-3.1-8b"))
    layers = replace(stack.groups[0], built=4)
    points = (Point(1, 1, 1024), Point(1024, 1, 1024), Point(32, 1, 16384))
    kept = fitted_points(points, stack, layers, 4e9, 2, 1024)
    assert kept[0] == Point(1, 1, 1024)
    assert kept[1].batch == 1024
    assert kept[1].context_len < 1024
    assert len(kept) == 2
    assert fitted_points(points, stack, layers, 0.0, 2, 1024) == ()


# --- timing, with a bench that is told what it reads ---


class FakeTimer:
    """Each step 'takes' its own number of seconds."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds
        self.prepared = 0
        self.rounds = 0

    def prepare(self, step: Callable[[], object]) -> Callable[[], object]:
        self.prepared += 1
        return step

    def times(self, steps: Any, repeats: int) -> list[list[float]]:
        self.rounds += repeats
        return [[self.seconds[step()]] * repeats for step in steps]


def test_repeats_follow_the_time_that_is_left() -> None:
    steps = [lambda: 1, lambda: 2]
    quick = FakeTimer({1: 1e-4, 2: 2e-4})
    assert [s.repeats for s in sample(quick, steps, 1.0)] == [MOST_REPEATS] * 2
    slow = FakeTimer({1: 1.0, 2: 2.0})
    assert [s.seconds for s in sample(slow, steps, 2.0)] == [1.0, 2.0]
    assert slow.rounds == 1  # the first round has used the time up: its times are kept
    middle = FakeTimer({1: 0.1, 2: 0.1})
    assert sample(middle, steps, 1.0)[0].repeats == 5


def test_error_is_that_of_the_median() -> None:
    """Against 4000 medians of 25 normal times: the formula is within a quarter (few quartiles)."""
    rng = np.random.default_rng(7)
    times = 1.0 + 0.05 * rng.standard_normal((4000, 25))
    spread = float(np.median(times, axis=1).std())
    stated = float(np.median([Sample.of(list(row)).error for row in times[:400]]))
    assert stated == pytest.approx(spread, rel=0.25)


def built(count: int, whole: int = 32) -> Layers:
    return Layers(target_shape(load_model("qwen3-8b")).groups[0].shape, whole, count)


@given(st.floats(1e-6, 1.0), st.floats(0.0, 1.0), st.integers(1, 15))
def test_layers_and_what_is_besides_are_told_apart(layer: float, fixed: float, big: int) -> None:
    few, many = (Sample(fixed + n * layer, 0.0, 9) for n in (big // 2, big))
    timed = Timed.of(many, few, built(big))
    assert timed.fixed_s + big * timed.layer_s == pytest.approx(fixed + big * layer)
    if fixed > 1e-9:
        assert timed.layer_s == pytest.approx(layer, rel=1e-6)


def test_noise_that_turns_the_slope_gives_the_time_to_the_layers() -> None:
    timed = Timed.of(Sample(4.0, 0.2, 9), Sample(5.0, 0.1, 9), built(4))
    assert (timed.layer_s, timed.fixed_s, timed.layer_error) == (1.0, 0.0, 0.2)


def test_deadlines_share_what_is_left() -> None:
    now = [0.0]
    deadline = Deadline(100.0, lambda: now[0])
    now[0] = 20.0
    part = deadline.share(0.5)
    assert part.left_s == pytest.approx(40.0)
    now[0] = 70.0
    assert (part.left_s, deadline.left_s, deadline.spent_s) == (0.0, 30.0, 70.0)


def test_points_that_would_not_fit_are_not_begun() -> None:
    assert affordable(1, [], 1.0)
    assert not affordable(1, [], 0.0)
    assert affordable(64, [(64, 1.0)], 2.0)
    assert not affordable(64, [(64, 1.0)], 1.9)
    assert not affordable(1024, [(16, 0.1)], 1.0)
    assert affordable(8, [(1024, 0.5)], 2.0)


# --- CUDA, with a stand-in for torch that records the calls ---


class FakeCuda:
    """As much of torch.cuda as the bench uses."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.fails = fails
        self.clock = 0.0
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                cuda.calls.append("record")
                self.at = cuda.clock

            def elapsed_time(self, other: Event) -> float:
                assert cuda.calls[-1] == "synchronize"  # events are read after the device is done
                return 1e3 * (other.at - self.at)

        class CUDAGraph:
            def replay(self) -> None:
                cuda.calls.append("replay")
                cuda.clock += 0.25

        self.Event, self.CUDAGraph = Event, CUDAGraph

    def Stream(self, device: object) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(wait_stream=lambda other: self.calls.append("side waits"))

    def current_stream(self, device: object) -> SimpleNamespace:
        return SimpleNamespace(wait_stream=lambda other: self.calls.append("main waits"))

    def synchronize(self, device: object) -> None:
        self.calls.append("synchronize")

    @contextmanager
    def stream(self, side: object) -> Iterator[None]:
        self.calls.append("side begins")
        yield
        self.calls.append("side ends")

    @contextmanager
    def graph(self, graph: object) -> Iterator[None]:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self.calls.append("capture begins")
        yield
        self.calls.append("capture ends")


def fake_timer(monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> tuple[Any, FakeCuda]:
    cuda = FakeCuda(fails)
    sizes = []

    def empty(size: int, **_: object) -> SimpleNamespace:
        sizes.append(size)
        return SimpleNamespace(fill_=lambda value: cuda.calls.append("cover"))

    torch = SimpleNamespace(cuda=cuda, empty=empty, uint8="uint8")
    monkeypatch.setattr(bench, "import_torch", lambda: torch)
    timer = bench.CudaTimer(SimpleNamespace(type="cuda"), 300e6)  # type: ignore[arg-type]
    assert sizes == [600_000_000]  # twice the cache
    return timer, cuda


def test_a_step_is_warmed_up_beside_then_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, cuda = fake_timer(monkeypatch)
    ready = timer.prepare(lambda: cuda.calls.append("step"))
    assert cuda.calls == [
        "side waits",
        "side begins",
        *["step"] * bench.WARM_UPS,
        "side ends",
        "main waits",
        "synchronize",
        "capture begins",
        "step",
        "capture ends",
    ]
    ready()
    assert cuda.calls[-1] == "replay"
    assert timer.graphs
    assert timer.notes == []


def test_each_run_is_covered_and_all_are_read_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, cuda = fake_timer(monkeypatch)
    ready = timer.prepare(lambda: None)
    cuda.calls.clear()
    assert timer.times([ready, ready], 3) == [[0.25] * 3] * 2
    assert cuda.calls == ["cover", "record", "replay", "record"] * 6 + ["synchronize"]


def test_what_cannot_be_captured_runs_eager_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, cuda = fake_timer(monkeypatch, fails=True)

    def step() -> None:
        cuda.clock += 0.5

    assert timer.prepare(step) is step
    assert timer.times([step], 1) == [[0.5]]
    assert not timer.graphs
    assert timer.notes == ["no CUDA graph: operation not permitted when stream is capturing"]


def test_device_names(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, set_device=chosen.append
    )
    torch = SimpleNamespace(
        cuda=cuda, device=lambda *words: words, __version__="2.13.0", version=None
    )
    monkeypatch.setattr(devices, "import_torch", lambda: torch)
    assert devices.choose_device("auto") == ("cuda", 0)
    assert devices.choose_device("cuda:1") == ("cuda", 1)
    assert devices.choose_device("cpu") == ("cpu",)
    assert chosen == [0, 1]
    with pytest.raises(InputError, match="sees 2 CUDA"):
        devices.choose_device("cuda:2")
    with pytest.raises(InputError, match="not known"):
        devices.choose_device("gpu")


def test_a_clock_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(device: object) -> int:
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    torch = SimpleNamespace(cuda=SimpleNamespace(clock_rate=missing))
    monkeypatch.setattr(devices, "import_torch", lambda: torch)
    device: Any = SimpleNamespace(type="cuda")
    assert devices.clock_mhz(device) == []
    torch.cuda.clock_rate = lambda device: 1980
    assert devices.clock_mhz(device) == [1980.0]


def test_without_torch_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["probe", "--model", "qwen3-8b", "-o", str(tmp_path / "new")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install 'specsim-llm[probe]'" in told


def test_routing_is_uniform_and_distinct() -> None:
    """Experts touched by 32 tokens: E (1 - (1 - K/E)^t), four standard errors of 50 draws."""
    rng = np.random.default_rng(3)
    touched = [len(np.unique(draw_experts(32, 128, 8, rng))) for _ in range(50)]
    error = np.std(touched) / 50**0.5
    assert abs(np.mean(touched) - 128 * (1 - (1 - 8 / 128) ** 32)) < 4 * error


def test_an_allreduce_ends_with_its_slowest_rank() -> None:
    points = slowest([{1024: 2e-6, 2048: 3e-6}, {1024: 4e-6, 2048: 1e-6, 4096: 1.0}])
    assert [(p.size_bytes, p.seconds) for p in points] == [(1024, 4e-6), (2048, 3e-6)]
    assert measure_allreduce("cpu", 1, 1.0) is None


def test_kinds_of_layers_are_summed_over_the_whole_model() -> None:
    point, other = Point(1, 1, 8), Point(2, 1, 8)
    first = {p: Timed(Sample(9.0, 0.1, 7), 2.0, 5.0, 0.1, None) for p in (point, other)}
    second = {point: Timed(Sample(6.0, 0.2, 5), 3.0, 0.0, 0.2, 4.0)}
    (joined,) = joined_points([built(2, 10), built(2, 3)], [first, second])
    assert joined.seconds == 5.0 + 10 * 2.0 + 3 * 3.0
    assert joined.error == pytest.approx(((0.1 * 20) ** 2 + (0.2 * 9) ** 2) ** 0.5 / 34.0)
    assert (joined.repeats, joined.experts, joined.layers_s) == (5, 4.0, (2.0, 3.0))
    as_built = joined_points([built(2, 2)], [{point: first[point]}])
    assert (as_built[0].seconds, as_built[0].error) == (9.0, 0.1)
