"""Overrides put to a profile: the setup changes, and with it what the old numbers still say.

A number that was fitted on other hardware or another model says nothing here: it goes back to its
prior, median and error. Numbers of the software (CPU time, what a drafting round pays) keep their
value but take the prior's error, for they rest partly on the machine.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specsim.acceptance import accept_table
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.engine import engine_named
from specsim.errors import InputError
from specsim.parameters import (
    ACCEPTANCE,
    KNOT,
    SPECULATING_KNOT,
    acceptance_priors,
    correction_priors,
    cost_priors,
    knot_of,
    row_of,
)
from specsim.profile import Profile, acceptance_name, level_name
from specsim.profile.uncalibrated import UNSEEN_ROUNDS
from specsim.scenario.override import ACCEPT_LENGTH, SETUP, Override, kind_of, parameter_keys
from specsim.server import Setup, setup_from_mapping, setup_to_mapping
from specsim.server.system import assemble
from specsim.setting import SpecSetting
from specsim.uncertainty import Parameter

PARTS: dict[str, Callable[[Setup], object]] = {
    "gpu": lambda s: s.hardware.gpu,
    "count": lambda s: (s.engine.tp, s.engine.dp, s.engine.ep),
    "link": lambda s: s.hardware.link,
    "allreduce": lambda s: s.hardware.allreduce,
    "model": lambda s: (s.model.id, s.model.config),
    "quantisation": lambda s: (s.model.quantisation, s.model.weight_bytes),
    "draft": lambda s: s.draft,
    "engine": lambda s: s.engine.name,
    "backend": lambda s: s.engine.attention_backend,
    "kv_dtype": lambda s: s.engine.kv_dtype,
    "kv_tokens": lambda s: (s.engine.kv_tokens, s.engine.mem_fraction_static),
}
"""Parts of a setup, as the rows of the parameters name what resets them."""

UNMEASURED = (({"gpu", "model"}, 0.10), ({"link", "count", "quantisation", "allreduce"}, 0.05))
"""Assumed: least model error of a server that nobody has measured, and of one that was rebuilt."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A changed profile, and what the change means."""

    profile: Profile
    notes: tuple[str, ...] = ()


def apply_overrides(profile: Profile, overrides: Iterable[Override]) -> Applied:
    """Return the profile under the overrides: the setup's, then parameters, then acceptance."""
    changes = tuple(overrides)
    if not changes:
        return Applied(profile)
    notes: list[str] = []
    setup = _changed_setup(profile.setup, changes, notes)
    result = profile if setup == profile.setup else _moved(profile, setup, notes)
    for change in changes:
        if change.key in parameter_keys():
            result = _with_parameter(result, change)
        elif change.key == ACCEPT_LENGTH:
            result = _with_accept_length(result, change, notes)
    label = " ".join(change.label for change in changes)
    return Applied(replace(result, name=f"{profile.name} [{label}]"), tuple(notes))


def _changed_setup(setup: Setup, changes: Sequence[Override], notes: list[str]) -> Setup:
    mapping: dict[str, Any] = setup_to_mapping(setup)
    for change in changes:
        if change.key not in SETUP:
            continue
        section, field = SETUP[change.key].split(".")
        table = mapping.setdefault(section, {})
        kind = kind_of(change.key)
        if kind not in (int, float):
            table[field] = change.text
            continue
        value = change.changed(table.get(field))
        if kind is int:
            if value != round(value):
                why = "must give a whole number"
                raise InputError(f"--set {change.label}", why, "give another factor")
            value = round(value)
        if change.key == "context" and table.get("input_cached"):
            table["input_cached"] = value * table["input_cached"] / table["input_len"]
        table[field] = value
    _follow(setup, mapping, {change.key for change in changes}, notes)
    return setup_from_mapping(mapping, "--set")


def _follow(setup: Setup, mapping: dict[str, Any], keys: set[str], notes: list[str]) -> None:
    """Change what goes with what was changed: GPUs and tp, sizes that no longer hold."""
    engine, hardware, model = mapping["engine"], mapping["hardware"], mapping["model"]
    if "tp" in keys and "gpus" not in keys:
        hardware["gpu_count"] = engine["tp"] * engine.get("dp", 1)
    elif "gpus" in keys and "tp" not in keys:
        ranks = engine.get("dp", 1)
        engine["tp"] = max(1, hardware["gpu_count"] // ranks)
    if "engine" in keys and engine["name"] != setup.engine.name:
        if "engine.version" not in keys:
            engine["version"] = engine_named(engine["name"]).newest
        for key in ("max_running_requests", "cuda_graph_max_bs", "chunked_prefill_size"):
            if key not in keys:
                engine.pop(key, None)
    if "model" in keys:
        model.pop("config", None)
        if "quantisation" not in keys:
            model.pop("quantisation", None)
        if "draft" not in keys and mapping.get("draft"):
            mapping["draft"]["id"] = "mtp" if mapping["draft"]["id"] == "mtp" else "eagle3"
    stale_size = bool(keys & {"model", "quantisation"}) and "weight_bytes" not in keys
    if stale_size and model.pop("weight_bytes", None) is not None:
        notes.append("the stated size of the weights belonged to the old ones: derived now")
    sizes = {"gpu", "gpus", "tp", "dp", "model", "quantisation", "kv_dtype", "mem_fraction_static"}
    if keys & sizes and "kv_tokens" not in keys and engine.pop("kv_tokens", None) is not None:
        notes.append("the KV pool of the start-up log belonged to the old server: derived now")
    if "gpu" in keys and "link" not in keys and hardware.get("gpu_count", 1) > 1:
        notes.append(f"the link stays {hardware.get('link', 'none')}; --set link=... changes it")


def _moved(profile: Profile, setup: Setup, notes: list[str]) -> Profile:
    """Put a profile on another setup: what does not carry over goes back to its prior."""
    groups = {name for name, part in PARTS.items() if part(profile.setup) != part(setup)}
    system = assemble(setup)
    system.kv_pool_tokens(system.plan(SpecSetting.none()))  # says if the weights do not fit
    if profile.setup.engine.version != setup.engine.version:
        old, new = (f"{s.engine.name} {s.engine.version}" for s in (profile.setup, setup))
        notes.append(f"times were fitted under {old}, not {new}")
    if not groups:
        return replace(profile, setup=setup)
    acceptances = profile.acceptances
    if groups & ACCEPTANCE["accept_level"].reset_by:
        acceptances = tuple(
            replace(
                default_acceptance(
                    setup.engine.name,
                    a.algorithm or profile.default_algorithm,
                    a.dataset,
                    a.temperature,
                ),
                algorithm=a.algorithm,
            )
            for a in acceptances
        )
    wanted = [*cost_priors(system.facts)]
    wanted += correction_priors({SPECULATING_KNOT: UNSEEN_ROUNDS})
    wanted += [p for p in profile.parameters if knot_of(p.name, KNOT) is not None]
    if any(p.name.startswith("accept_level") for p in profile.parameters):
        names = tuple(acceptance_name(a) for a in acceptances)
        by_depth = frozenset(acceptance_name(a) for a in acceptances if a.by_depth)
        wanted += acceptance_priors(names, by_depth, profile.default_algorithm == "STANDALONE")
    places = {p.name: (i, p) for i, p in enumerate(profile.parameters)}
    chosen: list[Parameter] = []
    kept: list[int | None] = []
    reset = []
    for prior in wanted:
        index, known = places.get(prior.name, (None, None))
        if known is None or not groups & row_of(prior.name).reset_by:
            chosen.append(known or prior)
            kept.append(index)
        elif knot_of(prior.name, KNOT) is None:  # those have no prior but their own spread's
            chosen.append(_back_to(prior, known))
            kept.append(None)
            told = known.driven == "data" and knot_of(prior.name) is None
            reset += [prior.name] if told else []
    if reset:
        notes.append(f"fitted on the old server, back to the prior here: {', '.join(reset)}")
    fit = profile.fit
    if least := [error for parts, error in UNMEASURED if groups & parts]:
        fit = replace(fit, observations=0, model_error=max(fit.model_error, *least))
    return replace(
        profile,
        setup=setup,
        parameters=tuple(chosen),
        correlation=_correlation(profile, kept),
        acceptances=acceptances,
        fit=fit,
        misfits=(),
    )


def _back_to(prior: Parameter, known: Parameter) -> Parameter:
    """Return the prior, around the known value where that is the software's."""
    if not row_of(prior.name).of_software:
        return prior
    shift = known.value / prior.prior_median
    return replace(
        prior,
        value=known.value,
        prior_median=known.value,
        low=prior.low * min(shift, 1.0),
        high=prior.high * max(shift, 1.0),
    )


def _correlation(profile: Profile, kept: Sequence[int | None]) -> tuple[tuple[float, ...], ...]:
    """Of the parameters with the places that they had; those without stand alone."""
    places = [i for i, old in enumerate(kept) if old is not None]
    known = [old for old in kept if old is not None]
    result = np.eye(len(kept))
    result[np.ix_(places, places)] = np.array(profile.correlation)[np.ix_(known, known)]
    return tuple(map(tuple, result.tolist()))


def _with_parameter(profile: Profile, change: Override) -> Profile:
    """Set or multiply a parameter; its error stays."""
    name = parameter_keys()[change.key]
    old = next((p for p in profile.parameters if p.name == name), None)
    if old is None:
        names = [p.name for p in profile.parameters if "[" not in p.name]
        why = f"changes {name}, which this profile was not fitted with"
        remedy = f"fit the profile again if this server has it, or change one of {', '.join(names)}"
        raise InputError(f"--set {change.label}", why, remedy)
    value = change.changed(old.value)
    if old.scale == "log" and value <= 0:
        raise InputError(f"--set {change.label}", "must be positive", "give a factor above 0")
    shift = value / old.value if old.scale == "log" else 1.0
    new = replace(
        old,
        value=value,
        prior_median=old.prior_median * shift if old.scale == "log" else value,
        low=min(old.low * shift, value),
        high=max(old.high * shift, value),
        source=f"--set {change.label}",
    )
    parameters = tuple(new if p is old else p for p in profile.parameters)
    return replace(profile, parameters=parameters)


def _with_accept_length(profile: Profile, change: Override, notes: list[str]) -> Profile:
    """Shift the level of the first acceptance until the current setting has that accept length."""
    setting = profile.setup.current
    if setting is None or not setting.speculates:
        setting = SpecSetting.of(1, 3, algorithm="EAGLE3")
        notes.append("no current setting: the accept length is taken to be that of a chain of 3")
    acceptance = profile.acceptance()
    wanted = change.changed(accept_table(acceptance, setting).accept_length)
    most = 1 + min(setting.num_steps, setting.num_draft_tokens - 1)
    if not 1 < wanted < most:
        why = f"must lie between 1 and {most}, the bonus token included ({setting.label})"
        raise InputError(f"--set {change.label}", why, "give tokens per request and round")
    level = at_accept_length(acceptance, setting, wanted).level
    name = level_name(acceptance)
    parameters = tuple(replace(p, sd=0.0) if p.name == name else p for p in profile.parameters)
    shift = next((p.value for p in parameters if p.name == name), 0.0)
    first = replace(
        profile.acceptances[0],
        level=level - shift,
        evidence="assumed",
        source=f"--set {change.label}",
    )
    return replace(profile, parameters=parameters, acceptances=(first, *profile.acceptances[1:]))
