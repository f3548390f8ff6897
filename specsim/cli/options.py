"""Options of the command line as data: each declared once, in groups that arrive as one object.

A group is a frozen dataclass whose fields are made by `option`, `file`, `flag` and `argument`. A
command names its groups and is called with one object of each:

    @command("plan", AnyServer, Options)
    def plan_command(server: AnyServer, how: Options) -> None:
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, Any, get_args

import click

from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from specsim.cli.settings import Settings
    from specsim.setting import Algorithm, Scheduler, SpecSetting
    from specsim.workload import Workload

    Read = Callable[[str], Any]
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

FILE = click.Path(readable=False)
"""A file's name, for the shell to complete; whoever opens the file says what is wrong with it."""

MOST_LOADS = 1000


# --- commands and their groups


def command(name: str, *groups: type) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command: it is called with one object of each group, in their order."""

    def decorated(run: Callable[..., None]) -> click.Command:
        def called(**said: Any) -> None:
            own = ({part.name: said[part.name] for part in fields(group)} for group in groups)
            run(*(group(**values) for group, values in zip(groups, own, strict=True)))

        parameters = [_parameter(part.name, part.metadata) for g in groups for part in fields(g)]
        return click.Command(name, params=parameters, callback=called, help=getdoc(run))

    return decorated


def _parameter(name: str, declared: Any) -> click.Parameter:
    names, attributes = declared["names"], declared["attributes"]
    if not names:
        return click.Argument([name], **attributes)
    return click.Option([*names, name], **attributes)


def option(
    names: str,
    metavar: str,
    about: str,
    read: Read | None = None,
    complete: Complete | None = None,
    **attributes: Any,
) -> Any:
    """Return a field that an option with a value fills.

    Parameters
    ----------
    names
        Between blanks.
    metavar, about
        What stands for the value in the help, and what it means.
    read
        From text to value: raises `InputError`, or `ValueError` with reason and remedy.
    complete
        What the shell is told.
    attributes
        Further ones of ``click.option``.
    """
    first = names.split()[0]

    def called(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        try:
            return read(text) if text is not None and read is not None else text
        except InputError:
            raise
        except ValueError as error:
            reason, remedy = error.args
            raise InputError(f"{first} {text}", reason, remedy) from None

    attributes |= {"metavar": metavar, "help": about, "shell_complete": complete}
    attributes |= {"callback": called} if read is not None else {}
    return field(metadata={"names": names.split(), "attributes": attributes})


def file(names: str, about: str, metavar: str = "FILE", **attributes: Any) -> Any:
    """Return a field that the name of a file fills, which the shell completes."""
    return option(names, metavar, about, type=FILE, **attributes)


def flag(names: str, about: str) -> Any:
    """Return a field that is true if the option is given."""
    attributes = {"is_flag": True, "help": about}
    return field(metadata={"names": names.split(), "attributes": attributes})


def argument(metavar: str, **attributes: Any) -> Any:
    """Return a field that words without an option fill."""
    attributes |= {"metavar": metavar, "type": FILE}
    return field(metadata={"names": (), "attributes": attributes})


def words_of(group: Any) -> Iterator[str]:
    """Yield the command line that fills a group so: option, value, option, value."""
    for part in fields(group):
        said = getattr(group, part.name)
        for value in said if isinstance(said, tuple) else (said,):
            if value is not None:
                yield part.metadata["names"][0]
                yield f"{value:g}" if isinstance(value, float) else str(value)


# --- from text to values


def whole(least: int | None = None, most: int | None = None) -> Read:
    """Return what reads a whole number within bounds."""
    return _numeric(int, "a whole number", least, most)


def number(least: float | None = None) -> Read:
    """Return what reads a number of at least so much."""
    return _numeric(float, "a number", least, None)


def _numeric(kind: type[int | float], noun: str, least: float | None, most: float | None) -> Read:
    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"is not {noun}", "give digits, e.g. 2") from None
        if (least is not None and not value >= least) or (most is not None and value > most):
            bounds = f"be at least {least}" if most is None else f"lie in {least}..{most}"
            raise ValueError(f"must {bounds}", f"e.g. {least}")
        return value

    return read


def library(home: str, function: str) -> Read:
    """Return a function of the library that is imported when it is needed."""

    def read(text: str) -> Any:
        return getattr(import_module(home), function)(text)

    return read


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


def parse_mix(text: str) -> tuple[tuple[int, float], ...]:
    """Return load and share of the time of each part of ``1:0.5,30:0.5``.

    Raises
    ------
    InputError
        If a part is not LOAD:SHARE.

    Examples
    --------
    >>> parse_mix("1:0.5, 30:2")
    ((1, 0.5), (30, 2.0))
    """
    parts = []
    for word in re.split(r"[\s,]+", text.strip(" ,")):
        match = re.fullmatch(r"([0-9]{1,7}):([0-9]*\.?[0-9]+)", word)
        if match is not None:
            parts.append((int(match[1]), float(match[2])))
        elif word:
            raise InputError(f"mix {word}", "is not LOAD:SHARE", "write e.g. --mix 1:0.5,30:0.5")
    return tuple(parts)


def parse_seed(text: str) -> int:
    """Return the seed of the random numbers."""
    value: int = whole()(text)
    if not 0 <= value < 2**63:
        raise InputError(f"seed {value}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    return value


def one_of(kind: str, home: str, names: str) -> Read:
    """Return what takes one of the names of a `Literal` of a module and refuses others."""

    def read(text: str) -> Any:
        return check_name(kind, text, get_args(getattr(import_module(home), names)))

    return read


def check_name(kind: str, text: str, known: tuple[Any, ...]) -> Any:
    """Return the one of the names that the text is.

    Raises
    ------
    UnknownNameError
        If there is none.
    """
    if text not in known:
        raise UnknownNameError(kind, text, known)
    return text


def named(home: str, names: str, files: bool = False) -> Complete:
    """Return what completes the names of a `Literal`, or those that a function returns.

    `files` says that a file's name is as good.
    """

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = getattr(import_module(home), names)
        items = [CompletionItem(n) for n in get_args(found) or found() if n.startswith(begun)]
        return [CompletionItem(begun, type="file"), *items] if files else items

    return complete


profiles = named("specsim.profile", "profile_names", files=True)


# --- options of several commands: called in a group, each makes its field

words = partial(argument, "[S,K,N|FILE]...", nargs=-1)
concurrency = partial(
    option,
    "--concurrency",
    "1,2,5,...",
    "Clients in flight. Default: 1 to 250.",
    parse_concurrency,
)
max_running_requests = partial(
    option, "--max-running-requests", "N", "Cap of requests that run at once.", whole()
)
max_draft_tokens = partial(
    option, "--max-draft-tokens", "N", "Most tokens verified per round.", whole(), default="64"
)
max_steps = partial(option, "--max-steps", "S", "Deepest draft.", whole(), default="8")
slo = partial(option, "--slo", read=library("specsim.decide.slo", "parse_slo"))
mix = partial(option, "--mix", "1:0.5,30:0.5", "Share of the time by load.", parse_mix)
measured = partial(
    file,
    "--observations",
    "observations.csv that the profile was fitted to: which settings were measured.",
)
solver = partial(
    option,
    "--solver",
    "simulate|analytic",
    "analytic is instant, and close by.",
    one_of("solver", "specsim.curve", "Solver"),
    named("specsim.curve", "Solver"),
)
what_if = partial(flag, "--what-if", "Model what the engine's version refuses.")
seed = partial(option, "--seed", "N", "Of the random numbers.", parse_seed, default="0")
plot = partial(file, "--plot", "Draw to .png, .svg or .pdf.")


def as_json(schema: str) -> Any:
    """Return ``--json``, which prints a document of that schema."""
    return flag("--json", f"Print {schema} only.")


# --- groups of several commands


@dataclass(frozen=True)
class Drafting:
    """One setting by its numbers, under SGLang's names too."""

    topk: int | None = option(
        "--topk --speculative-eagle-topk", "K", "Branches per step; 1 is a chain.", whole()
    )
    steps: int | None = option(
        "--steps --speculative-num-steps", "S", "Depth of the draft.", whole()
    )
    draft_tokens: int | None = option(
        "--draft-tokens --speculative-num-draft-tokens",
        "N",
        "Tokens verified per round, root included. Default: all that the tree can offer.",
        whole(),
    )
    algorithm: Algorithm | None = option(
        "--algorithm --speculative-algorithm",
        "A",
        "EAGLE, EAGLE3, MTP, STANDALONE, NGRAM or none. Default: the profile's.",
        library("specsim.setting", "parse_algorithm"),
        named("specsim.setting", "Algorithm"),
    )

    @property
    def setting(self) -> SpecSetting | None:
        """The one setting of these numbers; None if there are none."""
        from specsim.setting import SpecSetting

        if self.steps is None:
            return None
        return SpecSetting.of(self.topk, self.steps, self.draft_tokens, self.algorithm or "EAGLE3")


@dataclass(frozen=True)
class Asked(Drafting):
    """The settings that are asked about, by options."""

    config_list: tuple[str, ...] = option(
        "--config-list",
        "S,K,N ...",
        "Several settings: steps, topk, draft tokens.",
        multiple=True,
    )
    files: tuple[str, ...] = file("--settings", "JSON file of settings.", multiple=True)
    scheduler: Scheduler = option(
        "--scheduler",
        "auto|sequential|overlap",
        "auto is what the engine's version does by itself.",
        one_of("scheduler", "specsim.setting", "Scheduler"),
        named("specsim.setting", "Scheduler"),
        default="auto",
    )

    def settings(self, default: Algorithm | None, words: tuple[str, ...] = ()) -> Settings:
        """Collect the settings; `default` drafts those that do not say how, EAGLE3 for None."""
        from specsim.cli.settings import asked_settings

        return asked_settings(self, self.algorithm or default or "EAGLE3", words)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the requests."""

    input_len: float | None = option(
        "--input-len --isl", "N", "Prompt tokens. Default: profile's.", number()
    )
    output_len: float | None = option(
        "--output-len --osl", "N", "Answer tokens. Default: profile's.", number()
    )

    def workload(self, base: Workload) -> Workload:
        """Return the requests of a profile with these lengths."""
        from specsim.question import Question

        return Question(input_len=self.input_len, output_len=self.output_len).workload(base)


@dataclass(frozen=True)
class Requests(Lengths):
    """Lengths of the requests, and whose acceptance they have."""

    dataset: str | None = option("--dataset", "D", "Whose acceptance. Default: first.")
    temperature: float | None = option("--temperature", "T", "Whose acceptance.", number())


def measured_settings(observations: str | None) -> tuple[SpecSetting, ...]:
    """Return the settings of a file of observations, each once; nothing for None."""
    from specsim.observations import read_observations

    if observations is None:
        return ()
    rows = read_observations(observations).rows
    return tuple(dict.fromkeys(row.setting for row in rows if row.setting.speculates))
