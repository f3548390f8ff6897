"""Numbers of measured cells that contradict each other, whatever server they are of."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from specsim.observations.observation import COLUMNS, SURVIVAL, Observation, cell_name

MEASURED = {
    *("num_requests", "batch_size", "window_s", "output_tps", "accept_length", *SURVIVAL),
    *("accept_length_scope", "ttft_s", "tpot_s", "itl_s", "round_time_s", "draft_time_s"),
    *("weight", "source"),
}
"""Columns that say nothing of the question that a cell answers."""

SLACK = 1.25
"""Survivals and accept lengths of public runs differ by up to 1.12."""
SAME, FALL, RISE = 1.5, 0.5, 2.0
"""Of throughput: cells of one question differ by less; clients added to a server never halved it
(0.72 at worst), nor made one of them faster (1.02 at most), in 25 public sets."""


def contradictions(rows: Sequence[Observation]) -> tuple[str, ...]:
    """Return a line for each kind of contradiction: a cell, its values, and what may be meant."""
    groups: dict[object, list[Observation]] = {}
    for row in rows:
        if row.output_tps is not None and row.concurrency is not None:
            asked = (c for c in COLUMNS if c not in MEASURED and c != "concurrency")
            stated = row.to_row()
            groups.setdefault(tuple(stated.get(c) for c in asked), []).append(row)
    kinds: dict[str, list[str]] = {}
    for said, meant in (found for row in rows for found in _survivals(row)):
        kinds.setdefault(meant, []).append(said)
    for group in groups.values():
        group.sort(key=lambda row: row.concurrency or 0)
        pairs = [*pairwise(group), *((group[0], row) for row in group[2:])]
        for said, meant in (found for pair in pairs for found in _pair(*pair)):
            kinds.setdefault(meant, []).append(said)
    return tuple(f"{first_of(cells)}{meant}" for meant, cells in kinds.items())


def first_of(cells: Sequence[str]) -> str:
    """Return the first of several things that are said of cells, and how many more there are."""
    return cells[0] + (f" (and {len(cells) - 1} more)" if len(cells) > 1 else "")


def _survivals(row: Observation) -> Iterator[tuple[str, str]]:
    """Accept length is 1 plus the survivals of all depths."""
    length, total = row.accept_length, 1 + sum(row.survival)
    if length is None or not row.survival:
        return
    depths = min(row.setting.num_steps, row.setting.num_draft_tokens - 1)
    if total > SLACK * length or (len(row.survival) == depths and length > SLACK * total):
        said = f"accept_length = {length:g} contradicts its survivals, which give {total:.3g}"
        yield f"{cell_name(row)}: {said}", ": of another run, or without the bonus token?"


def _pair(one: Observation, other: Observation) -> Iterator[tuple[str, str]]:
    """Compare two cells that differ in load at most, the lower load first."""
    clients = (other.concurrency or 1) / (one.concurrency or 1)
    a, b = one.output_tps or 1.0, other.output_tps or 1.0
    said = f"{cell_name(other)}: output_tps = {b:g} beside {a:g} of {cell_name(one)}"
    if clients == 1:
        if max(a, b) > SAME * min(a, b):
            yield said, ", the same cell: one of them is wrong, or of another server"
    elif b < FALL * a:
        yield said, ", fewer for more clients: tokens/s of one client? give those of all"
    elif b > RISE * clients * a:
        yield said, ", more than so many clients can: one of them is wrong"
