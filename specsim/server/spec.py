"""What a setup.toml says: one frozen dataclass per section.

Their annotations are the schema that pydantic checks at the boundary (``reading``); their ranges
they check themselves. Library ids (``gpu``, ``link``, ``model``, ``draft``) stay strings: what they
stand for is the business of the hardware and architecture modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specsim.engine import EngineSpec, at_least
from specsim.errors import InputError
from specsim.evidence import Evidence
from specsim.hardware import Gpu
from specsim.setting import Scheduler, SpecSetting, parse_algorithm
from specsim.workload import Lengths, Workload

AllReduce = Literal["nccl", "custom", "fused", "symmetric"]


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """The GPUs of one server and what joins them."""

    gpu: str | Gpu  # library id, or one of the user's own
    gpu_count: int = 1
    link: str = "none"  # id of the link between them, or a TOML file
    # the implementation, or measured (message bytes, seconds) pairs in order of bytes
    allreduce: AllReduce | tuple[tuple[int, float], ...] = "nccl"

    def __post_init__(self) -> None:
        at_least(self, 1, "gpu_count")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The target model: a library id, or the path of its config.json or TOML table."""

    id: str | None = None
    config: str | None = None
    quantisation: str | None = None  # weight format; None is the one of the id or the config
    weight_bytes: float | None = None  # overrides the derived size of all weights

    def __post_init__(self) -> None:
        at_least(self, 1, "weight_bytes")


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """The drafter: a library id, or the path of a TOML table."""

    id: str | None = None
    quantisation: str | None = None  # weight format of one that is not its published one
    layers: int | None = None  # that are kept of a model that drafts, where it is cut short

    def __post_init__(self) -> None:
        at_least(self, 1, "layers")


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """The requests, where an observation or a command does not say, as written; means in tokens.

    `input_len_cv` and `output_len_cv` (coefficients of variation, 0 for fixed lengths) extend the
    format. The lengths are ``assumed`` unless `evidence` says better.
    """

    input_len: float = 1024.0
    output_len: float = 512.0
    input_cached: float = 0.0
    input_len_cv: float = 0.0
    output_len_cv: float = 0.0
    dataset: str = ""
    temperature: float = 0.0
    evidence: Evidence = "assumed"

    def __post_init__(self) -> None:
        at_least(self, 1, "output_len")
        at_least(self, 0, "input_len", "input_cached", "input_len_cv", "output_len_cv")
        at_least(self, 0, "temperature")

    @classmethod
    def of(cls, workload: Workload) -> WorkloadSpec:
        """Return how a workload is written."""
        return cls(
            workload.input_len.mean,
            workload.output_len.mean,
            workload.input_cached,
            workload.input_len.cv,
            workload.output_len.cv,
            workload.dataset,
            workload.temperature,
            workload.evidence,
        )

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


@dataclass(frozen=True, slots=True)
class CurrentSetting:
    """The setting that runs today, as written."""

    algorithm: str
    topk: int | None = None
    num_steps: int | None = None
    num_draft_tokens: int | None = None
    scheduler: Scheduler = "auto"

    def __post_init__(self) -> None:
        at_least(self, 0, "topk", "num_steps", "num_draft_tokens")

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


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where the description is from, and of which day (ISO date)."""

    text: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """The content of a setup.toml; `draft` and `current` are None where the file has none.

    Raises
    ------
    InputError
        If the model has neither id nor config, or both.
    """

    hardware: HardwareSpec
    model: ModelSpec
    engine: EngineSpec
    draft: DraftSpec | None = None
    workload: Workload = WorkloadSpec().workload
    current: SpecSetting | None = None
    source: SourceSpec = SourceSpec()

    def __post_init__(self) -> None:
        if (self.model.id is None) == (self.model.config is None):
            raise InputError(
                "[model]",
                "must have either id or config",
                "give a library id, or the path of the model's config.json",
            )


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

REQUIRED = ("hardware", "model", "engine")
