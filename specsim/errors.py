"""The errors of specsim: each carries the value, the reason and the remedy.

The command line turns any of them into one line on stderr and exit code 2; a library user catches
:class:`SpecsimError`, or the narrower class that fits.
"""

import difflib
from collections.abc import Iterable

LONGEST_LIST = 150  # characters of the known names that are listed beside the nearest one


class SpecsimError(Exception):
    """Base of all errors that specsim raises on purpose."""

    def __init__(self, value: object, reason: str, remedy: str) -> None:
        self.value = value  # what was given: an argument, a file, a field
        self.reason = reason  # why it cannot be used
        self.remedy = remedy  # what to do instead
        super().__init__(f"{value}: {reason}; {remedy}")


class InputError(SpecsimError, ValueError):
    """An argument or a field of a file is not finite, out of range or contradictory."""


class FormatError(InputError):
    """A file is not in the format or schema that was expected."""


class UnknownNameError(InputError):
    """A name (GPU, model, profile, column, key) that specsim does not know."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], remedy: str | None = None
    ) -> None:
        self.kind = kind  # what the name is of, e.g. "gpu"
        self.name = name
        self.known = tuple(sorted(known))  # the nearest one is suggested
        named, meant = {_plain(one): one for one in reversed(self.known)}, _plain(name)
        begun = sorted((one for one in named if meant and one.startswith(meant)), key=len)
        close = difflib.get_close_matches(meant, named, n=1, cutoff=0.5)
        near = [named[one] for one in (*begun, *close)]
        hint = f"did you mean {near[0]!r}? " if near else ""
        listed = ", ".join(self.known)
        if near and len(listed) > LONGEST_LIST:  # the nearest is what was meant
            listed = listed[:LONGEST_LIST].rpartition(",")[0] + ", ..."
        super().__init__(
            f"{kind} {name!r}", "is not known", hint + (remedy or f"use one of: {listed}")
        )


def _plain(name: str) -> str:
    """Return what two spellings of a name have in common."""
    return "".join(filter(str.isalnum, name.lower()))


class EngineRefusal(SpecsimError):
    """The engine of that version would refuse this setting."""

    def __init__(self, setting: str, engine: str, version: str, rule: str, remedy: str) -> None:
        self.engine = engine
        self.version = version
        self.rule = rule  # the engine's own rule or message, quoted
        super().__init__(setting, f"refused by {engine} {version}: {rule}", remedy)


class CalibrationError(SpecsimError):
    """The observations do not suffice for, or contradict, the fit that was asked for."""
