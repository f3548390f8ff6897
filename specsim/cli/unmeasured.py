"""A profile for ``predict --model M --gpu G``: a server that nobody has measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from specsim.profile import Profile
    from specsim.setting import SpecSetting

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="ID|FILE", help="No profile: library id or config.json."),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="ID", help="With --model: library id of the GPU.")
]
TpOption = Annotated[
    int | None, typer.Option("--tp", metavar="N", help="With --model: tensor-parallel GPUs.")
]
LinkOption = Annotated[
    str | None, typer.Option("--link", metavar="ID", help="With --model: link between the GPUs.")
]
QuantisationOption = Annotated[
    str | None, typer.Option("--quantisation", metavar="Q", help="With --model: weight format.")
]
DraftOption = Annotated[
    str | None, typer.Option("--draft", metavar="ID", help="With --model: the drafter.")
]
SetupOption = Annotated[
    str | None, typer.Option("--setup", metavar="FILE", help="No profile: a setup.toml.")
]
AcceptLengthOption = Annotated[
    float | None,
    typer.Option(
        "--assume-accept-length",
        metavar="TAU",
        help="Tokens per round of the asked setting, bonus included.",
    ),
]


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What the command line says of a server without a profile; None where it does not."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    link: str | None = None
    quantisation: str | None = None
    draft: str | None = None
    setup: str | None = None
    accept_length: float | None = None
    algorithm: str | None = None
    engine: str | None = None
    engine_version: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether a profile has to be made up."""
        return self.model is not None or self.setup is not None


def refuse_stray(said: Unmeasured) -> None:
    """Refuse options that mean nothing beside a measured profile.

    Raises
    ------
    InputError
        Names the option.
    """
    from specsim.errors import InputError

    if said.wanted:
        return
    options = {
        "--gpu": said.gpu,
        "--tp": said.tp,
        "--link": said.link,
        "--quantisation": said.quantisation,
        "--draft": said.draft,
        "--assume-accept-length": said.accept_length,
    }
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} {value}",
                "describes a server without a profile",
                "add --model and --gpu, or --setup, or change a profile: specsim compare --set",
            )


def unmeasured_profile(
    said: Unmeasured, setting: SpecSetting | None
) -> tuple[Profile, tuple[str, ...]]:
    """Build the profile from the library, and say what was assumed.

    Raises
    ------
    InputError
        If something is missing, or the accept length belongs to no setting.
    """
    from specsim.calibrate.log_setup import Known, Stated, build_setup
    from specsim.engine import engine_named
    from specsim.profile import uncalibrated_profile
    from specsim.server import read_setup

    notes = ["nothing was measured on this server: library physics with wide errors"]
    if said.setup is not None:
        setup = read_setup(said.setup)
    else:
        engine = engine_named(said.engine or "sglang").name
        version = said.engine_version or engine_named(engine).newest
        if said.engine is None or said.engine_version is None:
            notes.append(f"engine {engine} {version}, assumed; --engine and --engine-version say")
        known = Known(engine=engine, version=version)
        stated = Stated(
            model=said.model,
            gpu=said.gpu,
            tp=said.tp,
            link=said.link,
            quantisation=said.quantisation,
            draft=said.draft,
            algorithm=said.algorithm,
        )
        setup = build_setup(known, stated, (), drafts=True)
        notes += known.notes
    if said.accept_length is None:
        notes.append("accept length is the prior of such drafters; --assume-accept-length says")
    name = said.setup or f"{said.model} on {setup.hardware.gpu_count}x {said.gpu}"
    profile = uncalibrated_profile(setup, name, said.accept_length, setting)
    return profile, tuple(notes)
