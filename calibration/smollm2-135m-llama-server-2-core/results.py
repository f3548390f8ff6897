"""From the runs to requests.jsonl.gz, logs/, passes.csv and observations.csv."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cells import Cell
from load import OUTPUT_TOKENS

_KEEP = re.compile(
    rb"eval time =|draft acceptance|acc per pos|accepted +\d+/|synthetic acceptance|system_info"
    rb"|n_slots|n_threads|build[ _:]|model size|n_ctx_seq|n_batch|n_ubatch|flash_attn|kv_unified"
    rb"|model params|file type|n_layer  |graph splits|repack|KV buffer|speculative implementation"
    rb"|n_max=|CPU model buffer|CPU_REPACK|processing task|new prompt|stop processing|size_m="
    rb"|print_info: (arch|n_embd|general\.name)  |loading (draft )?model '"
)
_STATISTICS = re.compile(rb"statistics +\S+:")
_PATH = re.compile(rb"'/[^']*/([^'/]+)'")
_RATES = re.compile(r"#acc rate/pos = \(([^)]*)\)")
_ALGORITHMS = {"none": "none", "chain": "STANDALONE", "real": "STANDALONE", "ngram": "NGRAM"}

TYPICAL_NOISE = 0.03
"""Relative error of a row of weight 1."""

DRIFT_S = 400.0
"""Over which the machine's speed is averaged, s."""
NO_DRIFT = 0.05
"""Weight of no drift at all; a group of anchors right there weighs 1."""

_Record = dict[str, Any]


def write_results(out: Path) -> None:
    """Write what the runs in a folder gave; may be called again at any time."""
    records = [json.loads(path.read_text()) for path in sorted((out / "runs").glob("*.json"))]
    if not records:
        return
    records.sort(key=lambda record: record["began_unix"])
    _write_requests(out / "requests.jsonl.gz", records)
    write_logs(out, records)
    drift = drift_of([record for record in records if record["anchor"]])
    rows = [_pass_row(record, drift, out) for record in records]
    _write_csv(out / "passes.csv", rows)
    cells: dict[str, list[_Record]] = defaultdict(list)
    for row in rows:
        if not row["anchor"]:
            cells[row["cell"]].append(row)
    noise = _pooled(rows, "output_tps") or TYPICAL_NOISE
    observations = [_observation(found, noise) for _, found in sorted(cells.items())]
    for target in sorted({row["target"] for row in observations}):
        (out / target).mkdir(exist_ok=True)
        part = [row for row in observations if row["target"] == target]
        _write_csv(out / target / "observations.csv", part)
    _write_summary(out / "summary.json", rows, observations)


def _write_requests(path: Path, records: Iterable[_Record]) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as sink:
        for record in records:
            for request in record["requests"]:
                start_s, end_s = record["window"]
                line = {
                    "run": record["key"],
                    **request,
                    "in_window": start_s <= request["start_s"] and request["end_s"] <= end_s,
                }
                line |= {k: round(v, 4) for k, v in line.items() if isinstance(v, float)}
                sink.write((json.dumps(line, separators=(",", ":")) + "\n").encode())


def write_logs(out: Path, records: Iterable[_Record]) -> None:
    """Write each run's log, trimmed to what readers need."""
    (out / "logs").mkdir(exist_ok=True)
    for record in records:
        source = out / "runs" / f"{record['key']}.log"
        if not source.exists():
            continue
        with gzip.GzipFile(out / "logs" / f"{record['key']}.log.gz", "wb", mtime=0) as sink:
            sink.writelines(trimmed(source.read_bytes().splitlines(keepends=True)))


def trimmed(lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines that readers need, and the last of the cumulative statistics."""
    kept, last = [], None
    for line in lines:
        if _STATISTICS.search(line):
            last = line
        elif _KEEP.search(line):
            kept.append(_PATH.sub(rb"'\1'", line))
    return kept + ([last] if last else [])


def drift_of(anchors: Sequence[_Record]) -> list[tuple[float, float]]:
    """Return (time, ln of the machine's speed against its median), per group of anchors."""
    by_cell: dict[str, list[float]] = defaultdict(list)
    for record in anchors:
        by_cell[Cell(**record["cell"]).name].append(record["output_tps"])
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in anchors:
        median = statistics.median(by_cell[Cell(**record["cell"]).name])
        groups[record["key"].split("-")[0]].append(
            (_middle(record), math.log(record["output_tps"] / median))
        )
    return sorted(
        (statistics.fmean(t for t, _ in found), statistics.fmean(r for _, r in found))
        for found in groups.values()
    )


def _middle(record: _Record) -> float:
    return float(record["began_unix"]) + 1.0 + sum(record["window"]) / 2


def drift_at(drift: Sequence[tuple[float, float]], time_s: float) -> float:
    """Return the machine's speed at a time, 1 without anchors.

    A Gaussian mean over the groups of anchors: single groups are as noisy as single runs, and
    dividing by them as they are makes repetitions agree less, not better. Far from all anchors
    nothing is known of the drift, and none is assumed.
    """
    if not drift:
        return 1.0
    weights = [math.exp(-0.5 * ((time_s - t) / DRIFT_S) ** 2) for t, _ in drift]
    known = sum(w * r for w, (_, r) in zip(weights, drift, strict=True))
    return math.exp(known / (sum(weights) + NO_DRIFT))


def _pass_row(record: _Record, drift: Sequence[tuple[float, float]], out: Path) -> _Record:
    cell, (start_s, end_s) = Cell(**record["cell"]), record["window"]
    inside = [r for r in record["requests"] if r["end_s"] > start_s]
    whole = [r for r in inside if r["index"] > 0] or inside
    if not inside:
        raise SystemExit(f"{record['key']}: no request was answered in the window; delete the run")
    factor = drift_at(drift, _middle(record))
    decoded = sum(r["predicted_n"] - 1 for r in inside)
    rounds = decoded - sum(r["draft_n_accepted"] for r in inside)
    decode_s = sum(r["predicted_ms"] for r in inside) / 1e3
    ttft_s = statistics.fmean(r["end_s"] - r["predicted_ms"] / 1e3 - r["start_s"] for r in whole)
    drafts = sum(r["draft_n"] for r in inside) / rounds
    # the server counts rounds that drafted; a lookup that finds nothing makes the others
    drafting = drafts / cell.steps if cell.kind == "ngram" else 1.0
    counted = survival_of(out / "runs" / f"{record['key']}.log", cell.steps)
    survival = [drafting * p for p in counted]
    row: _Record = {
        "run": record["key"], "cell": cell.name, "anchor": int(record["anchor"]),
        "target": cell.target, "kind": cell.kind, "steps": cell.steps, "level": cell.level,
        "concurrency": cell.concurrency, "began_unix": round(record["began_unix"], 1),
        "measured_s": round(end_s - start_s, 3), "requests": len(inside),
        "output_tps_raw": round(record["output_tps"], 3), "drift": round(factor, 5),
        "output_tps": round(record["output_tps"] / factor, 3),
        "accept_length": round(decoded / rounds, 4),
        "drafted_per_round": round(drafts, 4),
        "input_len": round(statistics.fmean(r["prompt_n"] for r in inside), 2),
        "output_len": sum(OUTPUT_TOKENS) / 2,
        "ttft_s": round(ttft_s * factor, 5), "tpot_s": round(decode_s / decoded * factor, 7),
        "decode_round_s": round(decode_s / rounds * factor, 7),
        "prompt_s": round(statistics.fmean(r["prompt_ms"] for r in whole) / 1e3 * factor, 5),
    }  # fmt: skip
    return row | {f"survival_{d + 1}": round(p, 5) for d, p in enumerate(survival)}


def survival_of(log: Path, steps: int) -> list[float]:
    """Return P(at least d drafts accepted) over the rounds that drafted, from a server's log.

    The server's statistics are cumulative: the last line holds all rounds, of requests that were
    given up too.
    """
    if not steps or not log.exists():
        return []
    found = _RATES.findall(log.read_text(errors="replace"))
    return [float(text) for text in found[-1].split(",")[:steps]] if found else []


def _observation(passes: list[_Record], noise: float) -> _Record:
    """One row of observations.csv from the passes over a cell; `noise` is that of one pass."""
    first = passes[0]
    speeds = [row["output_tps"] for row in passes]

    def mean(name: str) -> float:
        return float(f"{statistics.fmean(row[name] for row in passes):.6g}")

    steps = first["steps"]
    row: _Record = {
        "kind": "closed_loop", "algorithm": _ALGORITHMS[first["kind"]], "topk": 1,
        "num_steps": steps, "num_draft_tokens": steps + 1, "scheduler": "sequential",
        "concurrency": first["concurrency"], "input_len": mean("input_len"),
        "output_len": mean("output_len"), "output_tps": mean("output_tps"),
        "accept_length": mean("accept_length"), "accept_length_scope": "cell",
    }  # fmt: skip
    row |= {f"survival_{d}": mean(f"survival_{d}") for d in range(1, steps + 1)
            if all(f"survival_{d}" in found for found in passes)}  # fmt: skip
    level = {"chain": f"pinned-{first['level']}", "ngram": "lookup"}.get(first["kind"], "mixed")
    spread = statistics.stdev(speeds) / statistics.fmean(speeds) if len(speeds) > 1 else ""
    return row | {
        "ttft_s": mean("ttft_s"), "tpot_s": mean("tpot_s"),
        "dataset": level if steps else "", "temperature": 0.0,
        "weight": f"{len(passes) * (TYPICAL_NOISE / noise) ** 2:.3f}",
        "source": f"collect.py {first['cell']}", "target": first["target"],
        "draft": {"chain": "10 layers q4_0", "real": "q4_0", "ngram": "ngram-simple"}.get(
            first["kind"], ""),
        "drafted_per_round": mean("drafted_per_round"), "output_tps_raw": mean("output_tps_raw"),
        "decode_round_s": mean("decode_round_s"), "prompt_s": mean("prompt_s"),
        "passes": len(passes), "sd": f"{spread:.5f}" if spread != "" else "",
        "measured_s": mean("measured_s"),
    }  # fmt: skip


def _write_summary(path: Path, rows: list[_Record], observations: list[_Record]) -> None:
    """Write how large the noise is, with and without the correction for drift."""
    anchors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["anchor"]:
            anchors[row["cell"]].append(row["output_tps_raw"])
    summary = {
        "cells": len(observations),
        "runs": len(rows),
        "pooled_relative_sd_corrected": _pooled(rows, "output_tps"),
        "pooled_relative_sd_raw": _pooled(rows, "output_tps_raw"),
        "anchors": {
            name: {
                "runs": len(v),
                "median": statistics.median(v),
                "relative_sd": statistics.stdev(v) / statistics.fmean(v) if len(v) > 1 else None,
            }
            for name, v in anchors.items()
        },
    }
    path.write_text(json.dumps(summary, indent=1) + "\n")


def _pooled(rows: list[_Record], name: str) -> float | None:
    """Relative standard deviation of one pass, over the cells that were run more than once."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row["anchor"]:
            found[row["cell"]].append(row[name])
    spreads = [
        statistics.variance(v) / statistics.fmean(v) ** 2 for v in found.values() if len(v) > 1
    ]
    return round(math.sqrt(statistics.fmean(spreads)), 5) if spreads else None


def _write_csv(path: Path, rows: list[_Record]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    survival = sorted(column for column in columns if column.startswith("survival_"))
    if survival:
        rest = [column for column in columns if column not in survival]
        after = (
            (rest.index("accept_length_scope") + 1) if "accept_length_scope" in rest else len(rest)
        )
        columns = rest[:after] + survival + rest[after:]
    with path.open("w", newline="") as sink:
        writer = csv.DictWriter(sink, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
