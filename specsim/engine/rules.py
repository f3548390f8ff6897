"""The types of engine rules: versions, an engine as launched, rulings, an engine's record."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

from packaging.version import Version

from specsim.engine.plan import FirstDraft, GraphUnit, Prefill, RunPlan, Timeline
from specsim.errors import EngineRefusal, InputError
from specsim.library import at_least
from specsim.setting import Algorithm, Scheduler, SpecSetting

MIB, GIB = 2**20, 2**30


_NEWEST = ("main", "master", "latest", "nightly")
_NEWER_THAN_ALL = Version("999999999")
_RANGE = re.compile(r"v?\d+(?:\.\d+)+\s*[-\u2013]\s*(v?\d+(?:\.\d+)+\S*)")
_BUILD = re.compile(r"b\d+")


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """A version, ordered as PEP 440 orders it; a local part (``+g57...``) does not count."""

    key: Version
    text: str = field(compare=False)  # as it was written

    def since(self, first: str) -> bool:
        """Whether this is release `first` or a later one."""
        return self >= parse_version(first)

    def before(self, first: str) -> bool:
        """Whether this is older than release `first`."""
        return not self.since(first)


@cache
def parse_version(text: str) -> EngineVersion:
    """Return the version that `text` names.

    Release numbers, pre-, post- and development releases, a leading v, llama.cpp's build numbers
    (b4567); ``main`` and its like are newer than every release; of a range (``0.5.7-0.5.10``) the
    last release counts. Raises :class:`InputError` if the text is no version.

    >>> parse_version("0.5.9") < parse_version("0.5.12.post1") < parse_version("main")
    True
    """
    plain = text.strip().lower()
    if plain in _NEWEST:
        return EngineVersion(_NEWER_THAN_ALL, text)
    whole = _RANGE.fullmatch(plain)
    plain = whole[1] if whole else plain
    plain = plain[1:] if _BUILD.fullmatch(plain) else plain
    try:
        key = Version(Version(plain).public)
    except ValueError:  # also of numbers with thousands of digits
        remedy = "write it as the engine prints it, such as 0.5.9, 0.5.12.post1 or main"
        raise InputError(f"engine version {text!r}", "is not a version", remedy) from None
    return EngineVersion(key, text)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Section [engine] of setup.toml, the engine as it is launched; None is its own default."""

    name: str
    version: str
    tp: int = 1  # ranks of tensor,
    dp: int = 1  # data (with attention split by request),
    ep: int = 1  # and expert parallelism
    attention_backend: str | None = None  # as on the command line
    kv_dtype: str = "bf16"
    # Most requests that run at once: SGLang's --max-running-requests, shared out over the
    # data-parallel ranks; per rank vLLM's --max-num-seqs and llama.cpp's slots.
    max_running_requests: int | None = None
    cuda_graph_max_bs: int | None = None  # largest captured batch: requests, but tokens in vLLM
    # Fraction of GPU memory for weights and KV cache; vLLM's --gpu-memory-utilization,
    # TensorRT-LLM's fraction of the memory that the weights leave.
    mem_fraction_static: float | None = None
    kv_tokens: int | None = None  # size of the KV pool, one rank's, from the start-up log
    chunked_prefill_size: int | None = None  # most prompt tokens of one step
    page_size: int = 1  # tokens of one KV page
    kv_unified: bool = False  # whether llama.cpp's slots share one KV cache (--kv-unified)
    # states: `states.csv`
    pp: int = 1  # ranks of pipeline parallelism,
    dcp: int = 1  # and of decode context parallelism
    disable_cuda_graph: bool = False  # eager mode
    mixed_chunk: bool = False  # SGLang's --enable-mixed-chunk
    disaggregation: Literal["null", "prefill", "decode"] = "null"  # the side of a split server
    a2a_backend: str | None = None  # exchanges tokens between experts, e.g. deepep
    verification: Literal["target", "rejection", "block"] = "target"  # law of acceptance

    def __post_init__(self) -> None:
        at_least(1, tp=self.tp, dp=self.dp, ep=self.ep, page_size=self.page_size)
        at_least(1, pp=self.pp, dcp=self.dcp)
        at_least(1, max_running_requests=self.max_running_requests, kv_tokens=self.kv_tokens)
        at_least(1, cuda_graph_max_bs=self.cuda_graph_max_bs)
        at_least(1, chunked_prefill_size=self.chunked_prefill_size)
        fraction = self.mem_fraction_static
        if fraction is not None and not 0 < fraction <= 1:
            what = f"mem_fraction_static = {fraction}"
            raise InputError(what, "must lie in 0..1", "write a fraction: 0.88, not 88")
        parse_version(self.version)

    @property
    def parsed_version(self) -> EngineVersion:
        """The version as the rules compare it."""
        return parse_version(self.version)

    @property
    def backend(self) -> str:
        """The attention backend in lower case; empty if it is not stated."""
        return (self.attention_backend or "").lower()


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says about a setting."""

    # The engine's own words, or the rule in short, with its versions: noted beside the setting.
    # Empty where there is nothing to say.
    rule: str
    # What the engine runs in place of the setting; None if it refuses, the setting itself if the
    # rule only asks for a note.
    instead: SpecSetting | None = None
    remedy: str = ""  # what to do about a refusal; --what-if is added
    bends: bool = False  # whether it bends what was asked for, so that --what-if keeps it


Rule = Callable[[SpecSetting, EngineSpec], Ruling | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A setting after all rules: what is run or modelled, why it is refused, what to note."""

    setting: SpecSetting
    reason: str | None
    notes: tuple[str, ...]


def judge(
    setting: SpecSetting, engine: EngineSpec, what_if: bool, rules: Sequence[Rule] = ()
) -> Verdict:
    """Apply the stages of ``rulings.csv`` as they stand there, then rules of the engine's own."""
    staged = _staged(engine.name, engine.version)
    stages: list[Rule] = [partial(listed, stage=stage) for stage in staged]
    reasons: list[str] = []
    notes: list[str] = []
    for rule in (*stages, *rules):
        ruling = rule(setting, engine)
        if ruling is None:
            continue
        if ruling.instead is None:
            if not what_if:
                raise EngineRefusal(
                    f"{setting.label} ({setting.algorithm}, scheduler {setting.scheduler})",
                    engine.name,
                    engine.version,
                    ruling.rule,
                    f"{ruling.remedy}, or model it all the same with --what-if",
                )
            reasons.append(ruling.rule)
        elif what_if and ruling.bends:
            reasons.append(ruling.rule)
        else:
            setting = ruling.instead
            notes += [ruling.rule] if ruling.rule else []
    return Verdict(setting, "; ".join(reasons) or None, tuple(notes))


def as_chain(setting: SpecSetting) -> SpecSetting:
    """Return the chain of the same depth, all of it verified: n = S + 1."""
    return replace(setting, topk=1, num_draft_tokens=setting.num_steps + 1)


def mixed_plan(
    verdict: Verdict,
    engine: EngineSpec,
    *,
    max_running_requests: int,
    chunked_prefill_size: int,
    graph_sizes: tuple[int, ...],
    graph_unit: GraphUnit,
    overlapped: Timeline,
    first_draft: FirstDraft = "extend",
    notes: Sequence[str] = (),
) -> RunPlan:
    """Return the plan of an engine that mixes prompt chunks into decode steps.

    It reserves what a round verifies, and its drafter computes all verified tokens once more.
    """
    setting = verdict.setting
    overlap = setting.scheduler == "overlap"
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=(*verdict.notes, *notes),
        max_running_requests=max_running_requests,
        alloc_tokens=setting.num_draft_tokens,
        reserved_tokens_per_request=setting.num_draft_tokens,
        draft_extend="verify" if setting.follows_text else "none",
        extend_eager=False,
        graph_batch_sizes=() if engine.disable_cuda_graph else graph_sizes,
        graph_unit=graph_unit,
        prefill=elsewhere(engine, "mixed"),
        chunked_prefill_size=chunked_prefill_size,
        finish_lag_rounds=1 if overlap else 0,
        timeline=overlapped if overlap else "sequential",
        ranks=engine.dp,
        first_draft=first_draft,
    )


def elsewhere(engine: EngineSpec, prefill: Prefill) -> Prefill:
    """Return how a server prefills: not at all where another one does."""
    return "elsewhere" if engine.disaggregation == "decode" else prefill


# --- rulings and states that are rows of data


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a CSV of this folder."""
    with (Path(__file__).parent / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def rows(name: str, engine: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a table that hold of an engine."""
    return tuple(row for row in table(name) if row["engine"] in (engine, "*"))


@cache
def _staged(engine: str, version: str) -> dict[str, list[dict[str, str]]]:
    stages: dict[str, list[dict[str, str]]] = {}
    for row in rows("rulings", engine):
        if _of_release(row, parse_version(version)):
            stages.setdefault(row["stage"], []).append(row)
    return stages


def listed(setting: SpecSetting, engine: EngineSpec, stage: str) -> Ruling | None:
    """Return what the first fitting row of a stage of ``rulings.csv`` says; None where none fits.

    A row holds of some algorithms (``*``: all that speculate), from release `since` and before
    `before`, and under all its conditions on fields of engine or setting: ``name>N``,
    ``name=value``, ``name!=value`` (a backend that is not stated is no other). Its effect is to
    refuse, a note, the whole chain, or the scheduler that runs (``bend``: another was asked for).
    """
    known = {setting.algorithm, "*" * setting.speculates}
    for row in _staged(engine.name, engine.version).get(stage, ()):
        named = not known.isdisjoint(row["algorithms"].split())
        if named and _applies(row, setting, engine):
            chain = replace(setting, topk=1, num_draft_tokens=setting.num_steps + 1)
            names: dict[str, object] = {"algorithm": setting.algorithm, "spec": engine}
            names |= {**row, "steps": setting.num_steps, "tokens": chain.num_draft_tokens}
            text, remedy = (row[part].format(**names) for part in ("text", "remedy"))
            bend, _, effect = row["effect"].rpartition(" ")
            if effect == "chain":  # of S drafts S + 1 tokens are verified
                tree = setting.topk > 1 and not bend
                return None if tree or setting == chain else Ruling(text, chain, bends=bool(bend))
            if effect in ("refuse", "note"):
                return Ruling(text, setting if effect == "note" else None, remedy)
            runs: Scheduler = "overlap" if effect == "overlap" else "sequential"
            return Ruling(text, setting.with_scheduler(runs), bends=bool(bend))
    return None


def cache_refusal(engine: EngineSpec, kinds: Mapping[str, bool]) -> tuple[str, str] | None:
    """Return why ``caches.csv`` says that the engine refuses such a KV cache, and the remedy."""
    for row in rows("caches", engine.name):
        named = all(map(kinds.get, row["cache"].split()))
        holds = named and _of_release(row, engine.parsed_version)
        if holds and _applies(row, SpecSetting.none(), engine):
            return row["text"], row["remedy"].format(**row)
    return None


def _of_release(row: Mapping[str, str], version: EngineVersion) -> bool:
    since, before = row["since"] or "0", row["before"]
    return version.since(since) and not (before and version.since(before))


def _applies(row: Mapping[str, str], setting: SpecSetting, engine: EngineSpec) -> bool:
    """Whether the conditions of a row hold."""
    return all(_holds(condition, setting, engine) for condition in row["when"].split())


def _holds(condition: str, setting: SpecSetting, engine: EngineSpec) -> bool:
    name, sign, value = re.split(r"(!=|=|>)", condition)
    said = getattr(engine if hasattr(engine, name) else setting, name)
    if sign == ">":
        return int(said) > int(value)
    return str(said) == value if sign == "=" else str(said) not in ("", value)


def state_notes(engine: EngineSpec) -> list[str]:
    """Return what ``states.csv`` says of fields that are set; what has a remedy is refused."""
    notes: dict[str, str] = {}
    defaults = {field.name: field.default for field in fields(engine)}
    for row in rows("states", engine.name):
        name, value = row["field"], getattr(engine, row["field"])
        if value == defaults[name] or name in notes:
            continue
        given = f"{engine.name}, {name} = {value}"
        if value == "prefill":
            raise InputError(given, "such a server decodes nothing", "ask about the decode server")
        if row["remedy"]:
            raise InputError(given, row["text"], row["remedy"])
        notes[name] = row["text"].format(value=value)
    return list(notes.values())


ScheduleRows = Sequence[tuple[int, int]]
"""(first running batch, draft steps from there on), in rising order; the first batch is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSyntax:
    """How a table of draft steps by running batch is given to an engine."""

    # rows and the most that run -> the table as the engine reads it, JSON
    config: Callable[[ScheduleRows, int], str]
    # rows and that JSON -> the flags that switch it on, besides those of the setting
    words: Callable[[ScheduleRows, str], list[str]]
    # rows and that JSON -> the same as lines to paste
    lines: Callable[[ScheduleRows, str], list[str]]
    # version, algorithm, whether a row drafts nothing -> what the release cannot do
    limits: Callable[[str, Algorithm, bool], list[str]]
    padded: bool = False  # whether a batch is looked up as the size that it is padded to


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """All that is known of an engine: what its file holds, as `specsim.engine.ENGINES` lists it."""

    name: str  # in setup.toml and on the command line
    newest: str  # the newest version whose rules are known: taken where none is said
    # setting, engine, memory of one GPU in bytes, what-if -> what it does, or EngineRefusal with
    # its own message where one is known. A what-if models the setting as it was asked for where the
    # engine would refuse or change it; what a version merely defaults to, or normalises
    # (n = S + 1 of a chain), stays the engine's.
    plan: Callable[[SpecSetting, EngineSpec, float, bool], RunPlan]
    # engine, memory and weights of one GPU in bytes, algorithm -> bytes left for the KV cache
    kv_room_bytes: Callable[[EngineSpec, float, float, Algorithm], float]
    # plan, engine, drafter -> flags that set the speculation, the scheduler and the caps; none for
    # an engine that is set by a file
    launch_flags: Callable[[RunPlan, EngineSpec, str | None], list[str]] = lambda *_: []
    # name and memory of a GPU -> the memory by which `plan` chooses defaults
    class_bytes: Callable[[str, float], float] = lambda _, mem_bytes: mem_bytes
    launch_env: Callable[[RunPlan], dict[str, str]] = lambda _: {}
    program: tuple[str, ...]  # words of its launch command before the first flag
    model_first: bool = False  # whether the model follows them without a flag
    # plan, drafter -> files that its command names, and the flag before each
    launch_files: Callable[[RunPlan, str | None], dict[str, str]] = lambda *_: {}
    launch_file_flag: str = ""
    # what arguments say, by the settings of ``flags.csv`` -> by the keys of a log's settings
    settings: Callable[[Mapping[str, object]], dict[str, object]] = dict
    # version, kind of drafter -> whether its kernels are launched one by one
    drafts_eager: Callable[[EngineVersion, str], bool] = lambda *_: False
    schedule: ScheduleSyntax | None = None  # None where no such table is known
    other_rules: tuple[str, ...] = ()  # releases that an older one may be compared with
    trees_overlap_from: str | None = None  # the first that overlaps trees, if one came later
    cap_flag: str  # what sets the most requests that run at once
    graph_flag: str = ""  # what sets the largest captured batch, in requests
    synthetic_shape: str = "whole"  # by which law (a shape of `Acceptance`)
    pins_acceptance: str = "synthetic acceptance"  # how a benchmark fixes the accept length
    lookup_fills_tree: bool = False  # whether a lookup drafts in every round, whatever it finds
    worker_names: tuple[tuple[str, str], ...] = ()  # scheduler -> what its people call its worker
