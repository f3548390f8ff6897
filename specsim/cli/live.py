"""A running server on the command line: its windows as they come, and a profile of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING

from specsim.cli import output
from specsim.cli.options import AnyServer, Lengths, filled
from specsim.cli.read import COLUMNS
from specsim.errors import CalibrationError, InputError, SpecsimError

if TYPE_CHECKING:
    from specsim.cli.options import Loaded
    from specsim.logs import LogEntry, LogRow

SHOWN = ("running", "clients", "tok/s", "accept length", "round ms", "windows")
"""Columns of the table while it is watched."""


def watched(url: str, window_s: float | None, profile: str | None) -> LogEntry:
    """Return what a server says: now, or in windows of so many seconds until ctrl-C."""
    from specsim.live.server import find
    from specsim.live.watch import Watch, look

    if window_s is None:
        if profile is not None:
            raise InputError(f"--profile {profile}", "is used with --watch", "add --watch 10s")
        with output.status("reading the server"):
            entry, notes = look(url)
        output.remark(notes)
        return entry
    predicted = None if profile is None else _predictor(profile)
    watch = Watch(find(url))
    output.remark(watch.server.notes)
    out = output.console()
    shows = sys.stdout.isatty()
    if shows:
        from rich.live import Live
    watch.start()
    with Live(console=out, transient=True) if shows else nullcontext() as live:
        try:
            while True:
                watch.window(window_s)
                if live is not None:
                    entry = watch.entry()
                    columns = [c for c in COLUMNS if c[0] in SHOWN]
                    if predicted is not None:
                        columns.append(("predicted", partial(predicted, entry)))
                    live.update(output.table(columns, entry.rows, left=()), refresh=True)
        except KeyboardInterrupt:
            pass  # the end of watching; a window that was not whole does not count
    if watch.restarts:
        output.remark([f"the server started anew in {watch.restarts} windows: not counted"])
    return watch.entry()


def _predictor(name: str) -> Callable[[LogEntry, LogRow], str]:
    """Return what tells the throughput that a profile predicts for a row."""
    from specsim.calibrate.log_setup import Stated, setting_of
    from specsim.scenario import load_server
    from specsim.setting import SpecSetting

    profile = load_server(name).profile

    @cache
    def at(setting: SpecSetting | None, clients: int) -> str:
        try:
            curve = profile.predict(
                *([setting] if setting else []),
                concurrency=[clients],
                solver="analytic",
                what_if=True,
            )
        except SpecsimError as error:
            return error.reason
        wanted = setting or SpecSetting.none()
        points = [p for p in curve.rows if p.num_draft_tokens == wanted.num_draft_tokens]
        return f"{points[-1].output_tps:.1f}" if points else ""

    def told(entry: LogEntry, row: LogRow) -> str:
        setting = setting_of(entry.settings, Stated(), entry.path)
        return at(setting, max(1, round(row.concurrency or row.batch_size or 1)))

    return told


def profile_of(url: str, server: AnyServer, lengths: Lengths) -> Loaded:
    """Return a profile of a running server: fitted to what it measures, else of the library."""
    from specsim.calibrate.fit import fit_profile
    from specsim.calibrate.log_setup import Stated, build_setup, collect
    from specsim.calibrate.logs import gather
    from specsim.live.watch import look
    from specsim.profile.uncalibrated import uncalibrated_profile
    from specsim.scenario import apply_overrides, parse_overrides
    from specsim.server import read_setup

    if server.profile is not None:
        raise InputError(f"--profile {server.profile}", "excludes a URL", "choose one of them")
    with output.status("reading the server"):
        entry, notes = look(url)
    stated = filled(Stated, server, lengths)
    base = None if server.setup is None else read_setup(server.setup)
    try:
        found = gather([entry], stated, base)
        with output.status("fitting"):
            profile = fit_profile(found.setup, found.observations, url).profile
        notes += found.notes
    except CalibrationError as error:
        known = collect([entry], stated)
        setup = base or build_setup(known, stated, [entry])
        accept = entry.main_row.accept_length if entry.main_row and setup.current else None
        profile = uncalibrated_profile(setup, url, accept)
        notes += (f"nothing measured ({error.reason}): library physics", *known.notes)
    if server.overrides:
        changed = apply_overrides(profile, parse_overrides(server.overrides))
        profile, notes = changed.profile, (*notes, *changed.notes)
    return profile, notes
