"""What an SGLang log says of its settings, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats

from specsim.logs.diagnose import load_diagnoses
from specsim.logs.entry import Diagnosis, LogRow
from specsim.logs.settings import NO_SPECULATION
from specsim.logs.sglang_facts import Facts
from specsim.logs.sglang_lines import Signature

Definition = Literal["with_bonus", "drafts_only"]
"""accept_len/n (0.5.3 to 0.5.10; 0.5.3 and 0.5.4 divide by num_steps + 1), or, from 0.5.11,
(accept_len - 1)/(n - 1)."""

_CANDIDATES = np.arange(2, 65)
_HALF_STEP = 0.00501
"""Half a step of the printed numbers."""
_SAMPLE = 64
_CONSISTENT = 0.98
OFF_LENGTH = 1.005
"""Accept lengths that print as 1.00."""
POOR_LENGTH = 1.05


@dataclass(slots=True)
class AcceptRate:
    """Finds num_draft_tokens and the definition of the accept rate from printed pairs.

    Attributes
    ----------
    seen
        Windows looked at.
    fits
        Windows consistent with each candidate n, by definition.
    """

    seen: int = 0
    fits: dict[Definition, Floats] = field(default_factory=dict)

    def see(self, accept: Floats, rate: Floats) -> None:
        """Look at a few windows of a batch."""
        known = np.isfinite(accept) & np.isfinite(rate) & (rate > 0)
        al, ar = accept[known][:_SAMPLE, None], rate[known][:_SAMPLE, None]
        self.seen += len(al)
        for name, emitted, slots in (
            ("with_bonus", al, _CANDIDATES),
            ("drafts_only", al - 1, _CANDIDATES - 1),
        ):
            # Both numbers are rounded, the length by half a step and the rate by another.
            far = np.abs(emitted / slots - ar) > _HALF_STEP * (1 + 1 / slots)
            fits = (~far).sum(axis=0).astype(np.float64)
            key: Definition = "with_bonus" if name == "with_bonus" else "drafts_only"
            self.fits[key] = self.fits.get(key, np.zeros(len(_CANDIDATES))) + fits

    def candidates(self, definition: Definition) -> list[int]:
        """Values of n with which nearly all windows agree."""
        if not self.seen:
            return []
        agree = self.fits[definition] >= _CONSISTENT * self.seen
        return [int(n) for n in _CANDIDATES[agree]]

    def definition(
        self, signature: Signature, num_draft_tokens: object, versions: str
    ) -> Definition | None:
        """Return the definition, if the versions or the numbers decide it.

        Parameters
        ----------
        signature
            Layout of the lines.
        num_draft_tokens
            As stated; None if it is not.
        versions
            A version, or a range of them.
        """
        old = not signature.comma or signature.trailing_comma
        if old or versions.startswith(("0.5.9.", "0.5.10")) or versions == "0.5.9":
            return "with_bonus"
        if versions and versions != version_range(signature, ""):
            return "drafts_only"
        both: tuple[Definition, ...] = ("with_bonus", "drafts_only")
        possible = [
            d
            for d in both
            if (num_draft_tokens in self.candidates(d))
            or (num_draft_tokens is None and self.candidates(d))
        ]
        return possible[0] if len(possible) == 1 else None

    def num_draft_tokens(self, definition: Definition | None) -> int | None:
        """Return n if just one value agrees with all windows."""
        found = self.candidates(definition) if definition else []
        return found[0] if len(found) == 1 else None


def version_range(signature: Signature, hint: str) -> str:
    """Versions that print decode lines of this layout, as ``first-last``.

    >>> version_range(Signature(True, False, frozenset()), "")
    '0.5.9-0.5.23'
    """
    s = signature
    if s.comma:
        return "0.5.4-0.5.8" if s.trailing_comma else hint or "0.5.9-0.5.23"
    if s.accept_rate:
        return "0.5.3"
    if not s.cuda_graph:
        if s.largest_len:
            return "0.4.3"
        return "0.4.4-0.4.5" if s.trailing_comma else "0.4.0-0.4.2"
    if not s.trailing_comma:
        return "0.4.6-0.4.8"
    return "0.4.9-0.5.2" if s.accept_length else "0.4.9-0.5.3"


def entry_settings(
    facts: Facts,
    signature: Signature | None,
    rate: AcceptRate,
    hint: str,
    prompt: Floats,
    prefills: int,
) -> dict[str, object]:
    """Return the settings of a server, with what its lines let one infer.

    Parameters
    ----------
    facts
        What was stated.
    signature
        Layout of the decode lines; None without any.
    rate
        Accept lengths and rates seen.
    hint
        Versions that the prefill lines point to.
    prompt
        Sums over prefill lines: sequences, new tokens, cached tokens.
    prefills
        Prefill lines.
    """
    settings = dict(facts.settings)
    if signature is not None:
        if not signature.accept_length and settings.get("algorithm") in (None, "none"):
            settings.update(NO_SPECULATION)
        settings["version_range"] = version_range(signature, hint)
    elif hint:
        settings["version_range"] = hint
    if signature is not None and signature.accept_rate and "num_draft_tokens" not in settings:
        versions = facts.version or str(settings["version_range"])
        n = rate.num_draft_tokens(rate.definition(signature, None, versions))
        if n is not None:
            settings["num_draft_tokens"] = n
            settings["inferred"] = ["num_draft_tokens"]
    if prefills:
        settings["prefill_batches"] = prefills
    if prompt[0] > 0:
        settings["prefill_tokens_per_sequence"] = float(f"{prompt[1] / prompt[0]:.6g}")
        settings["cached_tokens_per_sequence"] = float(f"{prompt[2] / prompt[0]:.6g}")
    return settings


def diagnoses(
    facts: Facts,
    signature: Signature | None,
    rate: AcceptRate,
    rows: Sequence[LogRow],
    settings: Mapping[str, object],
    counts: Counter[str],
    unread: Mapping[str, int],
) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of one server.

    Parameters
    ----------
    facts, signature, rate
        As for :func:`entry_settings`.
    rows, settings
        Of the entry.
    counts
        ``windows``, ``prefill`` (those with prefill) and ``ranks``.
    unread
        Reason -> lines.
    """
    found = load_diagnoses(rows, settings, counts["windows"], counts["prefill"])
    if signature is not None and signature.accept_length:
        found += _acceptance(rows)
    if facts.adaptive or settings.get("speculative_adaptive"):
        text = (
            f"the draft depth changed {facts.adaptive} times while running (adaptive speculation): "
            "an accept length over several of them belongs to no one setting"
        )
        found.append(Diagnosis("partial_drafting", text))
    if facts.retractions:
        text = (
            f"{facts.retracted} requests were retracted in {facts.retractions} events: "
            "the KV cache was full, and their tokens were computed twice"
        )
        found.append(Diagnosis("retraction", text))
    if signature is not None and signature.accept_rate:
        versions = facts.version or str(settings.get("version_range", ""))
        found.append(_rate_definition(signature, rate, settings, versions))
    if counts["ranks"] > 1:
        text = f"{counts['ranks']} data-parallel ranks were summed per window"
        found.append(Diagnosis("ranks_summed", text))
    if unread.get("truncated"):
        text = f"{unread['truncated']} decode line(s) cut short were not read"
        found.append(Diagnosis("truncated", text))
    return tuple(found)


def _acceptance(rows: Sequence[LogRow]) -> list[Diagnosis]:
    lengths = [(r.accept_length, r) for r in rows if r.accept_length is not None]
    off = [r for length, r in lengths if length < OFF_LENGTH]
    poor = [length for length, r in lengths if OFF_LENGTH <= length < POOR_LENGTH]
    found = []
    if off:
        where = "" if len(off) == len(lengths) else _at([r.batch_size or 0.0 for r in off])
        text = f"accept length 1.00{where}: speculation is off, not failing"
        found.append(Diagnosis("speculation_off", text))
    if poor:
        text = (
            f"accept length {min(poor):.2f}: next to no draft is accepted; "
            "the drafter does not fit the model or its weights are wrong"
        )
        found.append(Diagnosis("zero_acceptance", text))
    return found


def _at(batches: list[float]) -> str:
    low, high = min(batches), max(batches)
    return f" at {low:.0f} running" if low == high else f" at {low:.0f} to {high:.0f} running"


def _rate_definition(
    signature: Signature, rate: AcceptRate, settings: Mapping[str, object], versions: str
) -> Diagnosis:
    stated = None if settings.get("inferred") else settings.get("num_draft_tokens")
    definition = rate.definition(signature, stated, versions)
    if definition == "drafts_only":
        formula = "(accept_len - 1)/(num_draft_tokens - 1)"
    elif definition == "with_bonus" and not signature.comma:
        formula = "accept_len/(num_steps + 1), the bonus token included"
    elif definition == "with_bonus":
        formula = "accept_len/num_draft_tokens, the bonus token included"
    else:
        formula = (
            "accept_len/num_draft_tokens (to 0.5.10) or (accept_len - 1)/(num_draft_tokens - 1) "
            "(from 0.5.11): the log does not tell which"
        )
    text = f"accept rate of this version is {formula}; only the accept length is used"
    n = settings.get("num_draft_tokens")
    if settings.get("inferred") and n is not None:
        text += f"; it implies {n} draft tokens"
    return Diagnosis("accept_rate_definition", text)
