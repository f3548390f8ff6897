"""Events of a Chrome trace, streamed: a trace of a gigabyte is never whole in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"(?:[\s,]+|#[^\n]*(?:\n|\Z))*")
"""Blanks, commas and comment lines."""
_SEPARATED = re.compile(r"\s*[,\]]")
_NEXT = re.compile(r"\{\s*\"(?:ph|name|cat|pid)\"\s*:")
_NEAR_END = 16
"""A value that ends this close to the end of the text (a number, a word) may go on."""
MAX_EVENT_CHARS = 4 << 20
"""No event is longer; what does not close within it is damaged."""


class EventStream:
    """Iterates over the event objects of a trace, given as the chunks of its file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.unread: Counter[str] = Counter()  # reason -> events that could not be read
        self.found = False  # whether ``traceEvents`` was seen
        self.ended = False  # whether the array of events was closed
        self._chunks = iter(chunks)
        self._text, self._at = "", 0  # what is left to read begins at `_at`
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self.found and self._more():
            array = _ARRAY.search(self._text)
            self.found = array is not None
            self._at = array.end() if array else max(len(self._text) - 64, 0)
        while self.found and not self.ended and self._skip():
            if self._text[self._at] == "]":
                self.ended = True
                return
            event = self._next()
            if isinstance(event, str):
                self.unread[event] += 1
            else:
                yield event

    def _skip(self) -> bool:
        """Go on to the next value or bracket; return whether there is one."""
        while True:
            between = _BETWEEN.match(self._text, self._at)
            self._at = between.end() if between else self._at
            if self._at < len(self._text):
                return True
            if not self._more():
                return False

    def _more(self) -> bool:
        """Append the next chunk to what is left of the text; return whether there was one."""
        chunk = next(self._chunks, None)
        if chunk is not None:
            self._text, self._at = self._text[self._at :] + self._utf8.decode(chunk), 0
        return chunk is not None

    def _next(self) -> dict[str, Any] | str:
        """Return the next event, or why it cannot be read; go on at what looks like an event."""
        while True:
            left, fault = len(self._text) - self._at, -_NEAR_END
            try:
                event, end = self._json.raw_decode(self._text, self._at)
                if _SEPARATED.match(self._text, end):
                    self._at = end
                    return event if isinstance(event, dict) else "damaged event"
                fault = end - self._at
            except json.JSONDecodeError as error:
                fault = left if error.msg.startswith("Unterminated") else error.pos - self._at
            except RecursionError:
                pass
            may_go_on = fault >= left - _NEAR_END and left < MAX_EVENT_CHARS
            if may_go_on and self._more():
                continue
            following = _NEXT.search(self._text, self._at + 1)
            self._at = following.start() if following else len(self._text)
            return "truncated" if may_go_on and not following else "damaged event"
