"""Events of a Chrome trace, streamed: a trace of a gigabyte is never whole in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from json.scanner import make_scanner
from typing import Any

_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_SKIP = re.compile(r"[\s,]*")
_SEPARATED = re.compile(r"\s*[,\]]")
_COMMENT = re.compile(r"#[^\n]*(?:\n|\Z)")
_NEXT = re.compile(r"\{\s*\"(?:ph|name|cat|pid)\"\s*:")
_NEAR_END = 16
"""A value that ends this close to the end of the text (a number, a word) may go on."""
MAX_EVENT_CHARS = 4 << 20
"""No event is longer; what does not close within it is damaged."""


class EventStream:
    """Iterates over the event objects of a trace.

    Parameters
    ----------
    chunks
        The bytes of the file.

    Attributes
    ----------
    unread
        Reason -> events that could not be read.
    found
        Whether ``traceEvents`` was seen.
    ended
        Whether the array of events was closed.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chunks = iter(chunks)
        self.unread: Counter[str] = Counter()
        self.found = False
        self.ended = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        text, at = self._find_array()
        decode: Callable[[str, int], tuple[Any, int]] = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]
        while True:
            at = self._skip(text, at)
            if at >= len(text):
                text, at, more = self._more(text, at)
                if not more:
                    break
                continue
            if text[at] == "]":
                self.ended = True
                break
            try:
                event, end = decode(text, at)
                if text[end : end + 1] != "," and not _SEPARATED.match(text, end):
                    raise StopIteration(end)
                at = end
            except (json.JSONDecodeError, StopIteration, RecursionError) as error:
                if _may_go_on(error, text, at):
                    text, at, more = self._more(text, at)
                    if more:
                        continue
                    if not _NEXT.search(text, 1):
                        self.unread["truncated"] += 1
                        break
                event, at = None, self._resync(text, at)
            if isinstance(event, dict):
                yield event
            else:
                self.unread["damaged event"] += 1

    def _find_array(self) -> tuple[str, int]:
        text, more = "", True
        while more:
            text, _, more = self._more(text[-64:], 0)
            found = _ARRAY.search(text)
            if found:
                self.found = True
                return text, found.end()
        return "", 0

    def _more(self, text: str, at: int) -> tuple[str, int, bool]:
        """Append the next chunk to what is left of the text."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return text[at:], 0, False
        return text[at:] + self._decoder.decode(chunk), 0, True

    @staticmethod
    def _skip(text: str, at: int) -> int:
        """Go on to the next value or bracket."""
        if text.startswith(",\n{", at):
            return at + 2
        while True:
            found = _SKIP.match(text, at)
            at = found.end() if found else at
            if text[at : at + 1] != "#":
                return at
            comment = _COMMENT.match(text, at)
            at = comment.end() if comment else at + 1

    @staticmethod
    def _resync(text: str, at: int) -> int:
        """Go on at the next thing that looks like an event."""
        found = _NEXT.search(text, at + 1)
        return found.start() if found else len(text)


def _may_go_on(error: Exception, text: str, at: int) -> bool:
    """Whether a value that cannot be decoded may only lack its end."""
    if len(text) - at >= MAX_EVENT_CHARS or isinstance(error, RecursionError):
        return False
    if isinstance(error, json.JSONDecodeError):
        return error.msg.startswith("Unterminated") or error.pos >= len(text) - _NEAR_END
    return int(getattr(error, "value", at)) >= len(text) - _NEAR_END
