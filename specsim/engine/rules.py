"""The types of engine rules: versions, an engine as launched, rulings, an engine's record."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.version import Version

from specsim.engine.plan import RunPlan
from specsim.errors import InputError
from specsim.library import at_least
from specsim.setting import Algorithm, SpecSetting

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


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a CSV of this folder."""
    with (Path(__file__).parent / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def rows(name: str, engine: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a table that hold of an engine."""
    return tuple(row for row in table(name) if row["engine"] in (engine, "*"))


def by_memory(engine: EngineSpec, gpu_mem_bytes: float, what: str) -> float:
    """Return a default by release and memory of a GPU, a column of ``memory.csv``.

    The prompt tokens of a step (`chunk`), the largest captured batch in the unit of the engine's
    graphs, below tp 4 (`narrow`) and from there on (`wide`), the most requests (`requests`), the
    memory that is held back (`reserve`, GiB) and more of it per rank of TP (`reserve_tp`).
    """
    fits = (r for r in rows("memory", engine.name) if engine.parsed_version.since(r["since"]))
    return float(next(r[what] for r in fits if gpu_mem_bytes < float(r["below_gib"]) * GIB))


def captured_sizes(
    engine: EngineSpec, gpu_mem_bytes: float, speculates: bool, most: int
) -> set[int]:
    """Return the captured sizes up to `most`, by release and GPU, as ``graphs.csv`` lists them.

    They are of the engine's own unit, single or FIRST-LAST:STEP; without a last one up to `most`.
    """
    row = next(
        row
        for row in rows("graphs", engine.name)
        if engine.parsed_version.since(row["since"])
        and row["speculates"] in ("", str(int(speculates)))
        and gpu_mem_bytes > float(row["above_gib"] or 0) * GIB
    )
    sizes: set[int] = set()
    for part in row["sizes"].split():
        first, dash, ends = part.partition("-")
        last, _, step = ends.partition(":")
        top = int(last or most) if dash else int(first)
        sizes.update(range(int(first), min(top, most) + 1, int(step or 1)))
    return sizes


ScheduleRows = Sequence[tuple[int, int]]
"""(first running batch, draft steps from there on), in rising order; the first batch is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table of draft steps by running batch, as an engine takes it."""

    config: str  # as the engine reads it, JSON
    words: tuple[str, ...] = ()  # flags that switch it on, besides those of the setting
    lines: tuple[str, ...] = ()  # the same, to paste


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSyntax:
    """How a table of draft steps by running batch is given to an engine."""

    write: Callable[[ScheduleRows, int], WrittenTable]  # rows and the most that run
    padded: bool = False  # whether a batch is looked up as the size that it is padded to
    since: str = "0"  # first release that takes such a table,
    zero_since: str = "0"  # and one in which a row drafts nothing
    algorithms: tuple[str, ...] = ()  # that it works with; empty for all

    def limits(self, engine: str, version: str, algorithm: Algorithm, zero: bool) -> list[str]:
        """Return what a release cannot do of a table, `zero` where a row drafts nothing."""
        notes = []
        if self.algorithms and algorithm not in self.algorithms:
            notes.append(f"{engine} adapts {' and '.join(self.algorithms)} only, not {algorithm}")
        needed = self.zero_since if zero else self.since
        if parse_version(version).before(needed):
            notes.append(f"{engine} {version} cannot: such a table needs {needed} or later")
        return notes


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
    cpu_backend: str = ""  # attention backend that it takes on a CPU, where its rules ask for that
    launch_env: Callable[[RunPlan], dict[str, str]] = lambda _: {}
    program: tuple[str, ...]  # words of its launch command before the first flag
    model_first: bool = False  # whether the model follows them without a flag
    # plan, drafter -> files that its command names, and the flag before each
    launch_files: Callable[[RunPlan, str | None], dict[str, str]] = lambda *_: {}
    launch_file_flag: str = ""
    # what arguments say, by the settings of ``flags.csv`` -> by the keys of a log's settings
    settings: Callable[[Mapping[str, object]], dict[str, object]] = dict
    # those settings of a command -> the same with what the engine takes where it does not say
    completed: Callable[[dict[str, object]], dict[str, object]] = lambda settings: settings
    # version, kind of drafter -> whether its kernels are launched one by one
    drafts_eager: Callable[[EngineVersion, str], bool] = lambda *_: False
    schedule: ScheduleSyntax | None = None  # None where no such table is known
    other_rules: tuple[str, ...] = ()  # releases that an older one may be compared with
    padding_routes: bool = False  # padding rows go to experts of their own: they hold old tokens
    trees_overlap_from: str | None = None  # the first that overlaps trees, if one came later
    synthetic_shape: str = "whole"  # by which law (a shape of `Acceptance`)
    pins_acceptance: str = "synthetic acceptance"  # how a benchmark fixes the accept length
    lookup_fills_tree: bool = False  # whether a lookup drafts in every round, whatever it finds
    worker_names: tuple[tuple[str, str], ...] = ()  # scheduler -> what its people call its worker
