"""Damage sample files over all readers, and go on where the last run stopped.

    python benchmarks/fuzz_readers.py --minutes 10

Seeds count up from 0 for each reader and check, so that a state file holds what was done and the
same seed gives the same file. Each case must end in time and memory, with a document that holds or
a refusal in words; the faithful ones, which never make one number into another, with no number that
the file does not say. The counts go into docs/validation/robustness.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "readers"), str(ROOT / "tests")]

import mutate  # noqa: E402
import test_fuzz  # noqa: E402

from specsim.architecture.hf_config import table_of_config  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from specsim.observations import read_observations  # noqa: E402
from specsim.profile import load_profile  # noqa: E402
from specsim.server import read_setup  # noqa: E402

STATE = Path(__file__).with_name("fuzz-state.json")
PAGE = ROOT / "docs" / "validation" / "robustness.md"
BEGIN, END = "<!-- fuzz_readers: begin -->", "<!-- fuzz_readers: end -->"
BATCH = 25
"""Cases of one reader and check before the next has its turn."""
SECONDS, MEGABYTES = 20, 300
"""Time of a case, and memory of the run, that must not be passed."""

FOLDER = ROOT / "calibration" / "kimi-k2.5-int4-8x-rtx-pro-6000"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "_name_or_path": "a/b",
}
PROFILE = ROOT / "specsim" / "profiles" / "kimi-k2.5-int4-8x-rtx-pro-6000.toml"
INPUTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "observations.csv": ((FOLDER / "observations.csv").read_text("utf-8"), read_observations),
    "setup.toml": ((FOLDER / "setup.toml").read_text("utf-8"), read_setup),
    "profile.toml": (PROFILE.read_text("utf-8"), load_profile),
    "config.json": (json.dumps(CONFIG, indent=1), table_of_config),
}
"""Files of our own formats: what they are made from, and what reads them."""


def own_case(name: str, seed: int, folder: Path) -> None:
    """Check that a damaged file of ours is read, or refused in words."""
    text, read = INPUTS[name]
    path = folder / name
    path.write_bytes(mutate.wild(text.encode(), test_fuzz.random.Random(seed)))
    with suppress(SpecsimError):
        read(path)


def checks(folder: Path) -> dict[str, Callable[[int], None]]:
    """Every check of every reader, by name."""
    found: dict[str, Callable[[int], None]] = {}
    for name in test_fuzz.SEEDS:
        found[f"{name}: faithful"] = partial(test_fuzz.faithful_case, name)
        found[f"{name}: wild"] = partial(test_fuzz.wild_case, name)
        found[f"{name}: file"] = partial(test_fuzz.file_case, name, path=folder / "file")
    for name in INPUTS:
        found[f"{name}: wild"] = partial(own_case, name, folder=folder)
    return found


def too_long(*_: object) -> None:
    """Interrupt a case."""
    raise TimeoutError(f"more than {SECONDS} s")


def failure(check: Callable[[int], None], seed: int) -> str:
    """Run one case; return what is wrong, empty if nothing is."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        check(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def run(state: dict[str, Any], minutes: float, folder: Path) -> None:
    """Run what failed before again, then cases in turn until the time is over."""
    signal.signal(signal.SIGPROF, too_long)
    every = checks(folder)
    state["failed"] = [f for f in state["failed"] if failure(every[f["check"]], f["seed"])]
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for name, check in every.items():
            for _ in range(BATCH):
                seed = state["done"].get(name, 0)
                begun = time.perf_counter()
                if said := failure(check, seed):
                    state["failed"].append({"check": name, "seed": seed, "error": said})
                state["done"][name] = seed + 1
                state["slowest_s"] = max(state["slowest_s"], time.perf_counter() - begun)
            if time.monotonic() > end:
                break
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        state["peak_mb"] = max(state["peak_mb"], peak)
        STATE.write_text(json.dumps(state, indent=1), encoding="utf-8")


def section(state: dict[str, Any]) -> str:
    """Return the section of the page, with its marks."""
    done: dict[str, int] = state["done"]
    readers = dict.fromkeys(name.rpartition(": ")[0] for name in done)
    kinds = ("faithful", "wild", "file")
    rows = [
        f"| {reader} | " + " | ".join(str(done.get(f"{reader}: {k}", "")) for k in kinds) + " |"
        for reader in readers
    ]
    failed = [f"- `{f['check']}`, seed {f['seed']}: {f['error'][:120]}" for f in state["failed"]]
    lines = [
        BEGIN,
        "## Damaged files",
        "",
        f"{sum(done.values()):,} damaged files so far, {len(failed)} of them read wrongly, crashed",
        f"or stopped; the slowest took {state['slowest_s']:.1f} s (bar {SECONDS}), and",
        f"the process {state['peak_mb']:.0f} MB at most (bar {MEGABYTES}).",
        "`python benchmarks/fuzz_readers.py --minutes 10` adds to it: seeds count up from 0 in",
        "each cell of the table, which says how many were done.",
        "",
        "*Faithful* damage cuts, breaks lines, inserts what no number has, and moves lines: no",
        "number may be read that the whole file does not say. *Wild* damage does anything: reading",
        "must end, and what is said must hold together. *File* has the format found too.",
        "",
        "What chance does not make (bombs, endless digits and depths, lines each of another kind,",
        "escape sequences, full disks, closed outputs, names too long) is in",
        "`pytest tests/test_hostile.py tests/readers/test_hostile_logs.py`: an answer, or one line",
        "and exit code 2, in at most 20 s of CPU time and 250 MB.",
        "",
        "| reader | faithful | wild | file |",
        "|---|---|---|---|",
        *rows,
        *([""] if failed else []),
        *failed,
        END,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, and write the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    said = parser.parse_args()
    state: dict[str, Any] = {"done": {}, "failed": [], "slowest_s": 0.0, "peak_mb": 0.0}
    if STATE.exists():
        state = json.loads(STATE.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        run(state, said.minutes, Path(folder))
    page = PAGE.read_text("utf-8") if PAGE.exists() else "# Robustness\n\n"
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2].lstrip("\n")
    PAGE.write_text(f"{before}{section(state)}{after}", encoding="utf-8")
    failed = len(state["failed"])
    print(f"{sum(state['done'].values()):,} cases, {failed} failed, see {PAGE.name}")
    sys.exit(failed > 0 or state["peak_mb"] > MEGABYTES)


if __name__ == "__main__":
    main()
