"""What commands about a server share: ``--set`` and the profile or scenario it changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli.options import complete_profile

if TYPE_CHECKING:
    from specsim.scenario import Applied
    from specsim.setting import SpecSetting
    from specsim.workload import Workload

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME|FILE",
        help="Shipped profile, profile.toml or scenario.toml.",
        autocompletion=complete_profile,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="What if: allreduce.latency=*0.5, gpu=h200-sxm, accept_length=2.4, ... Repeatable.",
    ),
]
MeasuredOption = Annotated[
    str | None,
    typer.Option(
        "--observations",
        metavar="FILE",
        help="observations.csv that the profile was fitted to: which settings were measured.",
    ),
]
MixOption = Annotated[
    str | None,
    typer.Option("--mix", metavar="1:0.5,30:0.5", help="Share of the time by load."),
]


def load_server(profile: str | None, overrides: list[str] | None) -> Applied:
    """Load the profile or scenario and apply the overrides."""
    from specsim.scenario import load_server as load

    return load(profile, overrides or ())


def parse_mix(text: str | None) -> tuple[tuple[int, float], ...]:
    """Read ``1:0.5,30:0.5``; nothing for None.

    Raises
    ------
    InputError
        If a part is not LOAD:SHARE.

    Examples
    --------
    >>> parse_mix("1:0.5, 30:2")
    ((1, 0.5), (30, 2.0))
    """
    from specsim.errors import InputError

    parts = []
    for word in re.split(r"[\s,]+", (text or "").strip(" ,")):
        if not word:
            continue
        match = re.fullmatch(r"([0-9]{1,7}):([0-9]*\.?[0-9]+)", word)
        if match is None:
            raise InputError(f"mix {word}", "is not LOAD:SHARE", "write e.g. --mix 1:0.5,30:0.5")
        parts.append((int(match[1]), float(match[2])))
    return tuple(parts)


def measured_settings(observations: str | None) -> tuple[SpecSetting, ...]:
    """Return the settings of a file of observations, each once; nothing for None."""
    from specsim.observations import read_observations

    if observations is None:
        return ()
    rows = read_observations(observations).rows
    return tuple(dict.fromkeys(row.setting for row in rows if row.setting.speculates))


def asked_workload(
    base: Workload, input_len: float | None, output_len: float | None
) -> Workload | None:
    """Return the requests with other lengths; None if none are asked for."""
    from dataclasses import replace

    from specsim.workload import Lengths

    if input_len is None and output_len is None:
        return None
    both = input_len is not None and output_len is not None
    lengths_in = base.input_len if input_len is None else Lengths(input_len, base.input_len.cv)
    lengths_out = base.output_len if output_len is None else Lengths(output_len, base.output_len.cv)
    same = lengths_in.mean == base.input_len.mean
    return replace(
        base,
        input_len=lengths_in,
        output_len=lengths_out,
        input_cached=base.input_cached if same else 0.0,
        evidence="measured" if both else base.evidence,
    )
