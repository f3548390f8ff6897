"""Options of the command line as data: each declared once, in groups that arrive as one object.

A group is a frozen dataclass whose fields are rows of ``options.toml``. A command names its groups
and is called with one object of each:

    @command("plan", AnyServer, Options)
    def plan_command(server: AnyServer, how: Options) -> None:
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specsim.cli import output, readers
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
            _keep_what_is_read(groups, said)
            _check_pairs(name, groups, said)
            own = ({part.name: said[part.name] for part in fields(group)} for group in groups)
            run(*(group(**values) for group, values in zip(groups, own, strict=True)))

        parameters = [_parameter(group, part) for group in groups for part in fields(group)]
        return click.Command(name, params=parameters, callback=called, help=getdoc(run))

    return decorated


def _keep_what_is_read(groups: Sequence[type], said: Mapping[str, Any]) -> None:
    """Refuse to write over a file that another option or argument names."""
    for group, part in ((of, part) for of in groups for part in fields(of)):
        name = said[part.name]
        if "writes" not in row_of(group, part.name) or not name:
            continue
        others = (value for other, value in said.items() if other != part.name)
        words = (w for value in others for w in (value if isinstance(value, tuple) else (value,)))
        if any(isinstance(word, str) and _same_file(name, word) for word in words):
            what = f"{names_of(group, part.name)[0]} {name}"
            raise InputError(what, "is read", "name another file")


def _check_pairs(name: str, groups: Sequence[type], said: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other, or that mean nothing without another."""
    flags = {part.name: names_of(of, part.name)[0] for of in groups for part in fields(of)}
    given = {flag for flag, value in said.items() if value not in (None, False, ())}
    for one, other in map(str.split, _table()["excludes"].get(name, ())):
        if {one, other} <= given:
            why = "exclude each other"
            raise InputError(f"{flags[one]} {flags[other]}", why, "choose one")
    for one, other in map(str.split, _table()["needs"].get(name, ())):
        if one in given and other not in given:
            what, why = f"{flags[one]} {said[one]}", f"is used with {flags[other]}"
            raise InputError(what, why, f"add {flags[other]}")


def _same_file(one: str, other: str) -> bool:
    with suppress(OSError, ValueError):  # no file, or no name of one
        return os.path.isfile(one) and os.path.samefile(one, other)
    return False


def row_of(group: type, name: str) -> Mapping[str, Any]:
    """Return what stands on the command line for a field: a row of ``options.toml``."""
    table = _table()
    own: Mapping[str, Any] = table.get(group.__module__.rpartition(".")[2], {})
    row: Mapping[str, Any] = own.get(name) or table["shared"][name]
    return row


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))


def names_of(group: type, name: str) -> list[str]:
    """Return how an option is called on the command line: by default as its field."""
    said: str = row_of(group, name).get("names", "")
    return said.split() or [f"--{name.replace('_', '-')}"]


def _parameter(group: type, part: Field[Any]) -> click.Parameter:
    row, kind = row_of(group, part.name), str(getattr(part.type, "__name__", part.type))
    attributes = {k: row[k] for k in ("default", "required", "nargs", "multiple") if k in row}
    attributes |= {"metavar": row["value"]} if "value" in row else {"is_flag": True}
    if {"file", "writes", "argument"} & row.keys():
        attributes["type"] = FILE
    if place := row.get("complete") or row.get("choices"):
        attributes["shell_complete"] = named(place)
    if row.get("argument"):
        return click.Argument([part.name], **attributes)
    names, read = names_of(group, part.name), _reader(row, kind, part.name.replace("_", "-"))

    def called(_: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return read(text) if text is not None and read is not None else text
        except InputError:
            raise
        except ValueError as error:
            reason, remedy = error.args
            raise InputError(f"{names[0]} {text}", reason, remedy) from None

    attributes |= {"callback": called} if read is not None else {}
    return click.Option([*names, part.name], help=row["about"], **attributes)


def _reader(row: Mapping[str, Any], kind: str, name: str) -> readers.Read | None:
    """Return what makes a value of a text: as the row says, else by the type of its field."""
    if "read" in row:
        return readers.library(*row["read"].split(":"))
    if "choices" in row:
        return readers.one_of(name, *row["choices"].rsplit(".", 1))
    if "writes" in row:
        return output.writable(*row["writes"])
    if kind.startswith("int"):
        return readers.whole(row.get("least"), row.get("most"))
    return readers.number(row.get("least")) if kind.startswith("float") else None


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
    for group, part in ((of, part) for of in groups for part in fields(of)):
        row, value = row_of(type(group), part.name), getattr(group, part.name)
        unused = part.name not in but and "default" not in row
        if unused and not any(value is none for none in (None, False, ())):  # 0 is given
            flag = "" if row.get("argument") else names_of(type(group), part.name)[0]
            said = "" if value is True else " ".join(value) if part.name == "words" else str(value)
            raise InputError(f"{flag} {said}".strip(), why, remedy)


def named(place: str) -> Complete:
    """Return what completes the names that a `Literal` or a function of a module has."""

    def complete(_: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from specsim.cli.completion import names_at

        return names_at(place, begun, files=isinstance(parameter.type, click.Path))

    return complete


# --- groups of several commands


@dataclass(frozen=True)
class Drafting:
    """One setting by its numbers, under SGLang's names too."""

    topk: int | None
    num_steps: int | None
    num_draft_tokens: int | None
    algorithm: Algorithm | None


@dataclass(frozen=True)
class Asked(Drafting):
    """The settings that are asked about, by options."""

    config_list: tuple[str, ...]
    files: tuple[str, ...]
    scheduler: Scheduler

    def settings(self, default: Algorithm) -> readers.Asked:
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

    words: tuple[str, ...]


@dataclass(frozen=True)
class Lengths:
    """Lengths of the requests."""

    input_len: float | None
    output_len: float | None


@dataclass(frozen=True)
class Requests(Lengths):
    """Lengths of the requests, and whose acceptance they have."""

    dataset: str | None
    temperature: float | None


# --- the server that a command is about


@dataclass(frozen=True)
class Measured:
    """A server with a profile."""

    profile: str | None


@dataclass(frozen=True)
class Server(Measured):
    """A server with a profile, as it is or with what is supposed to be different about it."""

    overrides: tuple[str, ...]

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

    model: str | None
    gpu: str | None
    gpu_count: int | None
    tp: int | None
    link: str | None
    allreduce: str | None
    quantisation: str | None
    draft: str | None
    setup: str | None
    engine: str | None
    engine_version: str | None
    launch: str | None


@dataclass(frozen=True)
class AnyServer(Described, Server):
    """A server with or without a profile."""

    accept_length: float | None

    def ask(self, asked: Asked, how: Any) -> tuple[Profile, Question, tuple[str, ...]]:
        """Return the profile, what is asked of it, and what is to be said of both."""
        from specsim.question import Question

        profile, notes = self.load(asked)
        settings, noted = asked.settings(profile.default_algorithm)
        question = filled(Question, self, how, settings=settings)
        return profile, question, (*notes, *noted)

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
