"""``specsim doctor``: what is installed here, and what could be."""

import platform
from dataclasses import dataclass
from importlib import metadata

import click

from specsim.cli import output
from specsim.cli.options import command

NEEDED = (
    "numpy", "pandas", "simpy", "matplotlib", "jinja2", "packaging", "pydantic", "rich",
    "click", "tomlkit",
)  # fmt: skip

EXTRAS = {
    "zstandard": "logs compressed as .zst: pip install 'specsim-llm[zstd]'",
    "pyarrow": "sweeps to .parquet: pip install pyarrow",
    "dask": "sweeps over many workers: pip install 'specsim-llm[dask]'",
    "uvicorn": "the report in the browser: pip install 'specsim-llm[web]'",
    "torch": "measuring this machine's GPU: pip install 'specsim-llm[probe]'",
    "nbmake": "running the notebooks as tests: pip install 'specsim-llm[dev]'",
}
"""Optional packages, and what each is for."""

REINSTALL = "reinstall specsim-llm"

NAMESAKE = "specsim"
"""A distribution of another field that fills the same folder; ours is specsim-llm."""

WARNING = (
    f"another distribution named {NAMESAKE} is installed beside specsim-llm, in the same folder: "
    "pip uninstall specsim specsim-llm, then pip install specsim-llm"
)


@dataclass(frozen=True)
class Options:
    """In which form to say it."""

    as_json: bool


@command("doctor", Options)
def doctor_command(how: Options) -> None:
    """Say which versions, profiles and optional extras are here; exit code 1 if something lacks.

    Example: specsim doctor
    """
    from specsim import __version__

    python = platform.python_version()
    needed = {name: _installed(name) for name in NEEDED}
    extras = {name: _installed(name) for name in EXTRAS}
    profiles = _profiles()
    warnings = [WARNING] if _installed(NAMESAKE) is not None else []
    if how.as_json:
        found = {"specsim": __version__, "python": python, "needed": needed, "extras": extras}
        found |= {"profiles": profiles} | ({"warnings": warnings} if warnings else {})
        output.print_document("specsim.doctor/1", found)
    else:
        out = output.titled(f"specsim {__version__}, Python {python}", 100)
        rows = [
            *((name, has or "missing", "" if has else REINSTALL) for name, has in needed.items()),
            *(
                (name, has or "-", f"optional{'' if has else '; ' + EXTRAS[name]}")
                for name, has in extras.items()
            ),
        ]
        out.print(output.table(output.headed("package", "version", ""), rows, (0, 2), wrap=True))
        out.print("Shipped profiles (a file works wherever a name does):")
        for name, state in profiles.items():
            out.print(f"- {name}: {state}")
        for warning in warnings:
            out.print(f"warning: {warning}")
    if None in needed.values() or any(state.startswith("unusable") for state in profiles.values()):
        click.get_current_context().exit(1)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _profiles() -> dict[str, str]:
    """Return what each shipped profile rests on, or why it cannot be used."""
    from specsim.errors import SpecsimError
    from specsim.profile import load_profile, profile_names

    states = {}
    for name in profile_names():
        try:
            profile = load_profile(name)
            states[name] = f"{profile.fit.observations} cells, evidence {profile.evidence}"
        except SpecsimError as error:
            states[name] = f"unusable: {error}"
    return states
