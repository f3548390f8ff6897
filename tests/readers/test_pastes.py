"""Several servers, engines and formats in one file, as people paste them; terminals that wrap."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import log_samples as logs
import pytest
import result_samples as results
from test_files import FORMAT_OF
from test_reports import decode, vllm_window
from test_reports_llamacpp import progress, timings

from specsim.calibrate.log_setup import library_id
from specsim.logs import LogEntry, read_file
from specsim.logs.format import detect, detect_text
from specsim.logs.html_text import plain
from specsim.logs.paste import wrapping
from specsim.logs.source import open_source

approx = pytest.approx

Read = Callable[[str], list[LogEntry]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def of(text: str) -> list[LogEntry]:
        path = tmp_path / "paste.txt"
        path.write_text(text)
        return read_file(path)

    return of


def sglang(tps: float, at: int = 0, accept: float | None = 2.8, count: int = 5) -> str:
    return "".join(decode(8, tps, accept, at=at + i) for i in range(count))


def vllm(tps: float, at: int = 0, accept: float | None = 2.5, count: int = 4) -> str:
    return "".join(vllm_window(tps, accept, at=at + i) for i in range(count))


def llama(each_ms: float, accepted: int = 126, at: int = 0) -> str:
    return timings(each_ms=each_ms, accepted=accepted)


LOGS: dict[str, Callable[..., str]] = {"sglang": sglang, "vllm": vllm, "llamacpp": llama}
LABELS = [
    ("# baseline", "# eagle3"),
    ("## Without speculation", "## EAGLE3, k=3"),
    ("**topk 1**", "**topk 4**"),
    ("without mtp:", "with mtp:"),
    ("=== MTP k=1 ===", "=== MTP k=3 ==="),
    ("ngram:", "draft model:"),
    ("### Config A", "### Config B"),
]


@pytest.mark.parametrize("engine", LOGS)
@pytest.mark.parametrize(("first", "second"), LABELS)
@pytest.mark.parametrize("fence", ["", "```\n"])
def test_servers_under_headings_stay_apart(
    read: Read, engine: str, first: str, second: str, fence: str
) -> None:
    """Although time and tokens go on as in one run."""
    log = LOGS[engine]
    text = f"{first}\n{fence}{log(50.0)}{fence}\n{second}\n{fence}{log(80.0, at=5)}{fence}"
    one, two = read(text)
    assert (one.rows[0].round_time_s or 0) != approx(two.rows[0].round_time_s or 0)
    for entry, heading in ((one, first), (two, second)):
        assert entry.label == heading.strip("#*=: ")
        assert len(entry.rows) == 1
        assert not entry.unread


@pytest.mark.parametrize("engine", LOGS)
def test_loads_of_one_server_are_no_servers(read: Read, engine: str) -> None:
    log = LOGS[engine]
    text = f"## eagle3\n### concurrency 8\n{log(50.0)}\n### concurrency 16\n{log(50.0, at=5)}"
    (entry,) = read(text)
    assert entry.label == "eagle3"


@pytest.mark.parametrize("order", list(itertools.permutations(LOGS)))
def test_three_engines_in_one_file(read: Read, order: tuple[str, ...]) -> None:
    text = "\n".join(LOGS[engine](77.0) for engine in order)
    entries = read(text)
    names = {"sglang_log": "sglang", "vllm_log": "vllm", "llamacpp": "llamacpp"}
    assert [names[e.format] for e in entries] == list(order)
    assert all(len(e.rows) == 1 and not e.unread for e in entries)


SGLANG = "python -m sglang.launch_server --model-path org/m --tp 8 --speculative-algorithm EAGLE "
SGLANG += "--speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 6"
VLLM = "vllm serve org/m -tp 4 --speculative-config "
VLLM += """'{"method": "eagle3", "model": "org/d", "num_speculative_tokens": 3}'"""
LLAMA = "llama-server -m m.gguf -md d.gguf --spec-type draft-eagle3 --spec-draft-n-max 4 -np 2"
COMMANDS: dict[str, tuple[str, dict[str, object]]] = {
    "sglang": (SGLANG, {"algorithm": "MTP", "topk": 2, "num_draft_tokens": 6, "tp": 8}),
    "vllm": (VLLM, {"algorithm": "EAGLE3", "num_steps": 3, "tp": 4}),
    "llamacpp": (LLAMA, {"algorithm": "EAGLE3", "max_running_requests": 2}),
}
FORMS = {
    "plain": "{0}\n\n",
    "prompt": "$ {0}\n",
    "fence": "Launched with:\n```bash\n{0}\n```\nLog:\n",
    "broken": "{0}\n",
    "variables": "export CUDA_VISIBLE_DEVICES=0,1\n{0} 2>&1 | tee log\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", COMMANDS)
@pytest.mark.parametrize("below", [False, True])
def test_a_launch_command_beside_a_log(read: Read, engine: str, form: str, below: bool) -> None:
    command, said = COMMANDS[engine]
    if form == "broken":
        command = re.sub(r" (--?[a-z])", r" \\\n    \1", command)
    text = FORMS[form].format(command)
    log = LOGS[engine](64.0)
    (entry,) = read(log + "\n" + text if below else text + log)
    assert said.items() <= entry.settings.items()
    assert len(entry.rows) == 1


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize(
    ("engine", "words", "version"),
    [
        ("sglang", "docker run --gpus all lmsysorg/sglang:v0.5.9 python3 -m {0}", "0.5.9"),
        ("vllm", "docker run vllm/vllm-openai:v0.17.1 {0}", "0.17.1"),
        ("vllm", "pip install vllm==0.17.1\n{0}", "0.17.1"),
        ("llamacpp", "docker run ghcr.io/ggml-org/llama.cpp:server-cuda-b6800 {0}", "b6800"),
    ],
)
def test_a_release_that_only_the_command_names(
    read: Read, engine: str, words: str, version: str, below: bool
) -> None:
    """An image or an installation; the log's own word comes first."""
    text, log = (
        words.format(COMMANDS[engine][0].removeprefix("python -m ")) + "\n",
        LOGS[engine](64.0),
    )
    (entry,) = read(log + "\n" + text if below else text + log)
    assert entry.engine_version == version
    assert "engine_version" not in entry.settings


@pytest.mark.parametrize(
    ("engine", "lines", "gpu"),
    [
        ("sglang", "GPU 0,1,2,3: NVIDIA H100 80GB HBM3\nsglang: 0.5.9\n", "h100-sxm"),
        (
            "vllm",
            "GPU models and configuration: \nGPU 0: NVIDIA H200\nGPU 1: NVIDIA H200\n"
            "vLLM Version                 : 0.17.1\n",
            "h200-sxm",
        ),
        (
            "llamacpp",
            "ggml_cuda_init: found 1 CUDA devices:\n"
            "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n",
            "rtx-4090",
        ),
    ],
)
def test_the_environment_of_a_report_names_gpu_and_release(
    read: Read, engine: str, lines: str, gpu: str
) -> None:
    (entry,) = read(lines + LOGS[engine](64.0))
    assert library_id(entry.settings["gpu"], "gpus") == gpu
    known = {"sglang": "0.5.9", "vllm": "0.17.1"}
    assert entry.engine_version == known.get(engine)


@pytest.mark.parametrize("engine", COMMANDS)
def test_each_server_has_its_own_command(read: Read, engine: str) -> None:
    command, said = COMMANDS[engine]
    other = command.split(" --spec")[0]
    log = LOGS[engine]
    plain, drafting = (log(64.0, 0, None), log(90.0, 5)) if engine != "llamacpp" else (
        log(64.0, 0), log(90.0))  # fmt: skip
    for text in (
        f"# base\n{other}\n{plain}\n# spec\n{command}\n{drafting}",
        f"{other}\n{plain}\n{command}\n{drafting}",
        f"## base\n{other}\n## spec\n{command}\n\n## base\n{plain}\n## spec\n{drafting}",
    ):
        one, two = read(text)
        assert said.items() <= two.settings.items()
        assert one.settings.get("algorithm") != said["algorithm"]


def test_a_command_of_another_engine_or_of_two_servers_says_nothing(read: Read) -> None:
    for text in (f"{VLLM}\n{sglang(64.0)}", f"{SGLANG}\n{SGLANG} --tp 4\n{sglang(64.0)}"):
        (entry,) = [e for e in read(text) if e.format == "sglang_log"]
        assert "algorithm" not in entry.settings
        assert "tp" not in entry.settings


def test_a_log_knows_better_than_the_command(read: Read) -> None:
    (entry,) = read(SGLANG + "\n" + logs.STARTUP + sglang(64.0))
    assert (entry.settings["tp"], entry.settings["algorithm"]) == (4, "EAGLE3")


def test_a_command_above_iterations_of_tensorrt_llm(read: Read) -> None:
    """Their reader takes no command: it stands beside them, under the same name of the engine."""
    command, log = read("trtllm-serve org/m --tp_size 8 --max_batch_size 64\n\n" + results.TRT_LOG)
    assert (command.format, command.settings["tp"]) == ("launch", 8)
    assert command.engine == log.engine == "tensorrt-llm"
    assert len(log.rows) == 1


def test_a_flag_is_no_label(read: Read) -> None:
    (entry,) = read("llama-server -m a.gguf \\\n  --draft-max 16 \\\n  --run-x 3\n" + llama(70.0))
    assert entry.label == ""


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_table_log_and_command_in_any_order(read: Read, order: tuple[int, ...]) -> None:
    parts = (results.SERVING_TABLE, sglang(64.0), SGLANG + "\n")
    entries = {e.format: e for e in read("\n".join(parts[i] for i in order))}
    assert len(entries) == 2
    log = entries.pop("sglang_log")
    (table,) = entries.values()
    assert (log.settings["topk"], log.windows.used, log.unread) == (2, 5, {})
    assert table.rows[0].output_tps is not None
    assert not table.unread


@pytest.mark.parametrize("engine", LOGS)
@pytest.mark.parametrize(
    "other",
    [
        results.SERVING_TABLE,
        results.SEND_ONE,
        results.VLLM_PROM,
        results.TRT_LOG,
        results.NCCL_NEW,
        results.json_lines(results.SERVING_RECORD),
    ],
)
def test_a_log_and_another_format(read: Read, engine: str, other: str, tmp_path: Path) -> None:
    path = tmp_path / "alone"
    path.write_text(other)
    alone = read_file(path)
    log = LOGS[engine](64.0)
    for text in (f"{log}\n{other}", f"{other}\n{log}", f"# log\n{log}\n# client\n{other}"):
        entries = read(text)
        formats = {e.format for e in alone}
        assert [e.rows for e in entries if e.format in formats] == [e.rows for e in alone]
        (mine,) = [e for e in entries if e.format not in formats]
        assert len(mine.rows) == 1
        assert not mine.unread


def test_a_table_at_the_end_of_a_long_log(read: Read) -> None:
    long = "".join(decode(8, 640.0, 2.8, at=i % 9000) for i in range(9000))
    assert len(long) > 1 << 20
    entries = read(long + results.SERVING_TABLE)
    assert next(e.format for e in entries) == "sglang_log"
    assert len(entries) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [(n, t) for n, texts in FORMAT_OF.items() for t in texts if n != "probe"],
)
def test_a_file_of_one_format_holds_no_other(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with open_source(path) as source:
        alone = detect(source).parse(source)
    assert [(e.format, e.rows) for e in read_file(path)] == [(e.format, e.rows) for e in alone]


def wrapped(text: str, width: int, strip: bool) -> str:
    lines = []
    for line in text.splitlines():
        pieces = [line[i : i + width] for i in range(0, len(line), width)] or [""]
        lines += [piece.rstrip() if strip else piece for piece in pieces]
    return "\n".join(lines) + "\n"


PREFIXED = timings(prefix="0.18.600.123 I slot print_timing: id  0 | task 4 | ", pad="       ")


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("width", [60, 72, 80, 81, 97, 100, 113, 120, 132, 160])
@pytest.mark.parametrize(
    "text",
    [sglang(58.5), sglang(58.5, accept=None, count=2), vllm(72.0), PREFIXED, "x:\n" + vllm(9.5)],
    ids=["sglang", "plain", "vllm", "llamacpp", "label"],
)
def test_a_terminal_that_wraps_lines(read: Read, text: str, width: int, strip: bool) -> None:
    whole, again = read(text), read(wrapped(text, width, strip))
    assert [(e.rows, e.unread, e.windows) for e in again] == [
        (e.rows, e.unread, e.windows) for e in whole
    ]


def test_what_is_not_wrapped_stays() -> None:
    blocks = f"with mtp:\n{decode(8, 640.0, 2.8)}```\nwithout mtp:\n{decode(8, 640.0, None)}"
    every = [text for texts in FORMAT_OF.values() for text in texts]
    for text in (blocks, sglang(50.0), vllm(50.0), *every):
        data = text if isinstance(text, bytes) else text.encode()
        assert wrapping(data) is None
        assert detect_text(data) is not None


def test_a_router_has_several_servers(read: Read) -> None:
    both = (timings(each_ms=ms, prefix=f"[{ms:.0f}1] ").splitlines() for ms in (70.0, 90.0))
    mixed = zip(*both, strict=True)
    entries = read("\n".join(line for pair in mixed for line in pair) + "\n")
    assert [e.rows[0].tpot_s for e in entries] == approx([0.07, 0.09])


def test_half_of_an_ab_comparison_did_not_end(read: Read) -> None:
    base, eagle = read(f"# baseline\n{PREFIXED}\n# eagle3\n{progress()}")
    assert (base.label, eagle.label) == ("baseline", "eagle3")
    assert (eagle.rows[0].output_tps, eagle.rows[0].accept_length) == (approx(17.17), None)


def test_tables_of_a_page_are_written_out() -> None:
    page = (
        b"x<table><tr><th>c<th>tok/s</tr><tr><td rowspan=2>1<td>92<b>.7</b></td><tr><td>93</td>"
        b"<tr><td>2</td><td>9</table>"
    )
    assert plain(page) == b"x\n| c | tok/s |\n| 1 | 92.7 |\n| 1 | 93 |\n| 2 |\n"
    assert plain(b"<h2>a</h2><script>9</script><p>b &lt; c<table></table>").split() == [
        *(b"##", b"a", b"b", b"<", b"c"),
    ]
    assert plain(b"<table> without an end") == b"<table> without an end"


@pytest.mark.parametrize(
    "damaged", [b"<a ", b"<!--", b"<table ", b"<td", b"<tr><td rowspan=99 colspan=99>", b"<h1 "]
)
def test_a_damaged_page_takes_no_time(damaged: bytes) -> None:
    began = time.process_time()
    plain(b"<table>" + damaged * (1 << 17) + b"</table>")
    assert time.process_time() - began < 10
