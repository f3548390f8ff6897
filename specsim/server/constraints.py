"""What the fields of a setup must satisfy, said without importing pydantic.

Pydantic takes a third of a second to import and to build its checks, and a profile that ships
needs none of them. It asks the objects in an ``Annotated`` for their schema, so that they can wait
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T", bound=type)


@dataclass(frozen=True, slots=True)
class Within:
    """A finite number of exactly the annotated type, within bounds; a whole float may be int."""

    ge: int | None = None
    gt: int | None = None
    le: int | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Answer pydantic."""
        from pydantic_core import core_schema

        if source is int:
            return core_schema.int_schema(strict=True, ge=self.ge, gt=self.gt, le=self.le)
        return core_schema.float_schema(
            strict=True, allow_inf_nan=False, ge=self.ge, gt=self.gt, le=self.le
        )


@dataclass(frozen=True, slots=True)
class Before:
    """Apply `change` to what stands in the file before the annotated type is checked."""

    change: Callable[[object], object]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Answer pydantic."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.change, handler(source))


Whole = Annotated[int, Within(ge=0, le=2**53)]
Count = Annotated[int, Within(ge=1, le=2**53)]
Amount = Annotated[float, Within(ge=0)]
Positive = Annotated[float, Within(gt=0)]
Fraction = Annotated[float, Within(gt=0, le=1)]


def only_known_keys(section: T) -> T:
    """Have pydantic refuse keys that the dataclass does not have (as its ``with_config``)."""
    config: dict[str, Any] = {"extra": "forbid"}
    setattr(section, "__pydantic_config__", config)  # noqa: B010  (mypy knows no such attribute)
    return section
