"""Running servers: what each engine tells, counters as windows, and servers that mean no good."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

import live_server as made
import pytest
from live_server import Answer, serving

from specsim.cli.main import run
from specsim.errors import InputError
from specsim.live.fetch import KEY, LIMIT_BYTES, site
from specsim.live.server import find
from specsim.live.watch import Watch, look
from specsim.logs.entry import LogEntry

SECRET = "sk-do-not-print-me"


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsim.live.watch.LOOK_S", 0.1)


def watched(routes: Callable[[float], dict[str, Answer]], windows: int = 4) -> LogEntry:
    """Watch a server whose time goes on only while we wait for it: windows of 5 s."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with serving(lambda: routes(now[0])) as (url, _):
        watch = Watch(find(url), sleep=sleep, clock=lambda: now[0])
        watch.start()
        for _ in range(windows):
            watch.window(5.0)
        return watch.entry()


# --- engines


def test_sglang_tells_its_launch_and_its_last_rounds() -> None:
    entry = watched(lambda _: made.sglang())
    assert (entry.engine, entry.engine_version) == ("sglang", "0.5.9")
    assert entry.settings["algorithm"] == "EAGLE3"
    assert entry.settings["num_draft_tokens"] == 4
    assert entry.settings["max_running_requests"] == 48
    assert entry.settings["kv_tokens"] == 120000
    (row,) = entry.rows
    assert (row.kind, row.batch_size, row.concurrency) == ("steady_decode", 8, 8)
    assert row.output_tps == pytest.approx(900)
    assert row.accept_length == pytest.approx(2.4)
    assert row.round_time_s == pytest.approx(2.4 * 8 / 900)
    assert row.kv_usage == pytest.approx(0.125)
    assert (entry.windows.read, entry.windows.used) == (4, 4)


def test_sglang_that_has_done_nothing_yet_tells_its_launch() -> None:
    info = json.loads(made.sglang()["/server_info"])  # type: ignore[arg-type]
    info["internal_states"] = [{}]
    routes = {**made.sglang(running=0.0), "/server_info": json.dumps(info).encode()}
    with serving(lambda: routes) as (url, _):
        assert find(url).settings["num_steps"] == 3


def test_vllm_counters_are_differences_over_the_wall_clock() -> None:
    """800 tok/s, 400 rounds a second, 400 accepted: an accept length of 2, whatever was before."""
    entry = watched(made.vllm)
    assert (entry.engine, entry.engine_version) == ("vllm", "0.20.2")
    (row,) = entry.rows
    assert row.output_tps == pytest.approx(800)
    assert row.accept_length == pytest.approx(2.0)
    assert row.survival == pytest.approx((0.6, 0.3, 0.1))
    assert row.drafted_per_round == pytest.approx(3)
    assert row.queue == pytest.approx(2)
    assert entry.settings["num_steps"] == 3


def test_vllm_without_drafting_counters_does_not_speculate() -> None:
    entry = watched(lambda now: made.vllm(now, speculates=False))
    assert entry.settings["algorithm"] == "none"
    assert entry.rows[0].accept_length == 1.0


def test_vllm_rounds_of_a_lookup_that_finds_nothing_count() -> None:
    """A quarter of the rounds draft: 800 tokens a second of which 80 were drafted and accepted."""

    def routes(now: float) -> dict[str, Answer]:
        counts = {
            "num_requests_running": 4.0,
            "generation_tokens_total": 800 * now,
            "spec_decode_num_drafts_total": 180 * now,
            "spec_decode_num_draft_tokens_total": 360 * now,
            "spec_decode_num_accepted_tokens_total": 80 * now,
        }
        return {**made.vllm(now), "/metrics": made.prometheus("vllm:", counts, 'engine="0"')}

    (row,) = watched(routes).rows
    assert row.accept_length == pytest.approx(800 / 720)
    assert row.drafted_per_round == pytest.approx(0.5)


def test_vllm_developer_mode_names_the_drafter() -> None:
    config = (
        "model='org/m', tensor_parallel_size=2, max_seq_len=8192, "
        "speculative_config=SpeculativeConfig(method='eagle3', model='org/d', num_spec_tokens=3), "
    )
    routes = {**made.vllm(10.0), "/server_info": json.dumps({"vllm_config": config}).encode()}
    with serving(lambda: routes) as (url, _):
        settings = find(url).settings
    assert (settings["algorithm"], settings["num_steps"], settings["tp"]) == ("EAGLE3", 3, 2)


def test_llama_server_counts_requests_that_run() -> None:
    """40 tokens a second, of which the counter tells when a request of 300 has ended."""

    def routes(now: float) -> dict[str, Answer]:
        ended, running = divmod(int(40 * now), 300)
        return made.llama_cpp(300 * ended, running)

    entry = watched(routes)
    (row,) = entry.rows
    assert (row.batch_size, row.accept_length) == (2, 1.0)
    assert row.output_tps == pytest.approx(40)
    assert (entry.engine, entry.engine_version) == ("llama.cpp", "b11434")
    assert entry.settings["algorithm"] == "none"
    assert entry.settings["model"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert entry.settings["max_running_requests"] == 2


def test_llama_server_tells_how_it_drafts() -> None:
    entry = watched(lambda now: made.llama_cpp(int(40 * now), 0, speculates=True))
    assert (entry.settings["algorithm"], entry.settings["num_steps"]) == ("STANDALONE", 3)
    (row,) = entry.rows
    assert row.accept_length == pytest.approx(2, rel=0.01)
    assert row.survival == pytest.approx((0.5, 0.3, 0.2), rel=0.01)


def test_tensorrt_llm_tells_its_iterations() -> None:
    entry = watched(lambda _: made.trtllm(), windows=1)
    assert (entry.engine, entry.engine_version) == ("tensorrt-llm", "1.2.0")
    (row,) = entry.rows
    assert row.batch_size == 8
    assert row.accept_length == pytest.approx(1 + 12 / 8)
    assert row.round_time_s == pytest.approx(0.02)
    assert entry.settings["kv_tokens"] == 32000


def test_a_gateway_that_names_nobody_is_known_by_the_counters() -> None:
    routes = {**made.vllm(10.0), "/v1/models": made.models("my-gateway")}
    with serving(lambda: routes) as (url, _):
        assert find(url).served.engine == "vllm"


def test_loads_are_told_apart_and_ramps_dropped() -> None:
    entry = watched(lambda now: made.vllm(now, running=4.0 if now < 121 else 16.0), windows=8)
    assert [row.batch_size for row in entry.rows] == [4, 16]
    assert entry.windows.dropped == {"ramp": 2} or entry.windows.dropped == {"ramp": 1}


def test_a_restart_within_a_window_is_no_measurement() -> None:
    now = [100.0]
    with serving(lambda: made.vllm(now[0])) as (url, _):
        watch = Watch(find(url), sleep=lambda s: now.__setitem__(0, 1.0), clock=time.monotonic)
        watch.start()
        watch.window(5.0)
    assert watch.restarts == 1
    assert watch.entry().windows.read == 1  # what it had counted before


def test_an_idle_server_tells_what_it_counted_before() -> None:
    with serving(lambda: made.vllm(50.0, running=0.0)) as (url, asked):
        entry, notes = look(url)
    (row,) = entry.rows
    assert (row.accept_length, row.accept_length_scope) == (pytest.approx(2.0), "pooled")
    assert (row.batch_size, row.output_tps) == (None, None)
    assert "idle" in notes[-1]
    assert len([path for _, path, _ in asked if path == "/metrics"]) == 2


def test_counters_that_are_off_are_told() -> None:
    routes = {k: v for k, v in made.sglang().items() if k != "/metrics"}
    with serving(lambda: routes) as (url, _):
        assert "--enable-metrics" in find(url).notes[0]
        assert find(url).told.rows[0].accept_length == pytest.approx(2.4)


# --- servers that mean no good


@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "http://a b/", "http://h:port", "ftp://h", "http://h/ä"]
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InputError, match="URL"):
        site(url)


@pytest.mark.parametrize("url", ["http://u:{}@h", "http://h/?key={}", "http://h/#{}"])
def test_a_key_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InputError, match=KEY) as caught:
        site(url.format(SECRET))
    assert SECRET not in str(caught.value)


def test_a_server_that_drips_is_left() -> None:
    with serving(lambda: {"/metrics": made.drip}) as (url, _):
        begun = time.monotonic()
        with pytest.raises(InputError, match=r"takes more than 0\.4 s"):
            site(url).get("/metrics", limit_s=0.4)
    assert time.monotonic() - begun < 3


def test_a_server_that_drips_its_headers_is_left() -> None:
    def drip(handler: made.Handler) -> None:
        while True:
            handler.wfile.write(b"H")
            handler.wfile.flush()
            time.sleep(0.05)

    slow = pytest.raises(InputError, match=r"takes more than 0\.4 s|does not answer")
    with serving(lambda: {"/metrics": drip}) as (url, _), slow:
        site(url).get("/metrics", limit_s=0.4)


def test_a_body_without_end_is_left() -> None:
    large = pytest.raises(InputError, match=f"more than {LIMIT_BYTES >> 20} MiB")
    with serving(lambda: {"/metrics": made.endless}) as (url, _), large:
        site(url).get("/metrics")


def test_another_host_is_not_followed_and_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with serving(dict) as (other, asked_there):
        moved = (307, {"Location": f"{other}/metrics?key={SECRET}"}, b"")
        elsewhere = pytest.raises(InputError, match="redirects elsewhere")
        with serving(lambda: {"/metrics": moved}) as (url, asked), elsewhere as caught:
            site(url).get("/metrics")
    assert SECRET not in str(caught.value)
    assert asked == [("GET", "/metrics", f"Bearer {SECRET}")]
    assert asked_there == []


def test_the_same_host_is_followed_for_a_while() -> None:
    routes: dict[str, Answer] = {
        "/metrics": (307, {"Location": "/metrics/"}, b""),
        "/metrics/": b"here",
        "/round": (302, {"Location": "/round/"}, b""),
        "/round/": (302, {"Location": "/round//"}, b""),
    }
    with serving(lambda: routes) as (url, _):
        assert site(url).get("/metrics") == b"here"
        with pytest.raises(InputError, match="without end"):
            site(url).get("/round")


@pytest.mark.parametrize("key", ["a\nb", "a b", "schlüssel"])
def test_a_damaged_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, key)
    with serving(dict) as (url, asked), pytest.raises(InputError, match=KEY) as caught:
        site(url).get("/metrics")
    assert key not in str(caught.value)
    assert asked == []


def test_a_refused_key_is_told_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with serving(lambda: {"/v1/models": (401, {}, SECRET.encode())}) as (url, _):
        assert run(["read", url]) == 2
    out = "".join(capsys.readouterr())
    assert KEY in out
    assert SECRET not in out


def test_the_key_never_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a server echoes: here its settings and its version."""
    monkeypatch.setenv(KEY, SECRET)
    with serving(lambda: made.vllm(10.0, running=0.0)) as (url, asked):
        for form in ([], ["--json"], ["--csv"]):
            assert run(["read", url, *form]) == 0
    assert SECRET not in "".join(capsys.readouterr())
    assert {key for _, _, key in asked} == {f"Bearer {SECRET}"}
    assert {method for method, _, _ in asked} == {"GET"}


JUNK: list[bytes] = [
    b"",
    b"<html><body>502 Bad Gateway</body></html>",
    b"[" * 100_000,
    b'{"data": {"0": 1}}',
    b'{"data": [[1]], "version": 3, "internal_states": "x"}',
    b'{"data": [{"owned_by": 7, "root": {}}], "internal_states": [{"avg_spec_accept_length": []}]}',
    b"vllm:num_requests_running nan\nvllm:generation_tokens_total 1e400\n\xff\xfe\x00",
    b"vllm:num_requests_running{engine=\"0\"} -5\nvllm:generation_tokens_total{engine=\"0\"} -1\n",
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("owner", ["vllm", "sglang", "llamacpp", "tensorrt_llm", "nobody"])
def test_wrong_types_and_pages_are_no_numbers(owner: str, junk: bytes) -> None:
    """Either an error of one line, or an entry without a throughput."""
    paths = ("/metrics", "/server_info", "/version", "/props", "/slots", "/prometheus/metrics")
    routes: dict[str, Answer] = {"/v1/models": made.models(owner), **dict.fromkeys(paths, junk)}
    with serving(lambda: routes) as (url, _), suppress(InputError):
        entry, _ = look(url)
        assert all(row.output_tps is None for row in entry.rows)


def test_nobody_listens() -> None:
    with serving(dict) as (url, _):
        pass
    for nowhere in (url, "http://a..b", f"http://{'a' * 70}.invalid"):
        assert run(["read", nowhere]) == 2


def test_nothing_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda: {"/": b"hello"}) as (url, _):
        assert run(["read", url]) == 2
    assert "answers like no server of sglang, vllm" in capsys.readouterr().err
