"""The options that commands share, and the parsing of those that are more than a number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from specsim.curve import Solver
    from specsim.setting import Scheduler


def complete_profile() -> list[str]:
    """Return the shipped profiles, for the shell; files it completes by itself."""
    from specsim.profile import profile_names

    return list(profile_names())


def _complete_algorithm() -> list[str]:
    from specsim.setting import Algorithm

    return list(get_args(Algorithm))


def _complete_scheduler() -> list[str]:
    from specsim.setting import Scheduler

    return list(get_args(Scheduler))


def _complete_engine() -> list[str]:
    from specsim.engine import engine_names

    return list(engine_names())


def _complete_solver() -> list[str]:
    from specsim.curve import Solver

    return list(get_args(Solver))


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME|FILE",
        help="Shipped profile or profile.toml.",
        autocompletion=complete_profile,
    ),
]
TopkOption = Annotated[
    int | None,
    typer.Option(
        "--topk", "--speculative-eagle-topk", metavar="K", help="Branches per step; 1 is a chain."
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option("--steps", "--speculative-num-steps", metavar="S", help="Depth of the draft."),
]
DraftTokensOption = Annotated[
    int | None,
    typer.Option(
        "--draft-tokens",
        "--speculative-num-draft-tokens",
        metavar="N",
        help="Tokens verified per round, root included. Default: all that the tree can offer.",
    ),
]
ConfigListOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config-list", metavar="S,K,N ...", help="Several settings: steps, topk, draft tokens."
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        "--speculative-algorithm",
        metavar="A",
        help="EAGLE, EAGLE3, MTP, STANDALONE, NGRAM or none. Default: the profile's.",
        autocompletion=_complete_algorithm,
    ),
]
SchedulerOption = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="auto|sequential|overlap",
        help="auto is what the engine's version does by itself.",
        autocompletion=_complete_scheduler,
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--settings", metavar="FILE", help="JSON file of settings."),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="E",
        help="The same hardware under sglang, vllm, tensorrt-llm, ...",
        autocompletion=_complete_engine,
    ),
]
EngineVersionOption = Annotated[
    str | None, typer.Option("--engine-version", metavar="V", help="Default: the profile's.")
]
MaxRunningOption = Annotated[
    int | None,
    typer.Option("--max-running-requests", metavar="N", help="Cap of requests that run at once."),
]
ConcurrencyOption = Annotated[
    str | None,
    typer.Option(
        "--concurrency", metavar="1,2,5,...", help="Clients in flight. Default: 1 to 250."
    ),
]
RequestRateOption = Annotated[
    float | None,
    typer.Option(
        "--request-rate", metavar="R", help="Poisson arrivals per second instead of clients."
    ),
]
InputLenOption = Annotated[
    float | None,
    typer.Option("--input-len", "--isl", metavar="N", help="Prompt tokens. Default: profile's."),
]
OutputLenOption = Annotated[
    float | None,
    typer.Option("--output-len", "--osl", metavar="N", help="Answer tokens. Default: profile's."),
]
ContextLenOption = Annotated[
    float | None,
    typer.Option(
        "--context-len", metavar="N", help="Steady decode at this many KV tokens per request."
    ),
]
DatasetOption = Annotated[
    str | None, typer.Option("--dataset", metavar="D", help="Whose acceptance. Default: first.")
]
TemperatureOption = Annotated[
    float | None, typer.Option("--temperature", metavar="T", help="Whose acceptance.")
]
SolverOption = Annotated[
    str,
    typer.Option(
        "--solver",
        metavar="simulate|analytic",
        help="analytic is instant, and close by.",
        autocompletion=_complete_solver,
    ),
]
WhatIfOption = Annotated[
    bool, typer.Option("--what-if", help="Model what the engine's version refuses.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Of the simulation.")]

MOST_LOADS = 1000


def parse_concurrency(text: str) -> tuple[int, ...]:
    """Return the loads of ``1,2,5``, in rising order, each once.

    Raises
    ------
    InputError
        If there is none, or one is not a whole number.

    Examples
    --------
    >>> parse_concurrency("100, 1,30")
    (1, 30, 100)
    """
    loads = set()
    for word in re.split(r"[\s,]+", text.strip(" ,")):
        if not re.fullmatch(r"[0-9]{1,9}", word):
            shown = f"concurrency {word}" if word else "concurrency"
            reason = "is not a whole number of clients" if word else "is empty"
            raise InputError(shown, reason, "give clients in flight, e.g. --concurrency 1,10,100")
        loads.add(int(word))
    if len(loads) > MOST_LOADS:
        raise InputError(
            f"concurrency of {len(loads)} loads", f"is more than {MOST_LOADS}", "give fewer"
        )
    return tuple(sorted(loads))


def parse_solver(text: str) -> Solver:
    """Return the solver of that name."""
    from specsim.curve import Solver

    solvers: tuple[Solver, ...] = get_args(Solver)
    for solver in solvers:
        if solver == text:
            return solver
    raise UnknownNameError("solver", text, solvers)


def parse_scheduler(text: str) -> Scheduler:
    """Return the scheduler of that name."""
    from specsim.setting import Scheduler

    schedulers: tuple[Scheduler, ...] = get_args(Scheduler)
    for scheduler in schedulers:
        if scheduler == text:
            return scheduler
    raise UnknownNameError("scheduler", text, schedulers)
