"""``specsim doctor``: what is installed here, and what could be."""

from __future__ import annotations

from typing import Annotated

import typer

NEEDED = (
    "numpy", "scipy", "pandas", "simpy", "matplotlib", "jinja2", "packaging",
    "pydantic", "rich", "typer", "tomlkit",
)  # fmt: skip

EXTRAS = {
    "zstandard": "logs compressed as .zst: pip install 'specsim-llm[zstd]'",
    "pyarrow": "sweeps to .parquet: pip install pyarrow",
    "dask": "sweeps over many workers: pip install 'specsim-llm[dask]'",
    "torch": "measuring this machine's GPU: pip install 'specsim-llm[probe]'",
    "nbmake": "running the notebooks as tests: pip install 'specsim-llm[dev]'",
}
"""Optional packages, and what each is for."""

NAMESAKE = "specsim"
"""A distribution of another field that fills the same folder; ours is specsim-llm."""


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.doctor/1 only.")] = False,
) -> None:
    """Say which versions, profiles and optional extras are here; exit code 1 if something lacks.

    Example: specsim doctor
    """
    import json
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    from specsim import __version__
    from specsim.errors import SpecsimError
    from specsim.profile import load_profile, profile_names

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    profiles: dict[str, str] = {}
    for name in profile_names():
        try:
            loaded = load_profile(name)
            profiles[name] = f"{loaded.fit.observations} cells, evidence {loaded.evidence}"
        except SpecsimError as error:
            profiles[name] = f"unusable: {error}"
    found: dict[str, object] = {
        "schema": "specsim.doctor/1",
        "specsim": __version__,
        "python": platform.python_version(),
        "needed": {name: installed(name) for name in NEEDED},
        "extras": {name: installed(name) for name in EXTRAS},
        "profiles": profiles,
    }
    if installed(NAMESAKE) is not None:
        found["warnings"] = [
            f"another distribution named {NAMESAKE} is installed beside specsim-llm, in the same "
            "folder: pip uninstall specsim specsim-llm, then pip install specsim-llm"
        ]
    lacking = [name for name in NEEDED if installed(name) is None]
    broken = [name for name, state in profiles.items() if state.startswith("unusable")]
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _show(found)
    if lacking or broken:
        raise typer.Exit(1)


def _show(found: dict[str, object]) -> None:
    """Print versions, extras and profiles."""
    from specsim.cli.console import console, table

    out = console(piped_width=100)
    out.print(f"specsim {found['specsim']}, Python {found['python']}", style="bold")
    needed, extras, profiles = found["needed"], found["extras"], found["profiles"]
    assert isinstance(needed, dict)
    assert isinstance(extras, dict)
    assert isinstance(profiles, dict)
    grid = table("package", "version", "")
    for name, has in needed.items():
        grid.add_row(name, has or "missing", "" if has else "reinstall specsim")
    for name, has in extras.items():
        grid.add_row(name, has or "-", "optional" if has else f"optional; {EXTRAS[name]}")
    out.print(grid)
    out.print("Shipped profiles (a file works wherever a name does):")
    for name, state in profiles.items():
        out.print(f"- {name}: {state}")
    warnings = found.get("warnings", [])
    assert isinstance(warnings, list)
    for warning in warnings:
        out.print(f"warning: {warning}")
