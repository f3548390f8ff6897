"""A server's lines as an entry: its settings, and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence

from specsim.logs.diagnose import of_load, truncated
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.formats.sglang.lines import GENERATIONS, Layout, generation
from specsim.logs.formats.sglang.reader import Server
from specsim.logs.levels import level_rows
from specsim.setting import NO_SPECULATION

OFF_LENGTH = 1.005
"""Accept lengths that print as 1.00."""
POOR_LENGTH = 1.05


def server_entry(server: Server, path: str) -> LogEntry:
    """Return what is known of a server."""
    rows, windows = level_rows(server.windows)
    settings = _settings(server)
    return LogEntry(
        path=path,
        format="sglang_log",
        engine="sglang",
        engine_version=server.facts.version,
        settings=settings,
        rows=rows,
        windows=windows,
        diagnoses=tuple(_diagnoses(server, rows, settings)),
        unread=dict(+server.unread),
        accept_length=server.windows.accept_length,
        label=server.label,
    )


def _settings(server: Server) -> dict[str, object]:
    """Return the settings of a server, with what its lines let one infer."""
    settings, layout = dict(server.facts.settings), server.layout
    versions = server.version_hint
    if layout is not None:
        found = generation(layout)
        versions = (versions or found) if found in ("", GENERATIONS[-1].versions) else found
        if not layout.prints("accept") and server.drafts_nothing:
            settings.update(NO_SPECULATION)
    if versions:
        settings["version_range"] = versions
    if layout is not None and layout.prints("rate") and "num_draft_tokens" not in settings:
        definition = server.rate.definition(layout, None, server.facts.version or versions)
        n = server.rate.num_draft_tokens(definition)
        if n is not None:
            settings["num_draft_tokens"] = n
            settings["inferred"] = ["num_draft_tokens"]
    if server.prefills:
        settings["prefill_batches"] = server.prefills
    sequences, new, cached = server.prompt
    if sequences:
        settings["prefill_tokens_per_sequence"] = float(f"{new / sequences:.6g}")
        settings["cached_tokens_per_sequence"] = float(f"{cached / sequences:.6g}")
    return settings


def _diagnoses(
    server: Server, rows: Sequence[LogRow], settings: Mapping[str, object]
) -> Iterator[Diagnosis]:
    """Yield what is wrong with one server, whose entry has these rows and settings."""
    events, layout = server.facts.counts, server.layout
    ranks = len(server.windows.ranks.named)
    yield from of_load(rows, settings, server.windows)
    if layout is not None and layout.prints("accept"):
        yield from _acceptance(rows, settings, server)
    if events["adaptive"] or settings.get("speculative_adaptive"):
        yield Diagnosis(
            "partial_drafting",
            f"the draft depth changed {events['adaptive']} times while running (adaptive "
            "speculation): an accept length over several of them belongs to no one setting",
        )
    if events["retractions"]:
        yield Diagnosis(
            "retraction",
            f"{events['retracted']} requests were retracted in {events['retractions']} events: "
            "the KV cache was full, and their tokens were computed twice",
        )
    if layout is not None and layout.prints("rate"):
        yield Diagnosis("accept_rate_definition", _rate_definition(server, layout, settings))
    if ranks > 1:
        yield Diagnosis("ranks_summed", f"{ranks} data-parallel ranks were summed per window")
    yield from truncated(server.unread, "decode line(s)")


def _acceptance(
    rows: Sequence[LogRow], settings: Mapping[str, object], server: Server
) -> Iterator[Diagnosis]:
    """Tell of accept lengths of about 1: a drafter that fails, or speculation that is off."""
    lengths = [(r.accept_length, r.batch_size or 0.0) for r in rows if r.accept_length is not None]
    off = [batch for length, batch in lengths if length < OFF_LENGTH]
    poor = [length for length, _ in lengths if OFF_LENGTH <= length < POOR_LENGTH]
    if poor:
        yield Diagnosis(
            "zero_acceptance",
            f"accept length {min(poor):.2f}: next to no draft is accepted; "
            "the drafter does not fit the model or its weights are wrong",
        )
    if poor or not off:
        return
    drafting = [batch for length, batch in lengths if length >= OFF_LENGTH]
    by_batch = drafting and (min(off) > max(drafting) or max(off) < min(drafting))
    algorithm = settings.get("algorithm")
    low, high = f"{min(off):.0f}", f"{max(off):.0f}"
    where = f" at {low} running" if low == high else f" at {low} to {high} running"
    where = f"accept length 1.00{where if drafting else ''}: "
    broken = (
        "the drafter does not fit the model, its weights are wrong, or the target repeats itself; "
        "switch speculation off until it is mended"
    )
    if by_batch or server.has_threshold or (not algorithm and server.rate.bonus_alone):
        yield Diagnosis("speculation_off", where + "speculation is off, not failing")
    elif algorithm:
        never = f"no draft was ever accepted although {algorithm} runs: "
        yield Diagnosis("zero_acceptance", where + never + broken)
    else:
        yield Diagnosis("zero_acceptance", f"{where}if a drafter runs, {broken}")
        yield Diagnosis(
            "speculation_off",
            "accept length 1.00 is also printed while speculation is off: the log does not tell "
            "which it is",
        )


def _rate_definition(server: Server, layout: Layout, settings: Mapping[str, object]) -> str:
    n, inferred = settings.get("num_draft_tokens"), settings.get("inferred")
    versions = server.facts.version or str(settings.get("version_range", ""))
    definition = server.rate.definition(layout, None if inferred else n, versions)
    if definition == "drafts_only":
        formula = "(accept_len - 1)/(num_draft_tokens - 1)"
    elif definition == "with_bonus" and not layout.comma:
        formula = "accept_len/(num_steps + 1), the bonus token included"
    elif definition == "with_bonus":
        formula = "accept_len/num_draft_tokens, the bonus token included"
    else:
        formula = (
            "accept_len/num_draft_tokens (to 0.5.10) or (accept_len - 1)/(num_draft_tokens - 1) "
            "(from 0.5.11): the log does not tell which"
        )
    implied = f"; it implies {n} draft tokens" if inferred and n is not None else ""
    return f"accept rate of this version is {formula}; only the accept length is used{implied}"
