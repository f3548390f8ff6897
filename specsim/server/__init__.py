"""A server as one file describes it: setup.toml, schema ``specsim.setup/1``, and back.

The sections of the file are the classes and functions below: their arguments are its keys, their
annotations the schema, their ranges they check themselves. Library ids (``gpu``, ``link``,
``model``, ``draft``) stay strings: what they stand for is the business of the hardware and
architecture modules. This is the boundary, where whatever is wrong becomes one line.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from specsim.engine import ENGINES, EngineSpec
from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.hardware import Gpu, gpu_from_table, load_gpu
from specsim.library import Kind, at_least, checked, is_file, kinds_of
from specsim.setting import Scheduler, SpecSetting, parse_algorithm
from specsim.textfile import check_schema, read_toml, shown
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
    output_len: float | None = None,
    input_cached: float = 0.0,
    input_len_cv: float = 0.0,
    output_len_cv: float | None = None,
    dataset: str = "",
    temperature: float = 0.0,
    evidence: Evidence = "assumed",
    shared_prefix_len: float = 0.0,
) -> Workload:
    """Return the requests, where an observation or a command does not say, as written.

    Lengths are means in tokens (of answers 512, if not stated); `input_len_cv` and `output_len_cv`
    are coefficients of variation, 0 for fixed lengths (of answers, if not stated, see
    :func:`answer_cv`); `shared_prefix_len` prompt tokens are the same in all requests.
    """
    if output_len_cv is None:
        output_len_cv = answer_cv(dataset, output_len)
    if output_len is None:
        output_len = 512.0
    at_least(1, output_len=output_len)
    at_least(0, input_len=input_len, input_cached=input_cached, temperature=temperature)
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

SCHEMA = "specsim.setup/1"

PATHS = {"hardware": ("gpu", "link"), "model": ("id", "config"), "draft": ("id",)}
"""Keys that may hold the path of a file, which counts from the setup's folder."""


def read_setup(path: str | Path) -> Setup:
    """Read a setup.toml; a relative path in it counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        If the file is not TOML of this schema; the message names file, key and nearest known key.
    InputError
        If the file cannot be opened.
    """
    return setup_from_mapping(read_toml(path, "a setup.toml"), Path(path))


def setup_from_mapping(mapping: Mapping[str, Any], origin: str | Path = "setup") -> Setup:
    """Check a mapping of the schema and return it as a Setup.

    Parameters
    ----------
    mapping
        As a TOML or JSON parser returns it. An empty text is the same as a key left out.
    origin
        For messages; where it is a Path, a relative path in the mapping counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        As :func:`read_setup`.

    Examples
    --------
    >>> setup_from_mapping({
    ...     "schema": "specsim.setup/1",
    ...     "hardware": {"gpu": "h100-sxm"},
    ...     "model": {"id": "llama-3.1-8b"},
    ...     "engine": {"name": "sglang", "version": "0.5.9"},
    ... }).hardware.gpu
    'h100-sxm'
    """
    check_schema(mapping.get("schema"), SCHEMA, origin, f'write schema = "{SCHEMA}"')
    for name in mapping:
        if name != "schema" and name not in SECTIONS:
            raise _unknown_key(origin, str(name), None)
    for name in REQUIRED:
        if name not in mapping:
            raise FormatError(f"{origin}: [{name}]", "is missing", f"add a section [{name}]")
    sections = {name: _section(name, mapping[name], origin) for name in SECTIONS if name in mapping}
    engine = sections["engine"]
    sections["engine"] = replace(engine, name=engine.name.strip().lower())
    if sections["engine"].name not in ENGINES:
        raise UnknownNameError(f"{origin}: [engine] name", engine.name, ENGINES)
    try:
        return Setup(**sections)
    except InputError as error:
        raise _in_file(f"{origin}:", error) from None


def setup_to_mapping(setup: Setup) -> dict[str, Any]:
    """Return the plain mapping that :func:`setup_from_mapping` reads back to the same Setup."""
    mapping: dict[str, Any] = {"schema": SCHEMA}
    for name in SECTIONS:
        section = getattr(setup, name)
        if name == "workload":
            values = workload_table(section)
        elif section is not None:
            values = {key: getattr(section, key) for key in kinds_of(SECTIONS[name])}
        else:
            continue
        mapping[name] = {k: _plain(v) for k, v in values.items() if v is not None and v != ""}
    return mapping


def _plain(value: object) -> object:
    if isinstance(value, Gpu):
        return value.table()
    if isinstance(value, tuple):
        return {str(size): seconds for size, seconds in value}
    return value


def _section(name: str, raw: object, origin: str | Path) -> Any:
    where = f"{origin}: [{name}]"
    if not isinstance(raw, Mapping):
        raise FormatError(where, "must be a table", f"write [{name}] and its keys below")
    blank = {key for key, v in raw.items() if v is None or (isinstance(v, str) and not v.strip())}
    table = {key: value for key, value in raw.items() if key not in blank}
    if isinstance(origin, Path):
        for key in PATHS.get(name, ()):
            given = table.get(key)
            if isinstance(given, str) and (key == "config" or is_file(given)):
                table[key] = str(origin.parent / Path(given).expanduser())
    kinds = kinds_of(SECTIONS[name])
    for key in table:
        if key not in kinds:
            raise _unknown_key(origin, name, key)
    for key, argument in signature(SECTIONS[name]).parameters.items():
        if argument.default is Parameter.empty and key not in table:
            raise FormatError(f"{where} {key}", "is missing", f"add {key} to [{name}]")
    try:
        return SECTIONS[name](**{k: _value(k, v, kinds[k]) for k, v in table.items()})
    except InputError as error:
        raise _in_file(where, error) from None


def _value(key: str, value: object, kind: Kind) -> object:
    """Return the checked value of a key, turned round where the file writes it otherwise."""
    if key == "gpu" and not isinstance(value, str):
        return _own_gpu(value)
    if key == "allreduce" and not isinstance(value, str):
        return _pairs(value)
    if isinstance(value, date):  # TOML has a type for it
        value = value.isoformat()
    found = checked(key, value, kind)
    return load_gpu(found) if key == "gpu" and is_file(found) else found


def _own_gpu(value: object) -> Gpu:
    if isinstance(value, Mapping):
        return gpu_from_table(value)
    if isinstance(value, Gpu):
        return value
    given = f"gpu = {shown(value)}"
    raise InputError(given, "is neither a library id nor a table", "put the id in quotes")


def _pairs(value: object) -> tuple[tuple[int, float], ...]:
    """Turn a table of bytes -> seconds into pairs in order of bytes."""
    if not isinstance(value, Mapping) or not value:
        why = "is neither a name nor a table of bytes and seconds"
        remedy = 'write e.g. "fused" or {"65536" = 42e-6}'
        raise InputError(f"allreduce = {shown(value)}", why, remedy)
    for size, seconds in value.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not (re.fullmatch(r"[1-9][0-9]{0,14}", str(size)) and number and 0 < seconds < math.inf):
            why = "must be a whole number of bytes and a positive number of seconds"
            remedy = 'write e.g. "65536" = 42e-6'
            raise InputError(f"allreduce: {shown(size)} = {shown(seconds)}", why, remedy)
    return tuple(sorted((int(size), float(seconds)) for size, seconds in value.items()))


def _in_file(where: str, error: SpecsimError) -> InputError:
    """Return the same complaint with the file and the key in front."""
    if isinstance(error, UnknownNameError):
        return UnknownNameError(f"{where} {error.kind}", error.name, error.known)
    return FormatError(f"{where} {error.value}", error.reason, error.remedy)


def _unknown_key(origin: str | Path, section: str, key: str | None) -> UnknownNameError:
    """Return the error of a key that its section, or a section that the file, does not have."""
    known = {name: list(kinds_of(SECTIONS[name])) for name in SECTIONS}
    name = section if key is None else key
    homes = [other for other, keys in known.items() if name in keys]
    remedy = f"it belongs in {' or '.join(f'[{home}]' for home in homes)}" if homes else None
    if key is None:
        return UnknownNameError(f"{origin}: section", section, known, remedy)
    return UnknownNameError(f"{origin}: key of [{section}]", key, known[section], remedy)
