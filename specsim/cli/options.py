"""Options of the command line as data: each declared once, in groups that arrive as one object.

A group is a frozen dataclass whose fields are made by `option`, `file`, `flag` and `argument`. A
command names its groups and is called with one object of each:

    @command("plan", AnyServer, Options)
    def plan_command(server: AnyServer, how: Options) -> None:
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from functools import partial
from inspect import getdoc
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specsim.cli import output, readers
from specsim.cli.readers import library, number, one_of, whole
from specsim.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from click.shell_completion import CompletionItem

    from specsim.profile import Profile
    from specsim.question import Question
    from specsim.setting import Algorithm, Scheduler

    Loaded = tuple[Profile, tuple[str, ...]]
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

Filled = TypeVar("Filled", bound="DataclassInstance")

FILE = click.Path(readable=False)
"""A file's name, for the shell to complete; whoever opens the file says what is wrong with it."""


# --- commands and their groups


def command(name: str, *groups: type) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command: it is called with one object of each group, in their order."""

    def decorated(run: Callable[..., None]) -> click.Command:
        def called(**said: Any) -> None:
            _keep_what_is_read([part for group in groups for part in fields(group)], said)
            own = ({part.name: said[part.name] for part in fields(group)} for group in groups)
            run(*(group(**values) for group, values in zip(groups, own, strict=True)))

        parameters = [_parameter(part) for group in groups for part in fields(group)]
        return click.Command(name, params=parameters, callback=called, help=getdoc(run))

    return decorated


def _keep_what_is_read(parts: Sequence[Field[Any]], said: Mapping[str, Any]) -> None:
    """Refuse to write over a file that another option or argument names."""
    for part in parts:
        attributes, name = part.metadata["attributes"], said[part.name]
        if attributes.get("type") is not FILE or "callback" not in attributes or not name:
            continue
        others = (value for other, value in said.items() if other != part.name)
        words = (w for value in others for w in (value if isinstance(value, tuple) else (value,)))
        if any(isinstance(word, str) and _same_file(name, word) for word in words):
            raise InputError(f"{names_of(part)[0]} {name}", "is read", "name another file")


def _same_file(one: str, other: str) -> bool:
    with suppress(OSError, ValueError):  # no file, or no name of one
        return os.path.isfile(one) and os.path.samefile(one, other)
    return False


def names_of(part: Field[Any]) -> list[str]:
    """Return how an option is called on the command line: by default as its field."""
    said: str = part.metadata["names"]
    return said.split() or [f"--{part.name.replace('_', '-')}"]


def _parameter(part: Field[Any]) -> click.Parameter:
    attributes = part.metadata["attributes"]
    if part.metadata["names"] is None:
        return click.Argument([part.name], **attributes)
    return click.Option([*names_of(part), part.name], **attributes)


def option(
    metavar: str,
    about: str,
    read: readers.Read | None = None,
    complete: Complete | None = None,
    names: str = "",
    **attributes: Any,
) -> Any:
    """Return a field that an option with a value fills.

    `metavar` is the value in the help and `about` its meaning; `complete` tells the shell; `names`,
    between blanks, stand instead of the field's; `attributes` are further ones of ``click.option``.
    """

    def called(_: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return read(text) if text is not None and read is not None else text
        except InputError:
            raise
        except ValueError as error:
            reason, remedy = error.args
            raise InputError(f"{parameter.opts[0]} {text}", reason, remedy) from None

    attributes |= {"metavar": metavar, "help": about, "shell_complete": complete}
    attributes |= {"callback": called} if read is not None else {}
    return field(metadata={"names": names, "attributes": attributes})


def file(about: str, metavar: str = "FILE", names: str = "", **attributes: Any) -> Any:
    """Return a field that the name of a file fills, which the shell completes."""
    return option(metavar, about, names=names, type=FILE, **attributes)


def flag(about: str, names: str = "") -> Any:
    """Return a field that is true if the option is given."""
    return field(metadata={"names": names, "attributes": {"is_flag": True, "help": about}})


def argument(metavar: str, **attributes: Any) -> Any:
    """Return a field that words without an option fill."""
    attributes |= {"metavar": metavar, "type": FILE}
    return field(metadata={"names": None, "attributes": attributes})


def filled(kind: type[Filled], *groups: Any, **more: Any) -> Filled:
    """Return a dataclass from the options of the same names; what is not said has its default."""
    names = {part.name for part in fields(kind)}
    said = {
        part.name: getattr(group, part.name)
        for group in groups
        for part in fields(group)
        if part.name in names.difference(more) and getattr(group, part.name) is not None
    }
    return kind(**said, **more)


def refuse_given(why: str, remedy: str, *groups: Any, but: tuple[str, ...] = ()) -> None:
    """Refuse what was given and would not be used: any option of the groups `but` for some.

    An option with a default cannot be told from one that was not given.
    """
    for part, value in ((p, getattr(group, p.name)) for group in groups for p in fields(group)):
        unused = part.name not in but and "default" not in part.metadata["attributes"]
        if unused and not any(value is none for none in (None, False, ())):  # 0 is given
            flag = "" if part.metadata["names"] is None else names_of(part)[0]
            said = "" if value is True else " ".join(value) if part.name == "words" else str(value)
            raise InputError(f"{flag} {said}".strip(), why, remedy)


def named(place: str) -> Complete:
    """Return what completes the names that a `Literal` or a function of a module has."""

    def complete(_: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from specsim.cli.completion import names_at

        return names_at(place, begun, files=isinstance(parameter.type, click.Path))

    return complete


profiles = named("specsim.profile.profile_names")


# --- options of several commands: called in a group, each makes its field

concurrency = partial(
    option, "1,2,5,...", "Clients in flight. Default: 1 to 250.", readers.parse_concurrency
)
max_running_requests = partial(option, "N", "Cap of requests that run at once.", whole())
max_draft_tokens = partial(option, "N", "Most tokens verified per round.", whole(), default="64")
max_steps = partial(option, "S", "Deepest draft.", whole(), default="8")
slo = partial(option, read=library("specsim.decide.slo", "parse_slo"), names="--slo")
mix = partial(option, "1:0.5,30:0.5", "Share of the time by load.", readers.parse_mix)
measured = partial(
    file,
    "observations.csv that the profile was fitted to: which settings were measured.",
    read=readers.measured_settings,
    names="--observations",
)
solver = partial(
    option,
    "simulate|analytic",
    "analytic is instant, and close by.",
    one_of("solver", "specsim.curve", "Solver"),
    named("specsim.curve.Solver"),
)
what_if = partial(flag, "Model what the engine's version refuses.")
seed = partial(option, "N", "Of the random numbers.", readers.parse_seed, default="0")
full = partial(flag, "Every setting, times, notes: not the short answer alone.")
written = partial(file, read=output.writable())
plot = partial(written, "Draw to .png, .svg or .pdf.", read=output.writable(*output.PICTURES))


def as_json(schema: str) -> Any:
    """Return ``--json``, which prints a document of that schema."""
    return flag(f"Print {schema} only.", names="--json")


# --- groups of several commands


@dataclass(frozen=True)
class Drafting:
    """One setting by its numbers, under SGLang's names too."""

    topk: int | None = option(
        "K", "Branches per step; 1 is a chain.", whole(), names="--topk --speculative-eagle-topk"
    )
    num_steps: int | None = option(
        "S",
        "Depth of the draft.",
        whole(),
        names="--steps --speculative-num-steps --num-speculative-tokens",
    )
    num_draft_tokens: int | None = option(
        "N",
        "Tokens verified per round, root included. Default: all that the tree can offer.",
        whole(),
        names="--draft-tokens --speculative-num-draft-tokens",
    )
    algorithm: Algorithm | None = option(
        "A",
        "EAGLE3, MTP, DFLASH, STANDALONE, NGRAM, .. or none. Default: the profile's.",
        readers.read_algorithm,
        named("specsim.setting.Algorithm"),
        names="--algorithm --speculative-algorithm",
    )


@dataclass(frozen=True)
class Asked(Drafting):
    """The settings that are asked about, by options."""

    config_list: tuple[str, ...] = option(
        "S,K,N ...", "Several settings: steps, topk, draft tokens.", multiple=True
    )
    files: tuple[str, ...] = file("JSON file of settings.", multiple=True, names="--settings")
    scheduler: Scheduler = option(
        "auto|sequential|overlap",
        "auto is what the engine's version does by itself.",
        readers.read_scheduler,
        named("specsim.setting.Scheduler"),
        default="auto",
    )

    def settings(self, default: Algorithm) -> readers.Settings:
        """Collect the settings; `default` drafts those that do not say how."""
        words: tuple[str, ...] = getattr(self, "words", ())
        texts = [word for word in words if readers.NUMBERS.fullmatch(word)]
        return readers.asked_settings(
            (self.topk, self.num_steps, self.num_draft_tokens),
            (*self.config_list, *texts),
            (*self.files, *(word for word in words if word not in texts)),
            readers.Defaults(self.algorithm or default, self.scheduler),
        )


@dataclass(frozen=True)
class Asking(Asked):
    """The settings that are asked about, by options or by words."""

    words: tuple[str, ...] = argument("[S,K,N|FILE]...", nargs=-1)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the requests."""

    input_len: float | None = option(
        "N", "Prompt tokens. Default: profile's.", number(), names="--input-len --isl"
    )
    output_len: float | None = option(
        "N", "Answer tokens. Default: profile's.", number(), names="--output-len --osl"
    )


@dataclass(frozen=True)
class Requests(Lengths):
    """Lengths of the requests, and whose acceptance they have."""

    dataset: str | None = option("D", "Whose acceptance. Default: first.")
    temperature: float | None = option("T", "Whose acceptance.", number())


# --- the server that a command is about


@dataclass(frozen=True)
class Measured:
    """A server with a profile."""

    profile: str | None = file(
        "Shipped profile, profile.toml or scenario.toml.",
        "NAME|FILE",
        complete=profiles,
        names="--profile -p",
    )


@dataclass(frozen=True)
class Changes:
    """What is supposed to be different about a server."""

    overrides: tuple[str, ...] = option(
        "KEY=VALUE",
        "What if: allreduce.latency=*0.5, gpu=h200-sxm, accept_length=2.4, ... Repeatable.",
        multiple=True,
        names="--set",
    )


@dataclass(frozen=True)
class Server(Changes, Measured):
    """A server with a profile, as it is or changed."""

    def load(self) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it."""
        from specsim.profile import load_profile

        if not self.overrides and not (self.profile or "").endswith(".toml"):
            return load_profile(self.profile), ()  # needs nothing of scenarios
        from specsim.scenario import load_server

        changed = load_server(self.profile, self.overrides)
        return changed.profile, changed.notes


@dataclass(frozen=True)
class Described:
    """A server without a profile, in the user's words."""

    model: str | None = file("Without a profile: library id, config.json or TOML file.", "ID|FILE")
    gpu: str | None = file("Its GPUs: library id or TOML file.", "ID|FILE")
    gpu_count: int | None = option("N", "GPUs. Default: --tp.", whole(1))
    tp: int | None = option("N", "Tensor-parallel GPUs. Default: the fewest that fit.", whole(1))
    link: str | None = file("Link between the GPUs: library id or TOML file.", "ID|FILE")
    allreduce: str | None = option("A", "nccl, custom, fused or symmetric.")
    quantisation: str | None = option(
        "Q", "Weight format, e.g. fp8.", names="--quantisation --quantization"
    )
    draft: str | None = file("Drafter: library id or TOML file.", "ID|FILE")
    setup: str | None = file("Instead of all these: a setup.toml.")
    engine: str | None = option(
        "E",
        "sglang, vllm, tensorrt-llm or llama.cpp; a profile of another is carried over.",
        complete=named("specsim.engine.engine_names"),
    )
    engine_version: str | None = option("V", "Default: the profile's.")
    launch: str | None = file(
        "Its launch command, or a file that holds one; also at the end after --.",
        "TEXT|FILE",
        names="--command",
    )


@dataclass(frozen=True)
class AnyServer(Described, Server):
    """A server with or without a profile."""

    accept_length: float | None = option(
        "TAU",
        "Without a profile: tokens per round of the asked setting, bonus included.",
        number(),
        names="--assume-accept-length",
    )

    def ask(self, asked: Asked, how: Any) -> tuple[Profile, Question, tuple[str, ...]]:
        """Return the profile, what is asked of it, and what is to be said of both."""
        from specsim.question import Question

        profile, notes = self.load(asked)
        settings = asked.settings(profile.default_algorithm)
        question = filled(Question, self, how, settings=settings.asked)
        return profile, question, (*notes, *settings.notes)

    def load(self, asked: Asked | None = None) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it.

        Without a profile `asked` says how the server drafts, and whose accept length is assumed.
        """
        if self.model is None and self.setup is None and self.launch is None:
            refuse_given(
                "describes a server without a profile",
                "add --model and --gpu, --command or --setup, or change a profile with --set",
                self,
                but=("profile", "overrides", "engine", "engine_version"),
            )
            profile, notes = Server(self.profile, ()).load()
            if self.engine is not None:
                from specsim.profile.other_engine import under_engine

                profile, more = under_engine(profile, self.engine, self.engine_version)
                notes += more
        elif self.profile is not None:
            raise InputError(
                f"--profile {self.profile}",
                "excludes --model, --setup and --command",
                "choose one of them",
            )
        else:
            from specsim.cli.uncalibrated import uncalibrated

            profile, notes = uncalibrated(self, asked)
        if self.overrides:
            from specsim.scenario import apply_overrides, parse_overrides

            changed = apply_overrides(profile, parse_overrides(self.overrides))
            profile, notes = changed.profile, (*notes, *changed.notes)
        return profile, notes
