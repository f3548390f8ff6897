"""A profile: one server with its numbers, their errors and their provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.acceptance import Acceptance, AcceptTable, accept_tables
from specsim.cost.model import CostParameters, cost_parameters
from specsim.curve import Curve, Misfit, Solver
from specsim.errors import InputError, UnknownNameError
from specsim.parameters import KNOT
from specsim.server import Setup
from specsim.server.system import System, assemble
from specsim.setting import FAMILY_OF, Algorithm, SpecSetting, parse_algorithm
from specsim.textfile import name_of
from specsim.uncertainty import LARGEST_ERROR, Evidence, Parameter, Spread, spread, weakest

if TYPE_CHECKING:
    from specsim.arrays import Floats

SHAPES = {"accept_decay": "decay"} | {s: s for s in ("rank_scale", "confidence_shift")}
"""Parameters that acceptances share, and what they are of one."""

ROUNDING = 1e-6  # a correlation of floats may exceed 1 by this


@dataclass(frozen=True, slots=True)
class FitRecord:
    """How the profile was fitted."""

    observations: int = 0  # rows used
    noise: float = 0.03  # of one observation's ln(throughput) about the model, standard deviation
    model_error: float = 0.10  # of every prediction's ln(throughput): what the model misses
    data_sha256: str = ""  # of the observations, so that a test can tell whether they changed
    source: str = ""  # where they are from

    def __post_init__(self) -> None:
        numbers = (self.observations, self.noise, self.model_error)
        errors = (self.noise, self.model_error)
        if not (all(n >= 0 for n in numbers) and max(errors) <= LARGEST_ERROR):
            why = f"must be finite and not negative, errors at most {LARGEST_ERROR:g}"
            remedy = "fit the profile again"
            raise InputError(f"[fit] observations, noise, model_error = {numbers}", why, remedy)


@dataclass(frozen=True, slots=True)
class Profile:
    """A server, priced."""

    name: str
    setup: Setup
    parameters: tuple[Parameter, ...]
    correlation: tuple[tuple[float, ...], ...]  # posterior, of the parameters in their order
    acceptances: tuple[Acceptance, ...]  # one per dataset and temperature; the first is the default
    fit: FitRecord = field(default_factory=FitRecord)
    misfits: tuple[Misfit, ...] = ()  # cells that the fit does not honour

    def __post_init__(self) -> None:
        size = len(self.parameters)
        if len(self.correlation) != size or any(len(row) != size for row in self.correlation):
            why = "has a correlation of another size"
            raise InputError(f"profile {self.name}", why, "fit it again")
        if not all(abs(number) <= 1 + ROUNDING for row in self.correlation for number in row):
            why = "has a correlation outside -1..1"
            raise InputError(f"profile {self.name}", why, "fit it again")
        if not self.acceptances:
            raise InputError(f"profile {self.name}", "has no acceptance", "fit it again")

    @property
    def coordinates(self) -> Floats:
        """Values in prior standard deviations from the prior medians."""
        return np.array([p.coordinate for p in self.parameters])

    @property
    def covariance(self) -> Floats:
        """Posterior covariance of the coordinates."""
        sd = np.array([p.sd / p.prior_sd for p in self.parameters])
        return np.array(self.correlation) * np.outer(sd, sd)

    def spread(self, log_output: Callable[[Floats], Floats]) -> Spread:
        """Differentiate ln(throughput), given at many coordinates at once, at the values."""
        return spread(log_output, self.coordinates, self.covariance, self.fit.model_error)

    def system(self, coordinates: Floats | None = None) -> System:
        """Return the server with its fitted (or the given) cost parameters."""
        at = self.coordinates if coordinates is None else coordinates
        return assembled(self.setup, cost_parameters(self.parameters, at))

    def acceptance(
        self,
        dataset: str | None = None,
        temperature: float | None = None,
        coordinates: Floats | None = None,
        algorithm: Algorithm | None = None,
    ) -> Acceptance:
        """Return the acceptance of a dataset and temperature; the first if neither is given.

        Of the server's own drafter, or of another by `algorithm`: nothing that was measured of one
        drafter says anything of another, which has the prior of its kind where it has no rows.
        """
        main = self.default_algorithm
        wanted = main if algorithm in (None, "none") else algorithm
        known = of_drafter(self.acceptances, wanted, main)
        if not known:
            from specsim.acceptance.prior import default_acceptance  # few questions need it

            first = self.acceptances[0]
            named = default_acceptance(
                self.setup.engine.name,
                wanted,
                first.dataset if dataset is None else dataset,
                first.temperature if temperature is None else temperature,
            )
            return replace(named, algorithm=wanted)
        for acceptance in known:
            if dataset is not None and acceptance.dataset != dataset:
                continue
            if temperature is not None and acceptance.temperature != temperature:
                continue
            at = self.coordinates if coordinates is None else coordinates
            return moved_acceptance(acceptance, self.parameters, at)
        name = "any" if dataset is None else dataset
        name += "" if temperature is None else f"@{temperature:g}"
        raise UnknownNameError("acceptance", name, map(acceptance_name, known))

    def knows(self, algorithm: Algorithm) -> bool:
        """Whether any acceptance here is of that drafter, rather than of its kind."""
        return bool(of_drafter(self.acceptances, algorithm, self.default_algorithm))

    def accept_tables(
        self,
        settings: Sequence[SpecSetting],
        dataset: str | None = None,
        temperature: float | None = None,
        coordinates: Floats | None = None,
    ) -> tuple[AcceptTable, ...]:
        """Return what settings buy, each with the acceptance of its own drafter."""
        tables: dict[SpecSetting, AcceptTable] = {}
        for algorithm in dict.fromkeys(s.algorithm for s in settings):
            own = [s for s in settings if s.algorithm == algorithm]
            acceptance = self.acceptance(dataset, temperature, coordinates, algorithm)
            tables |= zip(own, accept_tables(acceptance, own), strict=True)
        return tuple(tables[s] for s in settings)

    @property
    def measured(self) -> bool:
        """Whether it was fitted to any measurement of this server."""
        return self.fit.observations > 0

    @property
    def evidence(self) -> Evidence:
        """The weakest evidence among the fitted numbers; ``assumed`` if nothing was fitted."""
        fitted = [p.evidence for p in self.parameters if p.fitted]
        return weakest(fitted) if fitted else "assumed"

    @property
    def default_algorithm(self) -> Algorithm:
        """The algorithm that runs today, or else the one that goes with the drafter."""
        return main_algorithm(self.setup)

    def predict(
        self,
        *settings: SpecSetting,
        topk: int | None = None,
        num_steps: int | None = None,
        num_draft_tokens: int | None = None,
        concurrency: Iterable[int] | None = None,
        solver: Solver = "simulate",
        seed: int = 0,
        **question: Any,
    ) -> Curve:
        """Predict throughput over load; the short way to :func:`specsim.predict.predict`.

        Raises :class:`InputError` if a number cannot be used; :class:`EngineRefusal` if the engine
        refuses a setting and ``what_if`` is not set.

        Parameters
        ----------
        settings
            What is asked about.
        topk, num_steps, num_draft_tokens
            One more setting, under the profile's algorithm and the engine's own scheduler.
        concurrency
            Clients in flight; None for 1 to 250.
        solver, seed
            As there.
        question
            Further fields of :class:`specsim.question.Question`, e.g. ``engine_version``.

        Examples
        --------
        >>> from specsim.profile import load_profile
        >>> curve = load_profile().predict(topk=2, num_steps=2, concurrency=[1], solver="analytic")
        >>> [series.role for series in curve.series]
        ['baseline', 'current', 'asked', 'alternative']
        """
        from specsim.predict import predict  # here, so that a fit does without
        from specsim.question import Question

        if any(number is not None for number in (topk, num_steps, num_draft_tokens)):
            one = SpecSetting.of(topk, num_steps, num_draft_tokens, self.default_algorithm)
            settings = (*settings, one)
        if concurrency is not None:
            question["concurrency"] = tuple(concurrency)
        asked = Question(settings=settings, **question)
        return predict(self, asked, solver=solver, seed=seed)

    def _repr_html_(self) -> str:
        """Show a table in notebooks; what stands at its prior, and knots, are only counted."""
        from html import escape  # few need it

        fitted = [p for p in self.parameters if p.fitted]
        shown = [p for p in fitted if not p.name.startswith(KNOT)]
        held, knots = len(self.parameters) - len(fitted), len(fitted) - len(shown)
        sentences = [
            f"Fitted to {self.fit.observations} measured cells; "
            f"model error {100 * self.fit.model_error:.1f} %."
            if self.measured
            else "Nothing was measured on this server.",
            f"Weakest evidence: {self.evidence}.",
        ]
        sentences += [f"{held} numbers stand at their priors."] if held else []
        sentences += [f"What physics misses has {knots} knots."] if knots else []
        rows = [("th", "number", "value (90 %)", "prior (90 %)", "driven by")] if shown else []
        rows += [("td", p.name, *p.texts, p.driven) for p in shown]
        table = "".join(
            f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
            for tag, *cells in rows
        )
        return (
            f"<p><b>{escape(self.name)}</b>: {escape(server_line(self.setup))}</p>"
            f"<table>{table}</table><p>{escape(' '.join(sentences))}</p>"
        )


def main_algorithm(setup: Setup) -> Algorithm:
    """Return the algorithm that runs today, or else the one that goes with the drafter."""
    if setup.current is not None and setup.current.speculates:
        return setup.current.algorithm
    draft = assembled(setup).cost.draft
    return "EAGLE3" if draft is None else parse_algorithm(draft.kind)


def of_drafter(
    acceptances: Iterable[Acceptance], algorithm: Algorithm, main: Algorithm
) -> list[Acceptance]:
    """Return the acceptances of a drafter; none if it is another than those that were measured.

    The server has one drafter, `main`; an algorithm of its family that has no rows of its own is
    another name of it (SGLang calls an MTP layer EAGLE).
    """
    own = [a for a in acceptances if a.algorithm == algorithm]
    same = algorithm == main or FAMILY_OF[algorithm] == FAMILY_OF[main]
    return own or [a for a in acceptances if not a.algorithm and same]


def acceptance_of(
    profile: Profile, dataset: str, temperature: float, algorithm: Algorithm | None = None
) -> Acceptance:
    """Return the acceptance of a dataset and temperature, before any level is applied.

    Where the profile has none, its first one under the new name: its level is then unknown and
    carries the profile's error only. A caller says so.
    """
    main = profile.default_algorithm
    known = of_drafter(profile.acceptances, algorithm or main, main)
    for acceptance in known:
        if (acceptance.dataset, acceptance.temperature) == (dataset, temperature):
            return acceptance
    if not known:
        return profile.acceptance(dataset, temperature, algorithm=algorithm)
    first = known[0]
    level = next((p.value for p in profile.parameters if p.name == level_name(first)), 0.0)
    return replace(first, dataset=dataset, temperature=temperature, level=first.level + level)


def acceptance_name(acceptance: Acceptance) -> str:
    """Name of an acceptance: dataset and temperature, and whose it is if another drafter's.

    >>> acceptance_name(Acceptance("chat", 0.0)), acceptance_name(Acceptance(algorithm="NGRAM"))
    ('chat@0', 'default@0/NGRAM')
    """
    whose = f"/{acceptance.algorithm}" if acceptance.algorithm else ""
    return f"{acceptance.dataset or 'default'}@{acceptance.temperature:g}{whose}"


def level_name(acceptance: Acceptance) -> str:
    """Name of the parameter that is the level of an acceptance."""
    return f"accept_level[{acceptance_name(acceptance)}]"


def moved_acceptance(
    acceptance: Acceptance, parameters: Sequence[Parameter], coordinates: Floats
) -> Acceptance:
    """Move an acceptance to given coordinates."""
    own = {level_name(acceptance): "level"}
    if not acceptance.algorithm:  # the shapes are those of the server's own drafter
        own |= SHAPES
    values: dict[str, Any] = {
        own[p.name]: p.at(z)
        for p, z in zip(parameters, coordinates.tolist(), strict=True)
        if p.name in own
    }
    return replace(acceptance, **values | {"level": acceptance.level + values.get("level", 0.0)})


def assembled(setup: Setup, parameters: CostParameters | None = None) -> System:
    """Assemble a setup, with other parameters than 1; the library is read once per setup."""
    system = _base_system(setup, _stamps(setup))
    return system if parameters is None else system.with_parameters(parameters)


@lru_cache(maxsize=64)
def _base_system(setup: Setup, stamps: tuple[int, ...]) -> System:
    return assemble(setup)


def _stamps(setup: Setup) -> tuple[int, ...]:
    """When the own files that a setup names were last written: an edited one is read again."""
    draft = setup.draft.id if setup.draft is not None else None
    names = (setup.hardware.link, setup.model.id, setup.model.config, draft)
    files = [Path(name) for name in names if name and name.endswith((".toml", ".json"))]
    return tuple(file.stat().st_mtime_ns for file in files if file.is_file())


def server_line(setup: Setup) -> str:
    """Say in a line what a server is: GPUs, link, model, drafter, engine."""
    hardware, engine, draft = setup.hardware, setup.engine, setup.draft
    gpu = hardware.gpu if isinstance(hardware.gpu, str) else hardware.gpu.name
    parts = [f"{hardware.gpu_count} x {gpu}"]
    parts += [f"link {name_of(hardware.link)}"] if hardware.gpu_count > 1 else []
    model = name_of(setup.model.id or setup.model.config or "model")
    parts.append(f"{model} {setup.model.quantisation or ''}".strip())
    if draft is not None:
        parts.append(f"drafter {name_of(draft.id or 'own')}")
    parts.append(f"{engine.name} {engine.version}, tp {engine.tp}")
    return ", ".join(parts)
