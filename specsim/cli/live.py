"""A running server on the command line: its windows as they come, and a profile of it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.read import COLUMNS
from specsim.errors import InputError, SpecsimError

if TYPE_CHECKING:
    from specsim.logs import LogEntry, LogRow
    from specsim.profile import Profile

SHOWN = ("running", "clients", "tok/s", "accept length", "round ms", "windows")
"""Columns of the table while it is watched."""


def watched(url: str, window_s: float | None, profile: str | None) -> LogEntry:
    """Return what a server says: now, or in windows of so many seconds until ctrl-C."""
    from specsim.live.server import find
    from specsim.live.watch import Watch, look

    if window_s is None:
        with output.status("reading the server"):
            entry, notes = look(url)
        output.remark(notes)
        return entry
    from specsim.scenario import load_server

    known = None if profile is None else load_server(profile).profile
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
                    if known is not None:
                        columns.append(("predicted", partial(_predicted, known, entry)))
                    live.update(output.table(columns, entry.rows, left=()), refresh=True)
        except KeyboardInterrupt:
            pass  # the end of watching; a window that was not whole does not count
    if watch.restarts:
        output.remark([f"the server started anew in {watch.restarts} windows: not counted"])
    return watch.entry()


def _predicted(profile: Profile, entry: LogEntry, row: LogRow) -> str:
    """Return the throughput that a profile predicts for a row, or why it predicts none."""
    from specsim.calibrate.log_setup import Stated, setting_of
    from specsim.setting import SpecSetting

    setting = setting_of(entry.settings, Stated(), entry.path) or SpecSetting.none()
    clients = max(1, round(row.concurrency or row.batch_size or 1))
    try:
        rows = profile.predict(setting, concurrency=[clients], solver="analytic", what_if=True).rows
    except SpecsimError as error:
        return error.reason
    return next(f"{p.output_tps:.1f}" for p in reversed(rows) if p.num_steps == setting.num_steps)


def profile_of(url: str, server: opt.AnyServer, lengths: opt.Lengths) -> opt.Loaded:
    """Return a profile of a running server, fitted to what it has measured."""
    from specsim.calibrate.fit import fit_profile
    from specsim.calibrate.log_setup import Stated
    from specsim.calibrate.sources import read_sources
    from specsim.scenario import apply_overrides, parse_overrides

    if server.profile is not None:
        raise InputError(f"--profile {server.profile}", "excludes a URL", "choose one of them")
    with output.status("reading the server, and fitting"):
        found = read_sources([url], opt.filled(Stated, server, lengths), server.setup)
        profile = fit_profile(found.setup, found.observations, url).profile
    changed = apply_overrides(profile, parse_overrides(server.overrides))
    return changed.profile, (*found.notes, *changed.notes)
