"""Any format's parser, called by name on bytes or text."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.logs import LogEntry, Source, read_file
from specsim.logs.document import log_json
from specsim.logs.format import Format, known_formats, require_usable


def parse(name: str, data: bytes | str, path: str = "file", piece: int = 1 << 20) -> list[LogEntry]:
    """Return the entries that the format `name` finds in `data`, read by pieces of some bytes."""
    whole = data if isinstance(data, bytes) else data.encode()
    pieces = (whole[at : at + piece] for at in range(0, len(whole), piece))
    return _format(name).parse(Source(path, pieces))


@lru_cache
def _format(name: str) -> Format:
    (found,) = (f for f in known_formats() if f.name == name)
    return found


def parse_one(name: str, data: bytes | str, path: str = "file") -> LogEntry:
    """Return the only entry."""
    (entry,) = parse(name, data, path)
    return entry


def document_of(entries: list[LogEntry]) -> dict[str, Any]:
    """Return the document of entries, checked."""
    return checked_document(log_json(entries))


def checked_document(text: str) -> dict[str, Any]:
    """Return a document; its keys must be those of the contract, its values of their types."""
    document: dict[str, Any] = json.loads(text, parse_constant=refused)
    assert list(document) == ["schema", "files"]
    for file in document["files"]:
        _check_numbers(file)
        assert all(isinstance(file[key], str) for key in ("path", "format"))
        assert all(isinstance(file[key], str | None) for key in ("engine", "engine_version"))
        assert type(file["unread_lines"]) is int
        assert all(sorted(d) == ["code", "message"] for d in file["diagnoses"])
        for key in ("topk", "num_steps", "num_draft_tokens"):
            assert type(file["settings"][key]) in (int, type(None))
        for row in file["rows"]:
            _check_numbers(row)
            assert type(row["prefill_mixed"]) is bool
            assert type(row["cuda_graph"]) in (bool, type(None))
        for timing in file.get("timings", ()):
            assert timing["seconds"] >= 0
            counts = [timing[key] for key in ("batch_size", "size_bytes", "count", "rank", "ranks")]
            assert all(count is None or (type(count) is int and count >= 0) for count in counts)
    return document


def refused(constant: str) -> None:
    """No document has NaN or infinity."""
    raise AssertionError(constant)


def _check_numbers(level: dict[str, Any]) -> None:
    amounts = ("batch_size", "output_tps", "accept_length", "tpot_s", "ttft_s", "round_time_s")
    for value in (*(level[key] for key in amounts), *(level["survival"] or ())):
        assert value is None or (type(value) in (int, float) and value >= 0)
    assert type(level["concurrency"]) in (int, type(None))
    windows = level["windows"]
    for count in (windows["read"], windows["used"], *windows["dropped"].values()):
        assert type(count) is int
        assert count >= 0


def read(tmp_path: Path, text: str) -> list[LogEntry]:
    """Read a text as a file whose format has to be found, and that must be of use."""
    path = tmp_path / "input"
    path.write_text(text)
    entries = read_file(path)
    require_usable(entries)
    return entries
