"""A server by its launch command: from the words of a command, or a file that holds them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specsim.architecture import load_model
from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.options import AnyServer, filled
from specsim.engine import engine_named
from specsim.engine.command import Launch, parse_command
from specsim.errors import InputError, SpecsimError
from specsim.server import Setup
from specsim.textfile import read_text, shown

MOST_PATH = 1000
"""A longer text is no file's name."""


def launched(server: AnyServer, command: str) -> tuple[AnyServer, Setup, list[str]]:
    """Build the setup that a launch command describes; options say what it does not."""
    launch = read_launch(command)
    engine = server.engine or launch.engine
    version = server.engine_version or launch.version
    known = Known(dict(launch.settings), engine, version, list(launch.notes))
    if version is None:
        known.version = engine_named(engine).newest
        known.notes.append(f"{engine} {known.version} assumed; --engine-version says")
    name = known.settings.get("model")
    if server.model is None and isinstance(name, str) and _is_known(name):
        server = replace(server, model=name)
    speculates = known.settings.get("algorithm") not in (None, "none")
    setup = build_setup(known, filled(Stated, server), (), drafts=speculates)
    return replace(server, model=server.model or setup.model.id), setup, known.notes


def _is_known(name: str) -> bool:
    try:
        return bool(load_model(name).id)
    except SpecsimError:
        return False


def read_launch(command: str) -> Launch:
    """Return what a launch command says, or the file that holds it; files it names lie beside it.

    Raises
    ------
    InputError
        If it launches no engine that specsim knows.
    """
    file = Path(command) if "\n" not in command and len(command) < MOST_PATH else None
    written = file is not None and file.is_file()
    folder = file.parent if file is not None and written else Path()

    def beside(name: str) -> str | None:
        path = folder / name
        return read_text(path, "options of an engine") if path.is_file() else None

    launch = parse_command(read_text(command, "a launch command") if written else command, beside)
    if launch is None:
        raise InputError(
            f"--command {shown(command)}",
            "launches no engine that specsim knows",
            "give the command of an SGLang, vLLM, TensorRT-LLM or llama.cpp server",
        )
    return launch
