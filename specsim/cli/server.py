"""The server that a command is about: a profile, or a server that nobody has measured.

Every command takes one of the groups below and calls its `load`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from specsim.cli.options import Drafting, file, named, number, option, profiles, whole
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.calibrate.log_setup import Stated
    from specsim.profile import Profile

    Loaded = tuple[Profile, tuple[str, ...]]


@dataclass(frozen=True)
class Measured:
    """A server with a profile."""

    profile: str | None = option(
        "--profile -p",
        "NAME|FILE",
        "Shipped profile, profile.toml or scenario.toml.",
        complete=profiles,
    )


@dataclass(frozen=True)
class Changes:
    """What is supposed to be different about a server."""

    overrides: tuple[str, ...] = option(
        "--set",
        "KEY=VALUE",
        "What if: allreduce.latency=*0.5, gpu=h200-sxm, accept_length=2.4, ... Repeatable.",
        multiple=True,
    )


@dataclass(frozen=True)
class Server(Changes, Measured):
    """A server with a profile, as it is or changed."""

    def load(self) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it."""
        return load_profile_or_scenario(self.profile, self.overrides)


@dataclass(frozen=True)
class Described:
    """A server without a profile, in the user's words."""

    model: str | None = file(
        "--model", "Without a profile: library id, config.json or TOML file.", "ID|FILE"
    )
    gpu: str | None = file("--gpu", "Its GPUs: library id or TOML file.", "ID|FILE")
    gpu_count: int | None = option("--gpu-count", "N", "GPUs. Default: --tp.", whole(1))
    tp: int | None = option("--tp", "N", "Tensor-parallel GPUs.", whole(1))
    link: str | None = file("--link", "Link between the GPUs: library id or TOML file.", "ID|FILE")
    allreduce: str | None = option("--allreduce", "A", "nccl, custom, fused or symmetric.")
    quantisation: str | None = option("--quantisation", "Q", "Weight format, e.g. fp8.")
    draft: str | None = file("--draft", "Drafter: library id or TOML file.", "ID|FILE")
    setup: str | None = file("--setup", "Instead of all these: a setup.toml.")
    engine: str | None = option(
        "--engine",
        "E",
        "sglang, vllm, tensorrt-llm or llama.cpp; a profile of another is carried over.",
        complete=named("specsim.engine", "engine_names"),
    )
    engine_version: str | None = option("--engine-version", "V", "Default: the profile's.")

    def stated(self, **more: Any) -> Stated:
        """Return what a setup is built from, with further words of the user."""
        from specsim.calibrate.log_setup import Stated

        said = {part.name: getattr(self, part.name) for part in fields(Described)}
        del said["setup"]
        return Stated(**said, **more)


@dataclass(frozen=True)
class AnyServer(Described, Server):
    """A server with or without a profile."""

    accept_length: float | None = option(
        "--assume-accept-length",
        "TAU",
        "Without a profile: tokens per round of the asked setting, bonus included.",
        number(),
    )

    def load(self, asked: Drafting | None = None) -> Loaded:
        """Return the profile under the overrides, and what is to be said of it.

        Of a server without a profile, `asked` says how it drafts, and whose accept length is
        assumed.

        Raises
        ------
        InputError
            If the server is described twice or not enough.
        """
        if self.model is None and self.setup is None:
            self._refuse_stray()
            profile, notes = load_profile_or_scenario(self.profile)
            if self.engine is not None:
                from specsim.profile.other_engine import under_engine

                profile, more = under_engine(profile, self.engine, self.engine_version)
                notes += more
        elif self.profile is not None:
            raise InputError(
                f"--profile {self.profile}", "excludes --model and --setup", "choose one of them"
            )
        else:
            profile, notes = self._uncalibrated(asked)
        if self.overrides:
            from specsim.scenario import apply_overrides, parse_overrides

            changed = apply_overrides(profile, parse_overrides(self.overrides))
            profile, notes = changed.profile, (*notes, *changed.notes)
        return profile, notes

    def named(self) -> AnyServer:
        """Return the same server, the default profile by its name."""
        from specsim.profile import DEFAULT_PROFILE

        unsaid = self.profile is None and self.model is None and self.setup is None
        return replace(self, profile=DEFAULT_PROFILE) if unsaid else self

    def _refuse_stray(self) -> None:
        """Refuse options that mean nothing beside a measured profile."""
        for part in (*fields(Described), *fields(AnyServer)[-1:]):
            value, flag = getattr(self, part.name), part.metadata["names"][0]
            if value is not None and flag not in ("--engine", "--engine-version"):
                raise InputError(
                    f"{flag} {value}",
                    "describes a server without a profile",
                    "add --model and --gpu, or --setup, or change a profile: specsim compare --set",
                )

    def _uncalibrated(self, asked: Drafting | None) -> Loaded:
        """Build the profile from the library, and say what was assumed."""
        from specsim.calibrate.log_setup import Known, build_setup
        from specsim.engine import engine_named
        from specsim.profile.uncalibrated import uncalibrated_profile
        from specsim.server import read_setup

        notes = ["nothing was measured on this server: library physics with wide errors"]
        if self.setup is not None:
            setup = read_setup(self.setup)
        else:
            engine = engine_named(self.engine or "sglang")
            version = self.engine_version or engine.newest
            if self.engine is None or self.engine_version is None:
                assumed = f"engine {engine.name} {version}, assumed"
                notes.append(f"{assumed}; --engine and --engine-version say")
            algorithm = None if asked is None else asked.algorithm
            known = Known(engine=engine.name, version=version)
            setup = build_setup(known, self.stated(algorithm=algorithm), (), drafts=True)
            notes += known.notes
        if self.accept_length is None:
            notes.append("accept length is the prior of such drafters; --assume-accept-length says")
        name = self.setup or f"{self.model} on {setup.hardware.gpu_count}x {self.gpu}"
        setting = None if asked is None else asked.setting
        return uncalibrated_profile(setup, name, self.accept_length, setting), tuple(notes)


def load_profile_or_scenario(name: str | None, overrides: tuple[str, ...] = ()) -> Loaded:
    """Load a profile or scenario; a shipped profile as it is needs nothing of scenarios."""
    from specsim.profile import load_profile

    if not overrides and not (name or "").endswith(".toml"):
        return load_profile(name), ()
    from specsim.scenario import load_server

    changed = load_server(name, overrides)
    return changed.profile, changed.notes
