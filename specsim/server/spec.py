"""What a setup.toml says, by section: each one's arguments are its keys.

Their annotations are the schema that is checked at the boundary (:mod:`specsim.server`); their
ranges they check themselves. Library ids (``gpu``, ``link``, ``model``, ``draft``) stay strings:
what they stand for is the business of the hardware and architecture modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from specsim.engine import EngineSpec
from specsim.errors import InputError
from specsim.hardware import Gpu
from specsim.library import at_least
from specsim.setting import Scheduler, SpecSetting, parse_algorithm
from specsim.uncertainty import Evidence
from specsim.workload import Lengths, Workload, answer_cv

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
        at_least(1, gpu_count=self.gpu_count)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The target model: a library id, or the path of its config.json or TOML table."""

    id: str | None = None
    config: str | None = None
    quantisation: str | None = None  # weight format; None is the one of the id or the config
    weight_bytes: float | None = None  # overrides the derived size of all weights
    path: str | None = None  # as its engine is told it, like that of a drafter

    def __post_init__(self) -> None:
        at_least(1, weight_bytes=self.weight_bytes)


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """The drafter: a library id, or the path of a TOML table."""

    id: str | None = None
    quantisation: str | None = None  # weight format of one that is not its published one
    layers: int | None = None  # that are kept of a model that drafts, where it is cut short
    tp: int | None = None  # GPUs that share it, 1 or the target's; None is the target's
    vocab: int | None = None  # words that it scores, where the target's head is cut down for it
    path: str | None = None

    def __post_init__(self) -> None:
        at_least(1, layers=self.layers, tp=self.tp, vocab=self.vocab)


def workload_of(
    input_len: float = 1024.0,
    output_len: float = 512.0,
    input_cached: float = 0.0,
    input_len_cv: float = 0.0,
    output_len_cv: float | None = None,
    dataset: str = "",
    temperature: float = 0.0,
    evidence: Evidence = "assumed",
    shared_prefix_len: float = 0.0,
) -> Workload:
    """Return the requests, where an observation or a command does not say, as written.

    Lengths are means in tokens; `input_len_cv` and `output_len_cv` are coefficients of variation,
    0 for fixed lengths (of answers, if not stated, see :func:`answer_cv`); `shared_prefix_len`
    prompt tokens are the same in all requests.
    """
    at_least(1, output_len=output_len)
    at_least(0, input_len=input_len, input_cached=input_cached, temperature=temperature)
    if output_len_cv is None:
        output_len_cv = answer_cv(dataset)
    at_least(0, input_len_cv=input_len_cv, output_len_cv=output_len_cv)
    inputs, outputs = Lengths(input_len, input_len_cv), Lengths(output_len, output_len_cv)
    return Workload(
        inputs, outputs, input_cached, dataset, temperature, evidence, shared_prefix_len
    )


USUAL_WORKLOAD = workload_of()


def workload_table(workload: Workload) -> dict[str, object]:
    """Return what :func:`workload_of` makes the same workload of."""
    return {
        "input_len": workload.input_len.mean,
        "output_len": workload.output_len.mean,
        "input_cached": workload.input_cached,
        "input_len_cv": workload.input_len.cv,
        "output_len_cv": workload.output_len.cv,
        "dataset": workload.dataset,
        "temperature": workload.temperature,
        "evidence": workload.evidence,
        "shared_prefix_len": workload.shared_prefix_len,
    }


def setting_of(
    algorithm: str,
    topk: int | None = None,
    num_steps: int | None = None,
    num_draft_tokens: int | None = None,
    scheduler: Scheduler = "auto",
) -> SpecSetting:
    """Return the setting that runs today: topk 1 and a full tree where they are not stated."""
    at_least(0, topk=topk, num_steps=num_steps, num_draft_tokens=num_draft_tokens)
    known, numbers = parse_algorithm(algorithm), (topk, num_steps, num_draft_tokens)
    if known == "none" and numbers not in {(None, None, None), (0, 0, 0)}:
        topk, num_steps, num_draft_tokens = (
            least if number is None else number
            for least, number in zip((1, 0, 1), numbers, strict=True)
        )
        return SpecSetting(known, topk, num_steps, num_draft_tokens, scheduler)
    return SpecSetting.of(*numbers, known, scheduler)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where the description is from, and of which day (ISO date)."""

    text: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """The content of a setup.toml; `draft` and `current` are None where the file has none."""

    hardware: HardwareSpec
    model: ModelSpec
    engine: EngineSpec
    draft: DraftSpec | None = None
    workload: Workload = USUAL_WORKLOAD
    current: SpecSetting | None = None
    source: SourceSpec = SourceSpec()

    def __post_init__(self) -> None:
        if (self.model.id is None) == (self.model.config is None):
            remedy = "give a library id, or the path of the model's config.json"
            raise InputError("[model]", "must have either id or config", remedy)


SECTIONS: dict[str, Callable[..., Any]] = {
    "hardware": HardwareSpec,
    "model": ModelSpec,
    "draft": DraftSpec,
    "engine": EngineSpec,
    "workload": workload_of,
    "current": setting_of,
    "source": SourceSpec,
}
"""The sections of the file, in its order: what their keys are the arguments of."""

REQUIRED = ("hardware", "model", "engine")
