"""A setup from what logs and the user say: filled where it can be, exact about what is missing."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from specsim.architecture import draft_names, load_draft, load_model
from specsim.architecture.loading import without_quantisation
from specsim.engine import EngineSpec, engine_names
from specsim.errors import InputError, SpecsimError, UnknownNameError
from specsim.hardware import load_gpu
from specsim.library import LibraryName, named, read_library
from specsim.logs import LogEntry, LogRow
from specsim.observations import Observation
from specsim.quantisation import scheme_of_engine
from specsim.server import Setup, setup_from_mapping
from specsim.setting import SpecSetting, parse_algorithm

_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+(?::[\w.-]+)?(?<!\.json)(?<!\.toml)")
COMMAND_LINE = "the command line"  # what says all where there are no logs
SAME_SPEED = 0.05  # relative difference up to which speeds are of one server
_LOAD = attrgetter("kind", "concurrency", "batch_size", "request_rate", "input_len", "output_len")
SETTING_KEYS = ("algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler", "draft")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user says beside the logs; None where the logs shall say it."""

    model: str | None = None  # library id, or a path
    gpu: str | None = None
    link: str | None = None
    draft: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    gpu_count: int | None = None
    tp: int | None = None
    # setting of speculating rows whose file does not say
    algorithm: str | None = None
    topk: int | None = None
    num_steps: int | None = None
    num_draft_tokens: int | None = None
    # mean lengths of the requests
    input_len: float | None = None
    output_len: float | None = None
    quantisation: str | None = None  # as in setup.toml
    allreduce: str | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """What a calibration is made from."""

    setup: Setup
    observations: tuple[Observation, ...]
    notes: tuple[str, ...] = ()  # what had to be assumed
    name: str = "logs"  # for the profile


@dataclass(slots=True)
class Known:
    """Settings collected from all entries and the user."""

    settings: dict[str, Any] = field(default_factory=dict)
    engine: str | None = None
    version: str | None = None
    notes: list[str] = field(default_factory=list)
    drafting: list[LogEntry] = field(default_factory=list)  # those of speculating servers

    def of_setting(self, entry: LogEntry) -> dict[str, Any]:
        """Return the setting of an entry's server: what it does not say, others do if they agree.

        What stands under another heading of the same file is of another server.
        """
        same = [
            e.settings
            for e in self.drafting
            if e.path != entry.path or e.label == entry.label or not (e.label and entry.label)
        ]
        said = {k: [s[k] for s in same if k in s] for k in SETTING_KEYS}
        agreed = {k: v[0] for k, v in said.items() if v and all(x == v[0] for x in v)}
        return {**agreed, **entry.settings}


def collect(entries: Sequence[LogEntry], stated: Stated) -> Known:
    """Merge what all entries say of their server; the user wins, speculating servers come first."""
    _check_one_server(entries)
    known = Known(engine=stated.engine, version=stated.engine_version)
    drafting = known.drafting = [e for e in entries if _drafts(e)]
    plain = [e for e in entries if e not in drafting]
    plain.sort(key=lambda e: e.format == "probe")  # a server's own words come first
    for entry in (*drafting, *plain):  # the setup is that of the speculating server
        if odd := entry.settings.get("unknown"):
            known.notes.append(f"not understood, and taken as without effect: {odd}")
        for key, value in entry.settings.items():
            if entry in drafting or key not in SETTING_KEYS:
                known.settings.setdefault(key, value)
        if known.engine is None and entry.engine in engine_names():
            known.engine = entry.engine
        if known.version is None:
            known.version = entry.engine_version
    if known.version is None and "version_range" in known.settings:
        newest = known.version = str(known.settings["version_range"]).split("-")[-1]
        known.notes.append(f"engine version {newest}: newest that prints lines of this form")
    return known


def _drafts(entry: LogEntry) -> bool:
    """Whether an entry is of a speculating server, by its rows or by its launch command."""
    stated = entry.format == "launch" and entry.settings.get("algorithm") not in (None, "none")
    return stated or any(speculates(entry, row) for row in entry.rows)


def _check_one_server(entries: Sequence[LogEntry]) -> None:
    """Refuse blocks of a file that are under other headings, and of other servers.

    The same setting gives the same speed at the same load; what does not is another model, or is
    quantised otherwise, or on other GPUs.
    """
    seen: dict[tuple[object, ...], LogEntry] = {}
    for entry in (e for e in entries if e.label and e.rows):
        setting = (entry.path, *(entry.settings.get(key) for key in SETTING_KEYS))
        first = seen.setdefault(setting, entry)
        speeds = [{_LOAD(r): r.output_tps for r in e.rows if r.output_tps} for e in (first, entry)]
        common = speeds[0].keys() & speeds[1].keys()
        apart = any(abs(speeds[0][at] / speeds[1][at] - 1) > SAME_SPEED for at in common)
        if first.label != entry.label and (apart or _models(first) != _models(entry)):
            reason = f"holds two servers in one setting, {first.label!r} and {entry.label!r}"
            raise InputError(entry.path, reason, "give each in a file of its own")


def _models(entry: LogEntry) -> list[str]:
    return re.findall(r"[\w.-]+/[\w.-]+", entry.label)


def build_setup(
    known: Known, stated: Stated, entries: Sequence[LogEntry], drafts: bool = False
) -> Setup:
    """Build the setup, with a drafter if `drafts` or an entry speculates.

    Raises InputError that names every flag that is missing.
    """
    settings = known.settings
    model = stated.model or library_id(settings.get("model"), "models")
    gpu = stated.gpu or library_id(settings.get("gpu"), "gpus")
    tp = stated.tp or count_of(settings, "tp")
    probe = next((entry for entry in entries if entry.format == "probe"), None)
    source = "the log" if entries else "the command"
    said = f" ({source} says {settings['model']!r})" if "model" in settings else ""
    flags = {
        f"--model ID or config.json{said}": model,
        "--gpu ID": gpu or probe,
        "--tp N": tp,
        "--engine " + "|".join(engine_names()): known.engine,
        "--engine-version V": known.version,
    }
    missing = [flag for flag, value in flags.items() if value is None]
    if missing or model is None or tp is None:
        who, do = ("the logs", "do") if entries else (COMMAND_LINE, "does")
        remedy = f"add {', '.join(missing)}, or --setup setup.toml"
        raise InputError(who, f"{do} not say everything that a setup needs", remedy)
    count = stated.gpu_count or tp
    paths = ", ".join(sorted({entry.path for entry in entries}))
    mapping: dict[str, object] = {
        "schema": "specsim.setup/1",
        "hardware": {
            "gpu": gpu if gpu is not None or probe is None else _probed(probe),
            "gpu_count": count,
            "link": stated.link or _link(str(gpu), count, known),
            "allreduce": stated.allreduce or _allreduce(entries, tp, settings),
        },
        "model": {
            "config" if model.endswith((".json", ".toml")) else "id": model,
            "quantisation": stated.quantisation or _quantisation(known, model),
            "path": str(settings.get("model") or _repository(model, stated.quantisation)),
        },
        "engine": _engine_table(known, tp),
        "source": {"text": f"logs: {paths}" if entries else COMMAND_LINE},
    }
    runs = [row for entry in entries for row in entry.rows if row.kind != "steady_decode"]
    lengths = {}
    for key in ("input_len", "output_len"):  # as the user says, else as a benchmark does
        told = [float(n) for row in runs if (n := getattr(row, key)) is not None]
        n = getattr(stated, key)
        if n is not None or told:
            lengths[key] = float(n) if n is not None else sum(told) / len(told)
    if lengths:
        mapping["workload"] = {**lengths, "evidence": "measured"}
    if drafts or any(map(_drafts, entries)):
        drafter: dict[str, object] = {"id": stated.draft or _draft_id(known, stated, model)}
        drafter["path"] = str(settings.get("draft") or "")
        mapping["draft"] = drafter
        words = re.search(r"(?<!\d)\d{4,6}(?=\.\w+$)", str(settings.get("draft_vocab", "")))
        if words and settings.get("algorithm") != "EAGLE3":  # which keeps its own
            drafter["vocab"] = int(words[0])
        current = stated_setting(settings, stated)
        if current is not None:
            mapping["current"] = current
    return setup_from_mapping(mapping, "logs" if entries else COMMAND_LINE)


def _probed(probe: LogEntry) -> dict[str, object]:
    from specsim.calibrate.probed import measured_gpu

    return measured_gpu(probe, None)


def _repository(model: str, scheme: str | None) -> str:
    """Return a model's name on Hugging Face; another one holds weights that are not as published.

    Engines make fp8 of what is published, see ``decide.launch``.
    """
    other = scheme not in (None, "fp8") and not without_quantisation(model)[1]
    return model if _REPOSITORY.fullmatch(model) and not other else ""


def _quantisation(known: Known, model: str) -> str:
    """Scheme of the weights as an engine or a file's name says it; empty for the model's own."""
    word = known.settings.get("quantisation")
    if load_model(model).native_quantisation != "bf16":
        return ""
    name = str(known.settings.get("model", ""))
    scheme = without_quantisation(name)[1] or scheme_of_engine(str(word))
    if scheme:
        said = f"weights in {scheme}, as {word if word else name} says"
        known.notes.append(f"{said}; --quantization says otherwise")
    elif word not in (None, "", "None"):
        known.notes.append(
            f"weights in bf16: {word} does not say how many bits; --quantization says"
        )
    return scheme


def _engine_table(known: Known, tp: int) -> dict[str, object]:
    stated = {of.name: known.settings.get(of.name) for of in fields(EngineSpec)}
    kv = str(known.settings.get("kv_dtype", "auto")).lower()
    types: Any = read_library("quantisations")["kv_bytes"]
    if re.search("fp8|e4m3|e5m2", kv):
        kv = "fp8"
    elif kv not in types:
        if kv not in ("bfloat16", "float16", "half"):
            known.notes.append(f"KV cache in bf16: of its type {kv} no size is known")
        kv = "bf16"
    return {
        **{k: v for k, v in stated.items() if v not in (None, "auto", "None", -1, "")},
        "name": known.engine,
        "version": known.version,
        "tp": tp,
        "kv_dtype": kv,
    }


def _link(gpu: str, count: int, known: Known) -> str:
    """Link of a GPU type where the user does not say: assumed, with a note."""
    if count == 1:
        return "none"
    name = load_gpu(gpu).link
    known.notes.append(f"link {name}: usual for {gpu}, assumed; --link says otherwise")
    return name


def _allreduce(entries: Sequence[LogEntry], tp: int, settings: Mapping[str, object]) -> object:
    """Bytes -> seconds by nccl-tests or a probe of as many GPUs; else the kind by the settings."""
    table = {
        str(t.size_bytes): t.seconds
        for entry in entries
        for t in entry.timings
        if t.phase == "allreduce" and t.size_bytes and t.seconds > 0
        if "nccl" in entry.format or (t.ranks == tp and "nccl" in t.name)
    }
    if len(table) >= 2:
        return table
    if settings.get("enable_flashinfer_allreduce_fusion"):
        return "fused"
    return "nccl" if settings.get("disable_custom_all_reduce") else "custom"


def library_id(name: object, library: LibraryName) -> str | None:
    """Library id that a path or product name stands for; None if there is none."""
    if not isinstance(name, str) or not name:
        return None
    text = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    words = {id: re.escape(id.removesuffix("-sxm")) for id in read_library(library)}
    found = [id for id, word in words.items() if re.search(rf"(?<![a-z0-9]){word}(?![0-9.])", text)]
    return named(library, name) or (max(found, key=len) if found else None)


def _draft_id(known: Known, stated: Stated, model: str) -> str:
    """Drafter: the one that the server names if it is known and fits, else one of its kind."""
    named = stated.algorithm or known.settings.get("algorithm")
    algorithm = str(named or "EAGLE3")
    if named in (None, "none"):
        # GGUF files mostly leave the model's own layers out
        own = load_model(model).mtp_layers > 0 and known.engine != "llama.cpp"
        algorithm = "MTP" if own else "EAGLE3"
        because = ", whose layers the model brings" if own else ""
        known.notes.append(f"{algorithm} drafting assumed{because}; --algorithm says it")
    with suppress(UnknownNameError):
        algorithm = parse_algorithm(algorithm)
    said = str(known.settings.get("draft") or "")
    kind = algorithm.lower().replace("_", "-")
    for name in (said, library_id(without_quantisation(said)[0], "models") or ""):
        with suppress(SpecsimError):
            if name and load_draft(name, load_model(model)).kind.replace("_", "-") == kind:
                return name
    name = kind if kind in draft_names() else "eagle3"
    known.notes.append(f"drafter {name}: generic, sized from the target; --draft says otherwise")
    return name


def speculates(entry: LogEntry, row: LogRow) -> bool:
    """Return whether a row's server speculates: as it says, else by its drafts."""
    algorithm = entry.settings.get("algorithm")
    if algorithm is not None:
        return str(algorithm) != "none"
    drafts = bool(row.survival) or bool(entry.settings.get("num_steps"))
    return drafts or (row.accept_length or 1.0) > 1.0


def setting_of(settings: Mapping[str, Any], stated: Stated, where: str) -> SpecSetting | None:
    """Return the setting of a speculating server; None where its numbers are nowhere said.

    Raises InputError, which begins with `where`, if the numbers contradict each other.
    """
    said = stated_setting(settings, stated)
    if said is None or "num_draft_tokens" not in said:
        return None
    try:
        return SpecSetting.of(**said | {"algorithm": parse_algorithm(said["algorithm"])})
    except UnknownNameError as error:
        raise UnknownNameError(f"{where}: {error.kind}", error.name, error.known) from None
    except InputError as error:
        raise InputError(f"{where}: {error.value}", error.reason, error.remedy) from None


def stated_setting(settings: Mapping[str, Any], stated: Stated) -> dict[str, Any] | None:
    """Return what is said of a speculating setting; None where num_steps is nowhere said."""
    algorithm = str(stated.algorithm or settings.get("algorithm") or "EAGLE3")
    steps = stated.num_steps or count_of(settings, "num_steps")
    topk = stated.topk or count_of(settings, "topk") or 1
    tokens = stated.num_draft_tokens or count_of(settings, "num_draft_tokens")
    if steps is None and tokens is not None and topk == 1:
        steps = tokens - 1
    if algorithm == "none" or steps is None or steps < 1:
        return None
    if tokens is None and topk == 1:
        tokens = steps + 1
    scheduler = settings.get("scheduler")
    return {
        "algorithm": algorithm,
        "topk": topk,
        "num_steps": steps,
        **({"num_draft_tokens": tokens} if tokens is not None else {}),
        **({"scheduler": scheduler} if scheduler in ("overlap", "sequential") else {}),
    }


def count_of(settings: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number of the settings, None if there is none."""
    value = settings.get(key)
    return value if isinstance(value, int) else None
