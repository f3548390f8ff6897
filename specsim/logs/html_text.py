"""The text of a web page: a table's row becomes a line between bars, a heading one of markdown.

Python's own parser takes minutes for a damaged page of 100 kB: the few tags that tell are enough.
"""

import html
import re

_TABLE = re.compile(r"<table[\s>].*?</table[^<>]*>?", re.IGNORECASE | re.DOTALL)
_ROW = re.compile(r"<tr(?:\s[^<>]*)?>", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]((?:\s[^<>]*)?)>(.*?)(?=</?t[dhr][\s>])", re.IGNORECASE | re.DOTALL)
_SPAN = re.compile(r"(row|col)span\s*=\s*[\"']?([1-9]\d?)\b", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style)[\s>][^<]*</\1>", re.IGNORECASE)
_BREAK = re.compile(r"<(?:br|/?(?:p|div|li))\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<(?:h([1-6])|/?[a-z])[^<>]*>|<!--[^<>]*-->", re.IGNORECASE)
MOST_BYTES, MOST_COLUMNS = 1 << 20, 64
"""A longer text is a log that holds such a word, not a page; a wider table is none of results."""


def plain(page: bytes) -> bytes:
    """Return the text of a page, or a text with the tables in it written out.

    A cell that does not end is none: its number may be cut.
    """
    text = page.decode("utf-8", "replace")
    end = text.lower().rfind("</table")  # no search for the end of one that has none
    if end < 0:
        return page
    text = _TABLE.sub(lambda table: _rows(table[0]), text[: end + 99]) + text[end + 99 :]
    if page.lstrip()[:1] == b"<":
        marked = _TAG.sub(lambda tag: "\n" + "#" * int(tag[1] or 0) + " ", _HIDDEN.sub("", text))
        text = html.unescape(marked)
    return text.encode()


def _rows(table: str) -> str:
    lines = [""]
    above: dict[int, tuple[str, int]] = {}  # by column: a cell, and how many more rows it stands in
    for cells in _ROW.split(table)[1:]:
        row: list[tuple[str, int]] = []
        for cell in _CELL.finditer(cells):
            while len(row) in above:
                row.append(above.pop(len(row)))
            spans = {of.lower(): int(n) for of, n in _SPAN.findall(cell[1])}
            written = html.unescape(_TAG.sub("", _BREAK.sub(" ", cell[2])))
            text = re.sub(r"[ \t\r\n|]+", " ", written).strip()
            row += [(text, spans.get("row", 1))] * spans.get("col", 1)
        row = [*row, *above.values()][:MOST_COLUMNS]
        above = {i: (text, n - 1) for i, (text, n) in enumerate(row) if n > 1}
        lines.append(f"| {' | '.join(text for text, _ in row)} |")
    return "\n".join([*lines, ""])
