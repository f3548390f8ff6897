"""Options of the command line as data: each declared once, in groups that arrive as one object.

A group is a frozen dataclass whose fields are made by `option`, `file`, `flag` and `argument`. A
command names its groups and is called with one object of each:

    @command("plan", AnyServer, Options)
    def plan_command(server: AnyServer, how: Options) -> None:
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, Any, get_args

import click

from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from specsim.cli.settings import Settings
    from specsim.profile import Profile
    from specsim.setting import Algorithm, Scheduler, SpecSetting
    from specsim.workload import Workload

    Loaded = tuple[Profile, tuple[str, ...]]
    Read = Callable[[str], Any]
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

FILE = click.Path(readable=False)
"""A file's name, for the shell to complete; whoever opens the file says what is wrong with it."""


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


def one_of(kind: str, home: str, names: str) -> Read:
    """Return what takes one of the names of a `Literal` of a module and refuses others."""

    def read(text: str) -> Any:
        known = get_args(getattr(import_module(home), names))
        if text not in known:
            raise UnknownNameError(kind, text, known)
        return text

    return read


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

typed = partial(library, "specsim.cli.settings")
load_list = typed("parse_concurrency")

words = partial(argument, "[S,K,N|FILE]...", nargs=-1)
concurrency = partial(
    option, "--concurrency", "1,2,5,...", "Clients in flight. Default: 1 to 250.", load_list
)
max_running_requests = partial(
    option, "--max-running-requests", "N", "Cap of requests that run at once.", whole()
)
max_draft_tokens = partial(
    option, "--max-draft-tokens", "N", "Most tokens verified per round.", whole(), default="64"
)
max_steps = partial(option, "--max-steps", "S", "Deepest draft.", whole(), default="8")
slo = partial(option, "--slo", read=library("specsim.decide.slo", "parse_slo"))
mix = partial(option, "--mix", "1:0.5,30:0.5", "Share of the time by load.", typed("parse_mix"))
measured = partial(
    file,
    "--observations",
    "observations.csv that the profile was fitted to: which settings were measured.",
    read=typed("measured_settings"),
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
seed = partial(option, "--seed", "N", "Of the random numbers.", typed("parse_seed"), default="0")
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


# --- the server that a command is about


@dataclass(frozen=True)
class Measured:
    """A server with a profile."""

    profile: str | None = option(
        "--profile -p",
        "NAME|FILE",
        "Shipped profile, profile.toml or scenario.toml.",
        complete=profiles,
    )


@dataclass(frozen=True)
class Changes:
    """What is supposed to be different about a server."""

    overrides: tuple[str, ...] = option(
        "--set",
        "KEY=VALUE",
        "What if: allreduce.latency=*0.5, gpu=h200-sxm, accept_length=2.4, ... Repeatable.",
        multiple=True,
    )


@dataclass(frozen=True)
class Server(Changes, Measured):
    """A server with a profile, as it is or changed."""

    def load(self) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it."""
        return _load(self.profile, self.overrides)


@dataclass(frozen=True)
class Described:
    """A server without a profile, in the user's words."""

    model: str | None = file(
        "--model", "Without a profile: library id, config.json or TOML file.", "ID|FILE"
    )
    gpu: str | None = file("--gpu", "Its GPUs: library id or TOML file.", "ID|FILE")
    gpu_count: int | None = option("--gpu-count", "N", "GPUs. Default: --tp.", whole(1))
    tp: int | None = option("--tp", "N", "Tensor-parallel GPUs.", whole(1))
    link: str | None = file("--link", "Link between the GPUs: library id or TOML file.", "ID|FILE")
    allreduce: str | None = option("--allreduce", "A", "nccl, custom, fused or symmetric.")
    quantisation: str | None = option("--quantisation", "Q", "Weight format, e.g. fp8.")
    draft: str | None = file("--draft", "Drafter: library id or TOML file.", "ID|FILE")
    setup: str | None = file("--setup", "Instead of all these: a setup.toml.")
    engine: str | None = option(
        "--engine",
        "E",
        "sglang, vllm, tensorrt-llm or llama.cpp; a profile of another is carried over.",
        complete=named("specsim.engine", "engine_names"),
    )
    engine_version: str | None = option("--engine-version", "V", "Default: the profile's.")


@dataclass(frozen=True)
class AnyServer(Described, Server):
    """A server with or without a profile."""

    accept_length: float | None = option(
        "--assume-accept-length",
        "TAU",
        "Without a profile: tokens per round of the asked setting, bonus included.",
        number(),
    )

    def load(self, asked: Drafting | None = None) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it.

        Of a server without a profile, `asked` says how it drafts, and whose accept length is
        assumed.

        Raises
        ------
        InputError
            If the server is described twice or not enough.
        """
        if self.model is None and self.setup is None:
            self._refuse_stray()
            profile, notes = _load(self.profile)
            if self.engine is not None:
                from specsim.profile.other_engine import under_engine

                profile, more = under_engine(profile, self.engine, self.engine_version)
                notes += more
        elif self.profile is not None:
            raise InputError(
                f"--profile {self.profile}", "excludes --model and --setup", "choose one of them"
            )
        else:
            from specsim.cli.uncalibrated import uncalibrated

            profile, notes = uncalibrated(self, asked)
        if self.overrides:
            from specsim.scenario import apply_overrides, parse_overrides

            changed = apply_overrides(profile, parse_overrides(self.overrides))
            profile, notes = changed.profile, (*notes, *changed.notes)
        return profile, notes

    def named(self) -> AnyServer:
        """Return the same server, the default profile by its name."""
        from specsim.profile import DEFAULT_PROFILE

        unsaid = self.profile is None and self.model is None and self.setup is None
        return replace(self, profile=DEFAULT_PROFILE) if unsaid else self

    def _refuse_stray(self) -> None:
        """Refuse options that mean nothing beside a measured profile."""
        for part in (*fields(Described), *fields(AnyServer)[-1:]):
            value, flag = getattr(self, part.name), part.metadata["names"][0]
            if value is not None and flag not in ("--engine", "--engine-version"):
                raise InputError(
                    f"{flag} {value}",
                    "describes a server without a profile",
                    "add --model and --gpu, or --setup, or change a profile with --set",
                )


def _load(name: str | None, overrides: tuple[str, ...] = ()) -> Loaded:
    """Load a profile or scenario; a shipped profile as it is needs nothing of scenarios."""
    from specsim.profile import load_profile

    if not overrides and not (name or "").endswith(".toml"):
        return load_profile(name), ()
    from specsim.scenario import load_server

    changed = load_server(name, overrides)
    return changed.profile, changed.notes
