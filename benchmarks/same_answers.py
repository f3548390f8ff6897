"""Whether a change of structure changed an answer: every command on twenty saved inputs.

    python benchmarks/same_answers.py save INPUTS          # write the inputs, once
    python benchmarks/same_answers.py answer INPUTS OUT    # what the specsim on the path says
    python benchmarks/same_answers.py compare OUT OTHER    # exit code 1 where they differ

``answer`` takes the specsim that Python finds: set PYTHONPATH to a checkout of another revision.
Numbers are the same within one part in 10^9, which is what summing in another order may do.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOLERANCE = 1e-9

STATED = "--model llama-3.1-8b --gpu h100-sxm --input-len 1024 --output-len 256"
FOUNDING = "--profile kimi-k2.5-int4-8x-rtx-pro-6000"
K26 = "--profile kimi-k2.6-8x-rtx-pro-6000"

COMMANDS = (
    "predict --topk 2 --steps 2 --json",
    "predict --topk 2 --steps 2 --solver analytic",
    "predict --topk 2 --steps 2 --json --solver analytic --concurrency 1,30,100",
    f"predict {K26} 4,3,8 --what-if --json --solver analytic",
    "predict --topk 1 --steps 3 --engine vllm --json --solver analytic",
    "predict --topk 1 --steps 3 --model llama-3.1-8b --gpu h100-sxm --tp 1 --engine sglang "
    "--draft eagle3 --json --solver analytic",
    "recommend --json --concurrency 1,30,100",
    "recommend --concurrency 1,30,100 --set gpu=h200-sxm --set link=nvlink4",
    f"recommend {K26} --json --concurrency 1,30 --slo tpot=20ms,ttft=2s@p99",
    "breakeven --topk 2 --steps 2 --json",
    "compare kimi-k2.5-int4-8x-rtx-pro-6000 --set accept_length=2.6 --json",
    "compare kimi-k2.5-int4-8x-rtx-pro-6000 --set gpu=h200-sxm --set link=nvlink4 --json",
    "schedule --json",
    "schedule --load burst:0.1..2/s,30s/300s@1200s --slo tpot=40ms --json",
    "plan --json --concurrency 1,30,100",
    "sweep --grid topk=1,2 --grid steps=1-3 --concurrency 1,10 --solver analytic -o sweep.csv",
    "timeline --topk 2 --steps 2 --concurrency 30",
    "timeline --topk 2 --steps 2 --rounds 50 --trace trace-out.json",
    "report --topk 2 --steps 2 --solver analytic -o report.html",
    "calibrate founding --json -o founding.toml",
    "calibrate k26 --json -o k26.toml",
    "calibrate f16 --json -o f16.toml",
    f"calibrate sglang_none.log sglang_spec.log {STATED} --json -o sglang.toml",
    "calibrate p0-f16-chain1-high-c1.log.gz p0-f16-chain1-high-c8.log.gz --setup f16/setup.toml "
    "--json -o llama.toml",
    f"calibrate vllm_none.log vllm_spec.log {STATED} --json -o vllm.toml",
    "validate founding/observations.csv --json",
    f"validate k26/observations.csv {K26} --json",
    "predict nonsense",
    "predict --topk 9 --steps 20 --json",
    "doctor --json",
)
"""Each in a folder that holds the inputs; what it writes is compared too."""

FOLDERS = {
    "founding": "kimi-k2.5-int4-8x-rtx-pro-6000",
    "k26": "kimi-k2.6-8x-rtx-pro-6000",
    "f16": "smollm2-135m-llama-server-2-core/f16",
}


def save(folder: Path) -> None:
    """Write the inputs: calibration folders, and a log or result of each kind."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/readers")]
    import log_samples as logs
    import result_samples as results

    folder.mkdir(parents=True)
    for name, home in FOLDERS.items():
        shutil.copytree(ROOT / "calibration" / home, folder / name)
    texts = {
        "sglang_none.log": logs.STARTUP + logs.decode_lines(logs.DECODE_PLAIN["0.5.9-0.5.23"], 40),
        "sglang_spec.log": logs.STARTUP + logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"], 40),
        "sglang_startup.log": logs.STARTUP_NEW + logs.WARNINGS,
        "sglang_paste.log": logs.AB_PASTE,
        "sglang_kv.log": logs.KV_BOUND,
        "vllm_none.log": logs.VLLM_STARTUP + logs.VLLM_STALLED,
        "vllm_spec.log": logs.VLLM_STARTUP + logs.VLLM,
        "vllm_paste.log": logs.VLLM_AB,
        "trtllm.log": results.TRT_LOG,
        "trtllm.json": results.json_lines(results.TRT_RECORD),
        "llama_tool.txt": results.LLAMA_TOOL,
        "llama_server.log": results.LLAMA_SERVER,
        "sglang.prom": results.SGLANG_PROM,
        "vllm.prom": results.VLLM_PROM,
        "serving.txt": results.SERVING_TABLE,
        "bench.json": results.json_lines(results.ONE_BATCH_RECORD, results.OFFLINE_RECORD),
        "speculative.json": results.json_lines(*results.SPECULATIVE_RECORDS),
        "histograms.json": results.json_lines(*results.HISTOGRAM_RECORDS),
        "golden.yaml": results.GOLDEN,
        "trace.json": results.trace_text(),
        "nccl.txt": results.NCCL_NEW,
        "nsys.txt": results.NSYS_TEXT,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    shared = ROOT.parent / "shared/logs"
    for path in sorted(shared.rglob("*.txt")):  # where they are at hand
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    for path in sorted((ROOT / "calibration").rglob("p0-f16-*.log.gz"))[:6]:
        shutil.copy(path, folder)


def asked(inputs: Path) -> list[str]:
    """All command lines: those above, and ``read`` of every file."""
    files = sorted(p.name for p in inputs.iterdir() if p.is_file())
    return [*COMMANDS, *(f"read {name} --json" for name in files), *(f"read {n}" for n in files)]


def answer(inputs: Path, out: Path) -> None:
    """Run all commands, two at a time, and keep what they said."""
    out.mkdir(parents=True)
    lines = asked(inputs)

    def run(i: int) -> None:
        place = out / f"work{i}"
        shutil.copytree(inputs, place)
        before = set(place.rglob("*"))
        done = subprocess.run(
            [sys.executable, "-m", "specsim", *lines[i].split()],
            cwd=place,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        )
        written = {p.name: p.read_text() for p in sorted(set(place.rglob("*")) - before)}
        record = {"argv": lines[i], "code": done.returncode, "stdout": done.stdout}
        record |= {"stderr": done.stderr, "written": written}
        (out / f"{i:03d}.json").write_text(json.dumps(record, indent=1))
        shutil.rmtree(place)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, range(len(lines))))


def differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """Where two documents differ."""
    if isinstance(one, str) and isinstance(other, str) and one != other:
        parts = [_parsed(one), _parsed(other)]
        if not isinstance(parts[0], str) and not isinstance(parts[1], str):
            yield from differences(*parts, where)
        else:
            lines = [text.splitlines() for text in (one, other)]
            both = zip(*lines, strict=False)
            first = next((i for i, (a, b) in enumerate(both) if a != b), min(map(len, lines)))
            shown = [(text[first : first + 1] or ["(end)"])[0][:160] for text in lines]
            yield f"{where} line {first + 1}: {shown[0]!r} | {shown[1]!r}"
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{where}[{i}]")
    elif isinstance(one, int | float) and isinstance(other, int | float):
        if not math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12):
            yield f"{where}: {one} | {other}"
    elif one != other:
        yield f"{where}: {str(one)[:160]} | {str(other)[:160]}"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def compare(one: Path, other: Path) -> int:
    """Print what differs and how many answers are the same."""
    old, new = (
        {r["argv"]: r for r in (json.loads(p.read_text()) for p in sorted(x.glob("*.json")))}
        for x in (one, other)
    )
    same = 0
    for argv, record in old.items():
        found = list(differences(record, new.get(argv)))
        same += not found
        if found:
            print(f"\nspecsim {argv}")
            print("".join(f"    {line}\n" for line in found[:6]), end="")
    print(f"\n{same} of {len(old)} answers are the same")
    return int(same < len(old))


def main(argv: list[str]) -> int:
    """Do what the first word says."""
    match argv:
        case ["save", folder]:
            save(Path(folder).absolute())
        case ["answer", inputs, out]:
            answer(Path(inputs).absolute(), Path(out).absolute())
        case ["compare", one, other]:
            return compare(Path(one), Path(other))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
