"""Record what a real draft proposes and what the target accepts, round by round (not timed).

    python acceptance.py --out DIR [--requests 24]

The server's debug log gives each drafted token's probability, its two runners-up, how many tokens
were accepted, and the target's own token, so that confidence and rank can be held against
acceptance. Writes rounds.jsonl.gz.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from cells import Cell
from load import OUTPUT_TOKENS, post
from models import make_models, wheel_model
from prompts import prompt
from server import arguments, link_binaries, package_bin, running

STEPS = 5
TEMPERATURES = (0.0, 0.8)

_CANDIDATE = re.compile(rb"seq_id (\d+), draft candidate +(\d+), pos +(\d+): +(\d+) \( *([\d.]+)\)")
_ADDED = re.compile(
    rb"task (\d+) \|.*add accepted tokens: sampled=(\d+), ids.size=(\d+), n_draft=(\d+)"
)


def read_rounds(lines: list[bytes]) -> list[dict[str, Any]]:
    """Return the rounds of one request after the other, as a single slot logs them.

    Each holds the task, ``p`` (probability of the drafted token by depth), ``candidates`` (three
    best tokens and probabilities by depth), ``accepted``, ``drafted`` and ``target_rank``: the
    rank that the draft gave the target's token at the first rejection (3: below the third).
    """
    rounds: list[dict[str, Any]] = []
    candidates: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        if found := _CANDIDATE.search(line):
            depth = int(found[3])
            if depth == 0 and found[2] == b"0":
                candidates = {}
            candidates.setdefault(depth, []).append((int(found[4]), float(found[5])))
        elif found := _ADDED.search(line):
            accepted, drafted, target = int(found[3]) - 1, int(found[4]), int(found[2])
            tokens = [token for token, _ in candidates.get(accepted, [])]
            rank = tokens.index(target) if target in tokens else 3
            rounds.append({
                "task": int(found[1]),
                "p": [candidates[d][0][1] for d in range(drafted) if d in candidates],
                "runners_up": [
                    [p for _, p in candidates[d][1:]] for d in range(drafted) if d in candidates
                ],
                "accepted": accepted,
                "drafted": drafted,
                "target_rank": rank if accepted < drafted else None,
            })  # fmt: skip
            candidates = {}
    return rounds


def main() -> int:
    """Ask for completions at each temperature and write the rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--cache", type=Path, default=home / "specsim-live-models")
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="llama-server-") as folder:
        env = link_binaries(options.bin or package_bin(), Path(folder))
        source = options.model or wheel_model()
        models = make_models(source, Path(folder) / "llama-quantize", env, options.cache)
        args = arguments(Cell("f16", "real", STEPS, "", 1), models, 2)
        args[args.index("-lv") + 1] = "5"
        for temperature in TEMPERATURES:
            log = Path(folder) / f"debug-{temperature}.log"
            with running(Path(folder) / "llama-server", args, env, log) as port:
                kinds = _ask(port, options.requests, temperature)
            rounds = read_rounds(log.read_bytes().splitlines())
            tasks = {task: n for n, task in enumerate(dict.fromkeys(r["task"] for r in rounds))}
            for found in rounds:
                number = tasks[found.pop("task")]
                kept.append({
                    "temperature": temperature, "request": number,
                    "prompt_kind": kinds[number], **found,
                })  # fmt: skip
            print(f"temperature {temperature}: {len(rounds)} rounds", file=sys.stderr)
    with gzip.GzipFile(options.out / "rounds.jsonl.gz", "wb", mtime=0) as sink:
        for found in kept:
            sink.write((json.dumps(found, separators=(",", ":")) + "\n").encode())
    return 0


def _ask(port: int, requests: int, temperature: float) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    kinds = []
    for index in range(requests):
        seed = f"acceptance/{index}"
        kind, text = prompt(seed)
        rng = random.Random(f"length {seed}")
        post(connection, text, rng.randint(*OUTPUT_TOKENS), rng.randrange(1, 2**31), temperature)
        kinds.append(kind)
        print(f"\r{index + 1}/{requests} requests", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    connection.close()
    return kinds


if __name__ == "__main__":
    raise SystemExit(main())
