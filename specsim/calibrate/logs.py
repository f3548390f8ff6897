"""From what readers found to a setup and observations: what a calibration of logs starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.calibrate.log_setup import (
    Known,
    Stated,
    build_setup,
    collect,
    library_id,
    setting_of,
    speculates,
)
from specsim.calibrate.probed import foreign, probe_rows, probes_of, with_measured_gpu
from specsim.calibrate.residuals import steps_are_priced
from specsim.errors import CalibrationError
from specsim.hardware import gpu_names
from specsim.logs import LogEntry, LogRow, Timing
from specsim.observations import Observation, observations_from_rows
from specsim.server import Setup
from specsim.setting import SpecSetting

BASE_NOISE = 0.03
"""Relative error of a cell beyond the standard error of its windows: what a fit starts from."""

MEASURED = ("output_tps", "tpot_s", "round_time_s", "accept_length")

USAGE_STEP = {"vllm_log": 0.001, "trtllm_log": 0.001, "trtllm_stats": 0.0001}
"""Step of the printed share of the KV cache in use; SGLang prints hundredths."""

CONTEXT_ERROR = 0.3
"""Relative error of the stated lengths as the context of the windows that were used."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """A setup and observations made from logs, and what had to be assumed."""

    setup: Setup
    observations: tuple[Observation, ...]
    notes: tuple[str, ...] = ()


def gather(
    entries: Sequence[LogEntry],
    stated: Stated,
    base: Setup | None = None,
    *,
    rows_elsewhere: bool = False,
) -> Gathered:
    """Turn entries into a setup and weighted observations.

    Parameters
    ----------
    entries
        From all files.
    stated
        What the user says; wins over the logs.
    base
        A setup.toml to start from instead of building one.
    rows_elsewhere
        Whether entries without a usable row are no error: a probe's hardware is worth having.

    Raises
    ------
    InputError
        If something that is needed is neither in the logs nor stated; names every missing flag.
    CalibrationError
        If no row can be used.
    """
    known = collect(entries, stated)
    setup = base if base is not None else build_setup(known, stated, entries)
    rows: list[dict[str, object]] = []
    for probe in probes_of(entries):
        own = library_id(probe.settings["gpu"], gpu_names())
        reason = foreign(probe, setup, own)
        if reason is not None:
            known.notes.append(f"{probe.path}: not used: {reason}")
            continue
        setup = with_measured_gpu(setup, probe)
        steps, about = probe_rows(probe, setup)
        rows += steps
        known.notes += about
    for entry in entries:
        if entry.format == "probe":
            continue
        for row in entry.rows:
            made = _observation(entry, row, known, stated, setup)
            if isinstance(made, str):
                known.notes.append(f"{entry.path}: {made}")
            else:
                rows.append(made)
        rows += _trace_rows(entry, known, stated)
        rows += _draft_rows(entry, known, stated, setup)
        if entry.format == "trtllm_log" and "algorithm" not in entry.settings and entry.rows:
            known.notes.append(
                f"{entry.path}: it does not say whether drafts are verified, taken as without "
                "speculation; a speculating server needs its iteration statistics (JSON)"
            )
    if not rows and not rows_elsewhere:
        raise CalibrationError(
            ", ".join(sorted({e.path for e in entries})) or "no files",
            "hold no usable measurement of decoding",
            "add a server log with decode lines, or a benchmark result",
        )
    notes = list(dict.fromkeys(known.notes))
    for entry in entries:
        dropped = {k: v for k, v in entry.windows.dropped.items() if v}
        if dropped and entry.format != "probe":
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
            notes.append(f"{entry.path}: {entry.windows.used} windows used, dropped: {listed}")
    observations = observations_from_rows(rows, origin="logs").rows
    priced = (_with_priced_drafts(row, setup) for row in observations)
    kept = [row for row in priced if row is not None]
    prompts = [o for entry in entries for o in _prompts(entry, kept, stated, setup)]
    return Gathered(setup, (*kept, *prompts), tuple(notes))


def _with_priced_drafts(row: Observation, setup: Setup) -> Observation | None:
    """Leave out a drafting time that the model has nothing to compare with; None if nothing else.

    Of a lookup, of a single step whose token the draft extend gives, of a drafter not named.
    """
    if row.draft_time_s is None or steps_are_priced(row, setup):
        return row
    return replace(row, draft_time_s=None) if row.round_time_s is not None else None


def _observation(
    entry: LogEntry, row: LogRow, known: Known, stated: Stated, setup: Setup
) -> dict[str, object] | str:
    """One observation of a row, or why there is none."""
    if speculates(entry, row):
        setting = setting_of({**known.settings, **entry.settings}, stated)
        if setting is None or "num_draft_tokens" not in setting:
            return "a speculating row without its setting: add --steps, --topk, --draft-tokens"
    else:
        setting = {"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1}
        if entry.settings.get("scheduler") in ("overlap", "sequential"):
            setting["scheduler"] = entry.settings["scheduler"]
    load = row.concurrency if row.kind == "closed_loop" else row.batch_size
    if load is None or load < 0.5:
        return "a row without a number of running requests"
    made: dict[str, object] = {"kind": row.kind, **setting, "concurrency": max(1, round(load))}
    made |= _lengths(entry, row, stated, setup)
    made |= _throughput(entry, row)
    made |= {
        "batch_size": row.batch_size,
        "ttft_s": row.ttft_s,
        # llama-server's throughput is that of a steady window, not of a run from start to drain
        "num_requests": None if entry.format == "llamacpp" else row.num_requests,
        "input_cached": row.extra.get("input_cached"),
        "max_running_requests": entry.settings.get("max_running_requests"),
        "weight": _weight(row),
        "source": f"{entry.path} ({entry.format}, {row.windows} windows)",
    }
    if row.kind == "open_loop":
        made["request_rate"] = row.request_rate
    if setting["algorithm"] != "none":
        made |= {"accept_length": row.accept_length, "accept_length_scope": _scope(row)}
        for depth, value in enumerate((row.survival or ())[:8], start=1):
            made[f"survival_{depth}"] = value
    if setting["algorithm"] == "NGRAM":  # a lookup may find nothing: its share of rounds is fitted
        made["drafted_per_round"] = row.drafted_per_round
    if all(made.get(key) is None for key in MEASURED):
        return "a row without throughput, TPOT, round time or accept length"
    return {key: value for key, value in made.items() if value is not None}


def _throughput(entry: LogEntry, row: LogRow) -> dict[str, object]:
    """Throughput of a row, or a time where it states none that a model can be compared with.

    What llama.cpp prints per request leaves the prompt out: a time per token, not the throughput
    of its client, which takes time stamps.
    """
    if entry.format == "llamacpp" and row.output_tps and row.output_tps_sem is None:
        return {"tpot_s": row.tpot_s or 1.0 / row.output_tps}
    if row.output_tps is None and row.tpot_s is None:
        return {"round_time_s": row.round_time_s}
    told: dict[str, object] = {"output_tps": row.output_tps, "tpot_s": row.tpot_s}
    if row.kind == "steady_decode" and speculates(entry, row):
        # Windows without prefill are those in which no request ends: the slow ones have more of
        # them. Their round time does not depend on that; their throughput does.
        told["round_time_s"] = row.round_time_s
    return told


def _scope(row: LogRow) -> str | None:
    if row.accept_length is None:
        return None
    return (
        "run"
        if row.accept_length_scope == "cell" and row.windows >= 20
        else (row.accept_length_scope)
    )


def _weight(row: LogRow) -> float:
    """Relative inverse variance: the windows' standard error on top of the base noise."""
    if row.output_tps_sem is None or not row.output_tps:
        return 0.5 if row.windows <= 1 else 1.0
    relative = row.output_tps_sem / row.output_tps
    return round(BASE_NOISE**2 / (BASE_NOISE**2 + relative**2), 6)


def _lengths(entry: LogEntry, row: LogRow, stated: Stated, setup: Setup) -> dict[str, object]:
    """Context of a steady row, lengths of a whole run."""
    if row.kind != "steady_decode":
        said: dict[str, object] = {
            "input_len": row.input_len
            or entry.settings.get("prefill_tokens_per_sequence")
            or stated.input_len,
            "output_len": row.output_len or stated.output_len,
        }
        return said
    capacity = entry.settings.get("kv_tokens") or setup.engine.kv_tokens
    usual = setup.workload.input_len + setup.workload.output_len / 2
    if not (row.kv_usage and capacity and row.batch_size):
        return {"context_len": round(usual, 1)}
    tokens_per_unit = float(str(capacity)) / row.batch_size
    context = row.kv_usage * tokens_per_unit
    if stated.input_len is not None and stated.output_len is not None:
        # a printed share of a large pool says little of a few requests
        step = USAGE_STEP.get(entry.format, 0.01) * tokens_per_unit
        trust = 1.0 / (1.0 + (step / (CONTEXT_ERROR * usual)) ** 2)
        context = trust * context + (1.0 - trust) * usual
    return {"context_len": round(context, 1)}


def _draft_rows(
    entry: LogEntry, known: Known, stated: Stated, setup: Setup
) -> list[dict[str, object]]:
    """Drafting times that llama-server sums up: a call drafts for all slots that have a draft due.

    They are that of the mean number of slots, fewer than run where prompts keep some busy.
    """
    setting = setting_of({**known.settings, **entry.settings}, stated)
    if entry.format != "llamacpp" or setting is None or "num_draft_tokens" not in setting:
        return []
    return [
        {
            "kind": "steady_decode",
            **setting,
            "concurrency": timing.batch_size,
            "context_len": setup.workload.input_len + setup.workload.output_len / 2,
            "draft_time_s": timing.seconds,
            "source": f"{entry.path} ({entry.format}, {timing.count} calls of {timing.name})",
        }
        for timing in entry.timings
        if timing.phase == "draft" and timing.batch_size and timing.name.startswith("draft-")
    ]


def _prompts(
    entry: LogEntry, rows: Sequence[Observation], stated: Stated, setup: Setup
) -> list[Observation]:
    """Prompts that ran alone in an iteration of TensorRT-LLM: what one client waits for."""
    if not entry.format.startswith("trtllm"):
        return []
    settings = [o.setting for o in rows if o.source.startswith(f"{entry.path} (")]
    return [
        Observation(
            kind="closed_loop",
            setting=settings[0] if settings else SpecSetting.none(),
            concurrency=1,
            input_len=timing.prompt_tokens,
            output_len=stated.output_len or setup.workload.output_len,
            ttft_s=timing.seconds,
            source=f"{entry.path} ({entry.format}, {timing.count} prompts alone)",
        )
        for timing in entry.timings
        if timing.phase == "prefill"
    ]


def _trace_rows(entry: LogEntry, known: Known, stated: Stated) -> list[dict[str, object]]:
    """Round times from a profiler trace: decode steps, or draft + verify + extend of one batch."""
    by_batch: dict[int, dict[str, Timing]] = {}
    for timing in entry.timings:
        if timing.batch_size is not None and "nccl" not in entry.format:
            by_batch.setdefault(timing.batch_size, {})[timing.phase] = timing
    rows: list[dict[str, object]] = []
    setting = setting_of({**known.settings, **entry.settings}, stated)
    for batch, phases in sorted(by_batch.items()):
        common = {
            "kind": "steady_decode",
            "concurrency": batch,
            "weight": 0.5,
            "source": f"{entry.path} ({entry.format})",
        }
        if "verify" in phases and setting is not None and "num_draft_tokens" in setting:
            parts = [phases[p].seconds for p in ("draft", "verify", "extend") if p in phases]
            row = {**common, **setting, "round_time_s": sum(parts)}
            if "draft" in phases:
                row["draft_time_s"] = phases["draft"].seconds
            rows.append(row)
        elif "decode" in phases and "verify" not in phases:
            plain = {"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1}
            rows.append({**common, **plain, "round_time_s": phases["decode"].seconds})
    if rows:
        known.notes.append(f"{entry.path}: round times from a trace carry no CPU gaps")
    return rows
