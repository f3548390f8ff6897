"""What a setup.toml says: one frozen dataclass per section.

The annotations are the schema that pydantic checks at the boundary (``reading``). Library ids
(``gpu``, ``link``, ``model``, ``draft``) stay strings: what they stand for is the business of the
hardware and architecture modules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from specsim.errors import InputError
from specsim.evidence import Evidence
from specsim.server.constraints import (
    Amount,
    Before,
    Count,
    Fraction,
    Positive,
    Whole,
    Within,
    only_known_keys,
)
from specsim.server.textfile import shown
from specsim.setting import Scheduler, SpecSetting, parse_algorithm
from specsim.workload import Lengths, Workload

AllReduce = Literal["nccl", "custom", "fused", "symmetric"]
EngineName = Literal["sglang", "vllm", "tensorrt-llm", "llama.cpp"]
Scalar = str | bool | int | float


@dataclass(frozen=True, slots=True)
class GpuTable(Mapping[str, "Scalar | GpuTable"]):
    """A GPU that the library does not have: the keys of a library entry, here only kept.

    A number may stand in a table of its own, with its evidence and source.
    """

    entries: tuple[tuple[str, Scalar | GpuTable], ...]

    def __getitem__(self, key: str) -> Scalar | GpuTable:
        return dict(self.entries)[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def of(cls, table: Mapping[str, object]) -> GpuTable:
        """Copy a table.

        Raises
        ------
        InputError
            If an entry is neither a finite number, nor a text, nor a table of such.
        """
        entries: list[tuple[str, Scalar | GpuTable]] = []
        for key, entry in table.items():
            if isinstance(entry, Mapping):
                entries.append((str(key), cls.of(entry)))
            elif isinstance(entry, str) or (isinstance(entry, int | float) and _finite(entry)):
                entries.append((str(key), entry))
            else:
                raise InputError(
                    f"{key} = {shown(entry)}",
                    "must be a finite number or a text",
                    "write one value per key, and leave out what is not known",
                )
        return cls(tuple(entries))


def _finite(number: int | float) -> bool:
    return abs(number) < math.inf


def _gpu(value: object) -> object:
    """Turn a table into a GpuTable."""
    if isinstance(value, str | GpuTable):
        return value
    if isinstance(value, Mapping):
        return GpuTable.of(value)
    raise InputError(shown(value), "is neither a library id nor a table", "put the id in quotes")


def _allreduce(value: object) -> object:
    """Turn a table of bytes -> seconds into pairs in order of bytes."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not value:
        raise InputError(
            shown(value),
            "is neither a name nor a table of bytes and seconds",
            'write e.g. "fused" or {"65536" = 42e-6}',
        )
    for size, seconds in value.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not (re.fullmatch(r"[1-9][0-9]{0,14}", str(size)) and number and 0 < seconds < math.inf):
            raise InputError(
                f"{shown(size)} = {shown(seconds)}",
                "must be a whole number of bytes and a positive number of seconds",
                'write e.g. "65536" = 42e-6',
            )
    return tuple(sorted((int(size), float(seconds)) for size, seconds in value.items()))


def _iso(value: object) -> object:
    """Write a TOML date as text."""
    return value.isoformat() if isinstance(value, date) else value


@only_known_keys
@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """The GPUs of one server and what joins them.

    Parameters
    ----------
    gpu
        Library id, or a table of the same keys as a library entry.
    gpu_count
        GPUs of the server.
    link
        Library id of the link between them; ``none`` for one GPU.
    allreduce
        The implementation, or measured (message bytes, seconds) pairs in order of bytes.
    """

    gpu: Annotated[str | GpuTable, Before(_gpu)]
    gpu_count: Count = 1
    link: str = "none"
    allreduce: Annotated[AllReduce | tuple[tuple[int, float], ...], Before(_allreduce)] = "nccl"


@only_known_keys
@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The target model: a library id, or the path of its config.json.

    Parameters
    ----------
    id, config
        One of the two; a relative path counts from the setup file's folder.
    quantisation
        Name of the weight format; None is the one of the id or the config.
    weight_bytes
        Overrides the derived size of all weights, bytes.
    """

    id: str | None = None
    config: str | None = None
    quantisation: str | None = None
    weight_bytes: Positive | None = None


@only_known_keys
@dataclass(frozen=True, slots=True)
class DraftSpec:
    """The drafter: a library id.

    Parameters
    ----------
    id
        The library id.
    quantisation
        Weight format of a drafter that is not its published one.
    layers
        Layers that are kept of a library model that drafts, where it is cut short.
    """

    id: str | None = None
    quantisation: str | None = None
    layers: Count | None = None


@only_known_keys
@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The engine as it is launched; None is the engine's own default.

    Parameters
    ----------
    name, version
        Engine and its version, as text.
    tp, dp, ep
        Ranks of tensor, data and expert parallelism.
    attention_backend, kv_dtype
        As on the engine's command line; the KV cache is bf16 unless said otherwise.
    max_running_requests
        Most requests that run at once.
    cuda_graph_max_bs
        Largest batch captured in a CUDA graph, requests.
    mem_fraction_static
        Fraction of GPU memory for weights and KV cache.
    kv_tokens
        Tokens that the KV cache holds, from the start-up log; None derives it.
    chunked_prefill_size
        Most prompt tokens of one prefill step.
    page_size
        Tokens of one KV page (SGLang's default is 1).
    kv_unified
        Whether llama.cpp's slots share one KV cache (``--kv-unified``; extends the format).
    """

    name: EngineName
    version: str
    tp: Count = 1
    dp: Count = 1
    ep: Count = 1
    attention_backend: str | None = None
    kv_dtype: str = "bf16"
    max_running_requests: Count | None = None
    cuda_graph_max_bs: Count | None = None
    mem_fraction_static: Fraction | None = None
    kv_tokens: Count | None = None
    chunked_prefill_size: Count | None = None
    page_size: Count = 1
    kv_unified: bool = False


@only_known_keys
@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """The requests, where an observation or a command does not say; means in tokens.

    `input_len_cv` and `output_len_cv` (coefficients of variation, 0 for fixed lengths) extend the
    format. The lengths are ``assumed`` unless `evidence` says better.
    """

    input_len: Amount = 1024.0
    output_len: Annotated[float, Within(ge=1)] = 512.0
    input_cached: Amount = 0.0
    input_len_cv: Amount = 0.0
    output_len_cv: Amount = 0.0
    dataset: str = ""
    temperature: Amount = 0.0
    evidence: Evidence = "assumed"

    @property
    def workload(self) -> Workload:
        """The same as the solvers take it.

        Raises
        ------
        InputError
            If more prompt tokens are cached than there are, or a cv is above 10.
        """
        return Workload(
            Lengths(self.input_len, self.input_len_cv),
            Lengths(self.output_len, self.output_len_cv),
            self.input_cached,
            self.dataset,
            self.temperature,
            self.evidence,
        )


@only_known_keys
@dataclass(frozen=True, slots=True)
class CurrentSetting:
    """The setting that runs today, as written."""

    algorithm: str
    topk: Whole | None = None
    num_steps: Whole | None = None
    num_draft_tokens: Whole | None = None
    scheduler: Scheduler = "auto"

    @property
    def setting(self) -> SpecSetting:
        """The same, checked, with topk 1 and a full tree where they are not stated.

        Raises
        ------
        InputError
            If the numbers contradict each other or the algorithm.
        """
        algorithm = parse_algorithm(self.algorithm)
        numbers = (self.topk, self.num_steps, self.num_draft_tokens)
        if algorithm == "none" and numbers not in {(None, None, None), (0, 0, 0)}:
            topk, steps, tokens = numbers
            return SpecSetting(
                algorithm,
                1 if topk is None else topk,
                0 if steps is None else steps,
                1 if tokens is None else tokens,
                self.scheduler,
            )
        return SpecSetting.of(*numbers, algorithm, self.scheduler)


@only_known_keys
@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where the description is from, and of which day (ISO date)."""

    text: str = ""
    date: Annotated[str, Before(_iso)] = ""


@only_known_keys
@dataclass(frozen=True, slots=True)
class Setup:
    """The content of a setup.toml; `draft` and `current` are None where the file has none."""

    hardware: HardwareSpec
    model: ModelSpec
    engine: EngineSpec
    draft: DraftSpec | None = None
    workload: WorkloadSpec = WorkloadSpec()
    current: SpecSetting | None = None
    source: SourceSpec = SourceSpec()


SECTIONS: dict[str, type] = {
    "hardware": HardwareSpec,
    "model": ModelSpec,
    "draft": DraftSpec,
    "engine": EngineSpec,
    "workload": WorkloadSpec,
    "current": CurrentSetting,
    "source": SourceSpec,
}
"""The sections of the file, in its order."""
