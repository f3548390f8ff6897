"""One SGLang server: its lines as columns of windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from specsim.logs.columns import floats, seconds
from specsim.logs.formats.sglang.accept_rate import AcceptRate
from specsim.logs.formats.sglang.facts import Facts
from specsim.logs.formats.sglang.lines import (
    COLUMNS,
    DecodeLine,
    Layout,
    Printed,
    parse_prefill_line,
    parse_prefix,
    parse_ranks,
    prefill_versions,
)
from specsim.logs.windows import Windows

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

BATCH = 4096
"""Lines that are turned into columns at once."""
UNLIKE = "unlike its neighbours"
"""Why a well-formed line with other fields than the lines around it is not read."""
MAX_LINE = 4096
"""No more of a damaged line is looked at."""
PASTE_GAP_S = 30.0
"""In a paste, a label and a gap like this begin another run."""


class Server:
    """The lines of one server."""

    def __init__(self, samples: int = 0) -> None:
        self.layout: Layout | None = None  # of the first decode line
        self.facts = Facts()
        self.windows = Windows(parse_ranks, max_samples=samples)
        self.rate = AcceptRate()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.launched = False  # a command that started it is known
        self.stamp = b""  # time of the last decode line
        self.has_threshold = False  # of the batch, beyond which nothing is drafted
        self.prefills = 0  # prefill lines
        self.prompt = np.zeros(3)  # their sums of sequences, new and cached tokens
        self.version_hint = ""  # versions that print them
        self._samples = samples
        self._lines: dict[str, list[bytes]] = {name: [] for name in ("rank", "stamp", *COLUMNS)}
        self._prefilled: list[bool] = []
        self._last_tokens = b""

    @property
    def is_open(self) -> bool:
        """Whether batches of this server were seen."""
        return bool(self._prefilled or self.windows.read or self.prefills)

    @property
    def drafts_nothing(self) -> bool:
        """Whether no fact tells of speculation."""
        return self.facts.settings.get("algorithm") in (None, "none")

    def take_launch(self, settings: Mapping[str, object]) -> None:
        """Take in what a command says of the server; its own words come first."""
        self.launched |= bool(settings)
        self.facts.settings = {**settings, **self.facts.settings}

    def add(self, lines: Printed, prefilled: Sequence[bool]) -> None:
        """Add decode lines, with `stamp` and `rank`; before some of them a prefill ran."""
        if not prefilled:
            return
        for name, texts in self._lines.items():
            texts.extend(lines[name])
        self._prefilled.extend(prefilled)
        self.stamp = lines["stamp"][-1] or self.stamp
        self._last_tokens = lines["tokens"][-1]
        if len(self._prefilled) >= BATCH:
            self.flush(final=False)

    def prefill(self, line: bytes) -> None:
        """Count a prefill line."""
        found = parse_prefill_line(line)
        if found is None:
            self.unread["damaged prefill line"] += 1
        else:
            self.prompt += found
            self.version_hint = self.version_hint or prefill_versions(line)
        self.prefills += 1

    def not_read(self, line: bytes, reason: str) -> None:
        """Count a decode line that could not be read; the ranks that it names are known."""
        self.unread[reason] += 1
        for piece in line[:MAX_LINE].split(b"[20")[1:]:
            self.windows.ranks.see(piece[17 : piece.find(b"] ") + 2])

    def forget_single_line(self) -> None:
        """Take back a decode line if nothing else is known: the lines after it are unlike it."""
        if len(self._prefilled) == 1 and not self.windows.read and not self.facts.started:
            self._take_lines()
            self.unread[UNLIKE] += 1

    def jumps_back(self, line: DecodeLine) -> bool:
        """Whether a line after a label in a paste is of another run."""
        stamp, _ = parse_prefix(line.text("prefix"))
        now, before = seconds([stamp, self.stamp])
        tokens, last_tokens = floats([line.text("tokens"), self._last_tokens])
        return bool(now - before > PASTE_GAP_S or now < before or tokens < last_tokens)

    def restarted(self) -> Server:
        """Return a server like this one, whose windows are not known yet."""
        other = Server(self._samples)
        other.layout, other.label = self.layout, self.label
        other.facts.settings = dict(self.facts.settings)
        return other

    def flush(self, final: bool) -> None:
        """Turn the collected lines into windows."""
        lines, prefilled = self._take_lines()
        printed = {name: floats(lines[name]) for name in COLUMNS}
        if self.layout and not self.layout.prints("accept") and self.drafts_nothing:
            printed["accept"][:] = 1.0
            self.windows.accept_quantum = 0.0
        good = self._plausible(printed)
        self.rate.see(printed["accept"][good], printed["rate"][good])
        drafted = np.isfinite(printed["accept"])
        columns = {
            "time_s": seconds(lines["stamp"]),
            "running": printed["running"],
            "queue": printed["queue"],
            "usage": printed["usage"],
            "output_tps": printed["tps"],
            "emitted": np.where(drafted, printed["running"] * printed["accept"], 0.0),
            "rounds": np.where(drafted, printed["running"], 0.0),  # equally many in each window
            "graph": printed["graph"],
            "prefill": np.array(prefilled, dtype=np.float64),
        }
        self.windows.started = self.facts.started
        read = {name: column[good] for name, column in columns.items()}
        unranked = self.windows.add(read, list(compress(lines["rank"], good)), final)
        if unranked:
            self.unread["no rank"] += unranked

    def _take_lines(self) -> tuple[dict[str, list[bytes]], list[bool]]:
        taken = self._lines, self._prefilled
        self._lines, self._prefilled = {name: [] for name in self._lines}, []
        return taken

    def _plausible(self, printed: dict[str, Floats]) -> Flags:
        """Numbers that no server prints make the line unread."""
        steps = self.facts.settings.get("num_steps")
        most = steps + 1.005 if isinstance(steps, int) and not self.drafts_nothing else np.inf
        faults = {
            "accept length below 1": printed["accept"] < 1,
            "accept length above num_steps + 1": printed["accept"] > most,
            "accept rate above 1": printed["rate"] > 1,
            "token usage above 1": printed["usage"] > 1.01,
        }
        good = np.ones(len(printed["accept"]), dtype=bool)
        for reason, where in faults.items():
            if (where & good).any():
                self.unread[reason] += int((where & good).sum())
            good &= ~where
        return good
