"""What people type into values: one callback of click per kind, and what a shell may complete.

A callback gets the context, the option and the text (None where nothing was said); it raises
`InputError`, a line that names the text and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

import click

from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Callback = Callable[[click.Context, click.Parameter, Any], Any]
    Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

FILE = click.Path(readable=False)
"""A file's name, for the shell to complete; whoever opens the file says what is wrong with it."""

MOST_LOADS = 1000


def whole(least: int | None = None, most: int | None = None) -> Callback:
    """Return the callback that reads a whole number within bounds."""
    return _numeric(int, "a whole number", least, most)


def number(least: float | None = None) -> Callback:
    """Return the callback that reads a number of at least so much."""
    return _numeric(float, "a number", least, None)


def _numeric(
    kind: type[int | float], noun: str, least: float | None, most: float | None
) -> Callback:
    def read(_: click.Context, option: click.Parameter, text: str | None) -> int | float | None:
        if text is None:
            return None
        name = next((name for name in option.opts if name.startswith("--")), option.name)
        try:
            value = kind(text)
        except ValueError:
            raise InputError(f"{name} {text}", f"is not {noun}", "give digits, e.g. 2") from None
        if (least is not None and not value >= least) or (most is not None and value > most):
            bounds = f"be at least {least}" if most is None else f"lie in {least}..{most}"
            raise InputError(f"{name} {text}", f"must {bounds}", f"e.g. {least}")
        return value

    return read


def seed(context: click.Context, option: click.Parameter, text: str) -> int:
    """Read the seed of a simulation."""
    value: int = whole()(context, option, text)
    if not 0 <= value < 2**63:
        raise InputError(f"seed {value}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    return value


def concurrency(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Read ``1,2,5``."""
    return None if text is None else parse_concurrency(text)


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
    """Read the share of the time by load, ``1:0.5,30:0.5``.

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


def mix(_: click.Context, __: click.Parameter, text: str | None) -> tuple[tuple[int, float], ...]:
    """Read ``1:0.5,30:0.5``; nothing where nothing is said."""
    return parse_mix(text or "")


def parsed(home: str, function: str) -> Callback:
    """Return the callback that calls a function of the library, imported when it is needed."""

    def read(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        return getattr(import_module(home), function)(text) if text is not None else None

    return read


def one_of(kind: str, home: str, names: str) -> Callback:
    """Return the callback that takes one of the names of a `Literal` and refuses others."""

    def read(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        return text and check_name(kind, text, get_args(getattr(import_module(home), names)))

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


def named(home: str, names: str) -> Completion:
    """Return what completes the names of a `Literal`, or those that a function returns."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = getattr(import_module(home), names)
        known = get_args(found) or found()
        return [CompletionItem(name) for name in known if name.startswith(begun)]

    return complete


def profiles(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the shipped profiles, and files."""
    from click.shell_completion import CompletionItem

    names = named("specsim.profile", "profile_names")(context, option, begun)
    return [CompletionItem(begun, type="file"), *names]
