"""A server that nobody has measured: from what the options say of it to a profile."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.options import AnyServer, Described, Drafting
from specsim.engine import engine_named
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.server import read_setup

if TYPE_CHECKING:
    from specsim.cli.options import Loaded


def stated(server: Described, **more: Any) -> Stated:
    """Return what a setup is built from, with further words of the user."""
    said = {part.name: getattr(server, part.name) for part in fields(Described)}
    del said["setup"]
    return Stated(**said, **more)


def uncalibrated(server: AnyServer, asked: Drafting | None) -> Loaded:
    """Build the profile from the library, and say what was assumed."""
    notes = ["nothing was measured on this server: library physics with wide errors"]
    if server.setup is not None:
        setup = read_setup(server.setup)
    else:
        engine = engine_named(server.engine or "sglang")
        version = server.engine_version or engine.newest
        if server.engine is None or server.engine_version is None:
            assumed = f"engine {engine.name} {version}, assumed"
            notes.append(f"{assumed}; --engine and --engine-version say")
        algorithm = None if asked is None else asked.algorithm
        known = Known(engine=engine.name, version=version)
        setup = build_setup(known, stated(server, algorithm=algorithm), (), drafts=True)
        notes += known.notes
    if server.accept_length is None:
        notes.append("accept length is the prior of such drafters; --assume-accept-length says")
    name = server.setup or f"{server.model} on {setup.hardware.gpu_count}x {server.gpu}"
    setting = None if asked is None else asked.setting
    return uncalibrated_profile(setup, name, server.accept_length, setting), tuple(notes)
