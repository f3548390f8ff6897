"""A server's lines as an entry: its settings, rows and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from specsim.arrays import Floats
from specsim.logs.diagnose import of_load, partial_drafting, truncated
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.formats.vllm.drafting import Drafting
from specsim.logs.formats.vllm.reader import Server
from specsim.logs.levels import level_rows
from specsim.setting import NO_SPECULATION, chain_settings

SILENT_WINDOWS = 2
"""So many windows without a drafting line, in a log that was not filtered, draft nothing."""


def server_entry(server: Server, path: str) -> LogEntry:
    """Return what is known of a server."""
    drafting = server.drafting
    settings = _settings(server)
    plain = settings.get("algorithm") == "none"
    if plain:
        server.windows.accept_quantum = 0.0
    rows, windows = level_rows(
        server.windows, lambda row, sums: _with_drafting(row, server, plain, sums)
    )
    rows = rows or _drafting_alone(server)
    return LogEntry(
        path=path,
        format="vllm_log",
        engine="vllm",
        engine_version=server.facts.version,
        settings=settings,
        rows=rows,
        windows=replace(
            windows, read=windows.read + drafting.alone, used=windows.used + drafting.alone
        ),
        diagnoses=tuple(_diagnoses(server, rows, settings)),
        unread=dict(+server.unread),
        accept_length=1.0 if plain else drafting.accept_length(),
        survival=drafting.survival(),
        label=server.label,
    )


def _settings(server: Server) -> dict[str, object]:
    settings = dict(server.facts.settings)
    drafts = server.drafting.lines or server.mentions_drafting
    if server.drafting.lines and settings.get("algorithm") == "none":  # its arguments were cut
        settings = {name: value for name, value in settings.items() if name not in NO_SPECULATION}
    if k := server.drafting.positions:
        settings = {**chain_settings(k), **settings}
    silent = server.windows.read >= SILENT_WINDOWS or server.label
    if not drafts and silent and server.other_lines and "algorithm" not in settings:
        settings.update(NO_SPECULATION)
    return settings


def _with_drafting(row: LogRow, server: Server, plain: bool, sums: Floats) -> LogRow:
    batch, tps = row.batch_size or 0.0, row.output_tps
    accept = 1.0 if plain else row.accept_length
    return replace(
        row,
        accept_length=accept,
        survival=server.drafting.survival(sums),
        round_time_s=accept * batch / tps if accept and tps and not row.mixed else None,
        drafted_per_round=server.drafting.drafted_per_round(sums),
        accept_rate=server.drafting.accept_rate(sums),
    )


def _drafting_alone(server: Server) -> tuple[LogRow, ...]:
    """Return a row of drafting alone, for a log without usable throughput lines."""
    drafting = server.drafting
    row = LogRow(
        windows=drafting.lines,
        accept_length=drafting.accept_length(),
        survival=drafting.survival(),
        drafted_per_round=drafting.drafted_per_round(),
        accept_rate=drafting.accept_rate(),
        accept_length_scope="pooled" if server.v0 else "run",
    )
    return (row,) if drafting.lines else ()


def _diagnoses(
    server: Server, rows: Sequence[LogRow], settings: Mapping[str, object]
) -> Iterator[Diagnosis]:
    """Yield what is wrong with one server, whose entry has these rows and settings."""
    yield from of_load(rows, settings, server.windows)
    yield from _of_drafting(server, settings.get("num_steps"))
    if preempted := server.preemptions or server.facts.counts["preemptions"]:
        yield Diagnosis("retraction", f"{preempted} requests were preempted: the KV cache was full")
    if settings.get("disable_cuda_graph") is True:
        yield Diagnosis("eager", "enforce_eager=True: no forward runs as a CUDA graph")
    ranks = max(len(server.windows.ranks.named), server.engines)
    if ranks > 1:
        yield Diagnosis("ranks_summed", f"{ranks} data-parallel engines were summed")
    yield from truncated(server.unread)


def _of_drafting(server: Server, steps: object) -> Iterator[Diagnosis]:
    """Yield what is wrong with the drafting, and what the numbers mean."""
    drafting = server.drafting
    length, rate = drafting.accept_length(), drafting.accept_rate() or 0.0
    if drafting.corrected:
        yield Diagnosis(
            "bonus_excluded",
            "the printed mean acceptance length leaves out the bonus token (vLLM 0.8.5) "
            f"in {drafting.corrected} lines: 1 was added",
        )
    if server.v0:
        yield Diagnosis(
            "accept_rate_definition",
            f"draft acceptance rate {rate:.3f} of vLLM V0 also counts drafts after the first "
            "rejected one: 1 + k x rate would overstate the accept length "
            f"({1 + drafting.positions * rate:.2f} instead of {length or 0.0:.2f})",
        )
    if unused := _unused_positions(drafting):
        yield Diagnosis("zero_acceptance", unused)
    depth = steps if isinstance(steps, int) else None
    yield from partial_drafting(drafting.drafted_per_round(), depth)
    if drafting.lines and length is None and drafting.positions == 0:
        yield Diagnosis(
            "accept_rate_definition",
            f"this version prints {100 * rate:.0f} % accepted over drafted tokens but no accept "
            "length: without num_speculative_tokens it cannot be derived",
        )


def _unused_positions(drafting: Drafting) -> str:
    """Tell of drafts that are never accepted: all of them, or the last ones."""
    if drafting.lines and drafting.accept_rate() == 0:
        return "no draft was ever accepted: the drafter does not fit the model, or it is broken"
    length, survival = drafting.accept_length(), drafting.survival()
    useful = sum(s > 0 for s in survival or ())
    if not survival or length is None or useful == len(survival):
        return ""
    return (
        f"draft positions {useful + 1} to {len(survival)} were never accepted: "
        f"num_speculative_tokens {useful} gives the same accept length ({length:.2f})"
    )
