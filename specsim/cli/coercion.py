"""Texts of the command line to numbers, without pydantic.

Since it dropped click, typer builds a pydantic adapter for every option of a command at every
call: 0.15 s for ours, a fifth of the time that a prediction may take. Our options are texts and
numbers, which need none. A typer that has no such adapters is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand

from specsim.errors import InputError


@dataclass(frozen=True, slots=True)
class Plain:
    """Stands in for typer's adapter of one option or argument.

    Parameters
    ----------
    kind
        The type of a value.
    name
        As the user writes it, for messages.
    many
        Whether there may be several values.
    """

    kind: type
    name: str
    many: bool

    def coerce(self, value: Any, **_context: Any) -> Any:
        """Turn what was typed, or the default, into values.

        Raises
        ------
        InputError
            If a text is not a number.
        """
        if self.many:
            return () if value is None else [self._one(item) for item in value]
        return None if value is None else self._one(value)

    def _one(self, text: Any) -> Any:
        try:
            return self.kind(text)
        except ValueError:
            kind = "a whole number" if self.kind is int else "a number"
            raise InputError(
                f"{self.name} {text}", f"is not {kind}", "give digits, e.g. 2"
            ) from None


class PlainCommand(TyperCommand):
    """A command whose plain parameters coerce themselves."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, ``--help`` included."""
        return without_adapters(super().get_params(ctx))


def without_adapters(parameters: list[Any]) -> list[Any]:
    """Give plain parameters of typer their own coercion, and return them all."""
    for parameter in parameters:
        annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        many = annotation == list[str]
        kind = str if many else annotation
        if kind in (str, int, float, bool) and hasattr(parameter, "get_runtime_param"):
            names = [name for name in parameter.opts if name.startswith("--")]
            plain = Plain(kind, (names or [parameter.name])[0], many)
            parameter.get_runtime_param = lambda plain=plain: plain
    return parameters
