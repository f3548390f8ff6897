"""A server that nobody has measured: from options or its launch command to a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specsim.architecture import load_model
from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli import options as opt
from specsim.cli import output
from specsim.engine import engine_named
from specsim.engine.command import Launch, parse_command
from specsim.errors import InputError, SpecsimError, UnknownNameError
from specsim.profile import main_algorithm
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.server import Setup, read_setup
from specsim.server.system import assemble
from specsim.setting import SpecSetting, parse_algorithm
from specsim.textfile import read_text, shown

MOST_PATH = 1000  # a longer text is no file's name
SPLITS = (1, 2, 4, 8, 16)  # tensor-parallel sizes that are tried where none is said


def uncalibrated(server: opt.AnyServer, asked: opt.Asked | None) -> opt.Loaded:
    """Build the profile from the library, and say what was assumed."""
    notes = ["nothing was measured on this server: library physics with wide errors"]
    if server.setup is not None:
        kept = ("setup", "overrides", "accept_length", "engine_version")
        opt.refuse_given("is said by --setup", "change it with --set, or there", server, but=kept)
        setup = read_setup(server.setup)
    elif server.launch is not None:
        server, setup, more = launched(server, server.launch)
        notes += more
    else:
        engine = engine_named(server.engine or "sglang")
        version = server.engine_version or engine.newest
        if server.engine is None or server.engine_version is None:
            assumed = f"engine {engine.name} {version}, assumed"
            notes.append(f"{assumed}; --engine and --engine-version say")
        algorithm = None if asked is None else asked.algorithm
        stated = opt.filled(Stated, server, algorithm=algorithm)
        setup, more = _built(stated, Known(engine=engine.name, version=version))
        notes += more
    if server.accept_length is None:
        notes.append("accept length is the prior of such drafters; --assume-accept-length says")
    name = server.setup or f"{server.model} on {setup.hardware.gpu_count}x {server.gpu}"
    found = () if asked is None else asked.settings(main_algorithm(setup))[0]
    setting = found[0] if len(found) == 1 and found[0].speculates else None
    return uncalibrated_profile(setup, name, server.accept_length, setting), tuple(notes)


def _built(stated: Stated, known: Known) -> tuple[Setup, list[str]]:
    """Build the setup, on the fewest GPUs that hold the model and a request if --tp is not said."""
    if stated.tp is not None or stated.model is None or stated.gpu is None:
        return build_setup(known, stated, (), drafts=True), known.notes
    sizes = [tp for tp in SPLITS if tp <= (stated.gpu_count or SPLITS[-1])]
    reason = ""
    for tp in sizes:
        tried = replace(known, settings={}, notes=[])
        setup = build_setup(tried, replace(stated, tp=tp), (), drafts=True)
        try:
            system, work = assemble(setup), setup.workload
            drafting = SpecSetting.of(1, 1, algorithm=parse_algorithm(stated.algorithm or "EAGLE3"))
            pool = system.kv_pool_tokens(system.plan(drafting, what_if=True))
        except UnknownNameError:
            raise
        except InputError as error:  # too large, or not to be split so
            reason = f" ({error.value}: {error.reason})"
            continue
        if pool >= work.input_len.mean + work.output_len.mean:
            fits = f"tp {tp}: the fewest {stated.gpu} that hold {stated.model} and a drafter"
            return setup, [*tried.notes, f"{fits}; --tp says"]
    why = f"does not fit on up to {sizes[-1]} x {stated.gpu}{reason}"
    remedy = "give more GPUs with --tp, or a smaller --quantisation"
    raise InputError(f"--model {stated.model}", why, remedy)


def launched(server: opt.AnyServer, command: str) -> tuple[opt.AnyServer, Setup, list[str]]:
    """Build the setup that a launch command describes; options say what it does not."""
    launch = read_launch(command)
    output.remark(
        note
        for note in launch.notes
        if note.startswith(("not understood", "not modelled", "not found"))
    )
    engine = server.engine or launch.engine
    version = server.engine_version or launch.version
    known = Known(dict(launch.settings), engine, version, list(launch.notes))
    if version is None:
        known.version = engine_named(engine).newest
        known.notes.append(f"{engine} {known.version} assumed; --engine-version says")
    name = known.settings.get("model")
    if server.model is None and isinstance(name, str) and _is_known(name):
        server = replace(server, model=name)
    setup = build_setup(known, opt.filled(Stated, server), (), drafts=True)
    return replace(server, model=server.model or setup.model.id), setup, known.notes


def _is_known(name: str) -> bool:
    try:
        return bool(load_model(name).id)
    except SpecsimError:
        return False


def read_launch(command: str) -> Launch:
    """Return what a launch command, or its file, says; files that it names lie beside it."""
    file = Path(command) if "\n" not in command and len(command) < MOST_PATH else None
    written = file is not None and file.is_file()
    folder = file.parent if file is not None and written else Path()

    def beside(name: str) -> str | None:
        path = folder / name
        return read_text(path, "options of an engine") if path.is_file() else None

    launch = parse_command(read_text(command, "a launch command") if written else command, beside)
    if launch is None:
        why = "launches no engine that specsim knows"
        if not written and len(command.split()) == 1:
            why = "is no file that is there, and no launch command"
        remedy = "give the command of an SGLang, vLLM, TensorRT-LLM or llama.cpp server"
        raise InputError(f"--command {shown(command)}", why, remedy)
    return launch
