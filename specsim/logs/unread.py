"""Why what looks like a measurement could not be read: the words of the account of unread lines."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

TRUNCATED = "truncated"
DAMAGED = "damaged field"
DAMAGED_ROW = "damaged row"
MISSING = "a field is missing or damaged"
OUT_OF_RANGE = "a number is out of range"
TWO_IN_ONE = "two lines written into one"
CONTRADICTION = "numbers contradict each other"
TOO_MANY = "of more kinds than are kept"

MOST_KINDS = 20_000  # kernels, phases or series of one file: memory must not grow with damage


class Unread(ValueError):
    """A line or record that could not be read: raised, or given in the place of its value."""

    @property
    def reason(self) -> str:
        """The reason, as the account tells it."""
        return str(self)


@contextmanager
def counted(unread: Counter[str]) -> Iterator[None]:
    """Count what raises :class:`Unread` within, and go on."""
    try:
        yield
    except Unread as error:
        unread[error.reason] += 1


def check(good: object, reason: str) -> None:
    """Raise :class:`Unread` for that reason unless what was read is good."""
    if not good:
        raise Unread(reason)
