"""A server that nobody has measured: from what the options say of it to a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.options import AnyServer, Drafting, filled
from specsim.engine import engine_named
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.server import read_setup
from specsim.setting import SpecSetting

if TYPE_CHECKING:
    from specsim.cli.options import Loaded


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
        setup = build_setup(known, filled(Stated, server, algorithm=algorithm), (), drafts=True)
        notes += known.notes
    if server.accept_length is None:
        notes.append("accept length is the prior of such drafters; --assume-accept-length says")
    name = server.setup or f"{server.model} on {setup.hardware.gpu_count}x {server.gpu}"
    setting = None
    if asked is not None and asked.num_steps is not None:
        numbers = (asked.topk, asked.num_steps, asked.num_draft_tokens)
        setting = SpecSetting.of(*numbers, asked.algorithm or "EAGLE3")
    return uncalibrated_profile(setup, name, server.accept_length, setting), tuple(notes)
