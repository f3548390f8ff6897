"""A setup from what logs and the user say: filled where it can be, exact about what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specsim.architecture import model_names
from specsim.calibrate.probed import measured_gpu, probes_of
from specsim.engine import engine_names
from specsim.errors import InputError
from specsim.hardware import gpu_names, load_gpu
from specsim.logs import LogEntry, LogRow
from specsim.server import Setup, setup_from_mapping

ENGINE_KEYS = (
    "tp",
    "dp",
    "ep",
    "attention_backend",
    "kv_dtype",
    "max_running_requests",
    "cuda_graph_max_bs",
    "mem_fraction_static",
    "kv_tokens",
    "chunked_prefill_size",
    "page_size",
    "kv_unified",
)

SETTING_KEYS = ("algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler", "draft")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user says beside the logs; None where the logs shall say it.

    Parameters
    ----------
    model, gpu, link, draft, engine, engine_version
        Library ids (or a path of a config.json), engine and version.
    gpu_count, tp
        GPUs.
    algorithm, topk, num_steps, num_draft_tokens
        Setting of speculating rows whose file does not say.
    input_len, output_len
        Mean lengths of the requests.
    quantisation, allreduce
        As in setup.toml.
    """

    model: str | None = None
    gpu: str | None = None
    link: str | None = None
    draft: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    gpu_count: int | None = None
    tp: int | None = None
    algorithm: str | None = None
    topk: int | None = None
    num_steps: int | None = None
    num_draft_tokens: int | None = None
    input_len: float | None = None
    output_len: float | None = None
    quantisation: str | None = None
    allreduce: str | None = None


@dataclass(slots=True)
class Known:
    """Settings collected from all entries and the user."""

    settings: dict[str, Any] = field(default_factory=dict)
    engine: str | None = None
    version: str | None = None
    notes: list[str] = field(default_factory=list)


def collect(entries: Sequence[LogEntry], stated: Stated) -> Known:
    """Merge what all entries say of their server; the user wins, speculating servers come first."""
    known = Known(engine=stated.engine, version=stated.engine_version)
    drafting = [e for e in entries if any(speculates(e, r) for r in e.rows)]
    plain = [e for e in entries if e not in drafting]
    plain.sort(key=lambda e: e.format == "probe")  # a server's own words come first
    for entry in (*drafting, *plain):  # the setup is that of the speculating server
        for key, value in entry.settings.items():
            if entry in drafting or key not in SETTING_KEYS:
                known.settings.setdefault(key, value)
        if known.engine is None and entry.engine in engine_names():
            known.engine = entry.engine
        if known.version is None:
            known.version = entry.engine_version
    if known.version is None and "version_range" in known.settings:
        newest = str(known.settings["version_range"]).split("-")[-1]
        known.version = newest
        known.notes.append(f"engine version {newest}: newest that prints lines of this form")
    return known


def build_setup(
    known: Known, stated: Stated, entries: Sequence[LogEntry], drafts: bool = False
) -> Setup:
    """Build the setup, with a drafter if `drafts` or an entry speculates.

    Raises
    ------
    InputError
        Names every flag that is missing.
    """
    settings = known.settings
    model = stated.model or library_id(settings.get("model"), model_names())
    gpu = stated.gpu or library_id(settings.get("gpu"), gpu_names())
    tp = stated.tp or settings.get("tp")
    missing = []
    if model is None:
        said = f" (the log says {settings['model']!r})" if "model" in settings else ""
        missing.append(f"--model ID or config.json{said}")
    probes = probes_of(entries)
    if gpu is None and not probes:
        missing.append("--gpu ID")
    if tp is None:
        missing.append("--tp N")
    if known.engine is None:
        missing.append("--engine " + "|".join(engine_names()))
    if known.version is None:
        missing.append("--engine-version V")
    if missing:
        raise InputError(
            "the logs" if entries else "the command line",
            "does not say everything that a setup needs",
            "add " + ", ".join(missing) + ", or --setup setup.toml",
        )
    count = stated.gpu_count or int(str(tp))
    table = _allreduce_table(entries, int(str(tp)))
    allreduce: object = stated.allreduce or table or _allreduce_name(settings)
    drafts = drafts or any(speculates(e, r) for e in entries for r in e.rows)
    mapping: dict[str, object] = {
        "schema": "specsim.setup/1",
        "hardware": {
            "gpu": measured_gpu(probes[0], None) if gpu is None else gpu,
            "gpu_count": count,
            "link": stated.link or _link(str(gpu), count, known),
            "allreduce": allreduce,
        },
        "model": _model_table(str(model), stated, settings),
        "engine": _engine_table(known, int(str(tp))),
        "source": {
            "text": "logs: " + ", ".join(sorted({e.path for e in entries}))
            if entries
            else "the command line"
        },
    }
    if stated.input_len is not None or stated.output_len is not None:
        mapping["workload"] = {
            key: float(value)
            for key, value in (("input_len", stated.input_len), ("output_len", stated.output_len))
            if value is not None
        } | {"evidence": "measured"}
    if drafts:
        mapping["draft"] = {"id": stated.draft or _draft_id(known, stated)}
        current = setting_of(known.settings, stated)
        if current is not None:
            mapping["current"] = current
    return setup_from_mapping(mapping, "logs")


def _model_table(model: str, stated: Stated, settings: Mapping[str, object]) -> dict[str, object]:
    table: dict[str, object] = {"config" if model.endswith(".json") else "id": model}
    if stated.quantisation is not None:
        table["quantisation"] = stated.quantisation
    return table


def _engine_table(known: Known, tp: int) -> dict[str, object]:
    table: dict[str, object] = {"name": known.engine, "version": known.version}
    for key in ENGINE_KEYS:
        value = known.settings.get(key)
        if value is None or value in ("auto", "None", -1, ""):
            continue
        table[key] = value
    table["tp"] = tp
    kv = str(table.get("kv_dtype", "bf16"))
    table["kv_dtype"] = "fp8" if "fp8" in kv or "e4m3" in kv or "e5m2" in kv else "bf16"
    return table


def _link(gpu: str, count: int, known: Known) -> str:
    """Link of a GPU type where the user does not say: assumed, with a note."""
    if count == 1:
        return "none"
    name = load_gpu(gpu).link
    known.notes.append(f"link {name}: usual for {gpu}, assumed; --link says otherwise")
    return name


def _allreduce_name(settings: Mapping[str, object]) -> str:
    if settings.get("enable_flashinfer_allreduce_fusion"):
        return "fused"
    return "nccl" if settings.get("disable_custom_all_reduce") else "custom"


def _allreduce_table(entries: Sequence[LogEntry], tp: int) -> dict[str, float] | None:
    """Measured all-reduce, bytes -> seconds, from nccl-tests or a probe of as many GPUs."""
    table = {
        str(t.size_bytes): t.seconds
        for entry in entries
        for t in entry.timings
        if t.phase == "allreduce" and t.size_bytes and t.seconds > 0
        if "nccl" in entry.format or (t.ranks == tp and "nccl" in t.name)
    }
    return table if len(table) >= 2 else None


def library_id(name: object, known: Sequence[str]) -> str | None:
    """Library id that a path or product name stands for; None if there is none."""
    if not isinstance(name, str) or not name:
        return None
    text = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    found = [k for k in known if k in text or k.replace("-sxm", "") in text]
    return max(found, key=len) if found else None


def _draft_id(known: Known, stated: Stated) -> str:
    algorithm = str(stated.algorithm or known.settings.get("algorithm") or "EAGLE3").upper()
    generic = {"MTP": "mtp", "NEXTN": "mtp", "NGRAM": "ngram", "EAGLE": "eagle"}
    name = generic.get(algorithm, "eagle3")
    known.notes.append(f"drafter {name}: generic, sized from the target; --draft says otherwise")
    return name


def speculates(entry: LogEntry, row: LogRow) -> bool:
    """Return whether a row's server speculates: as it says, else by its accept length."""
    algorithm = entry.settings.get("algorithm")
    if algorithm is not None:
        return str(algorithm) != "none"
    return (row.accept_length or 1.0) > 1.0 or bool(row.survival)


def setting_of(settings: Mapping[str, object], stated: Stated) -> dict[str, object] | None:
    """Return the setting of a speculating server; None where num_steps is nowhere said."""
    algorithm = stated.algorithm or settings.get("algorithm") or "EAGLE3"
    if str(algorithm) == "none":
        return None
    steps = stated.num_steps or settings.get("num_steps")
    topk = stated.topk or settings.get("topk") or 1
    tokens = stated.num_draft_tokens or settings.get("num_draft_tokens")
    if steps is None and tokens is not None and int(str(topk)) == 1:
        steps = int(str(tokens)) - 1
    if steps is None or int(str(steps)) < 1:
        return None
    if tokens is None and int(str(topk)) == 1:
        tokens = int(str(steps)) + 1
    result: dict[str, object] = {"algorithm": algorithm, "topk": topk, "num_steps": steps}
    if tokens is not None:
        result["num_draft_tokens"] = tokens
    if settings.get("scheduler") in ("overlap", "sequential"):
        result["scheduler"] = settings["scheduler"]
    return result
