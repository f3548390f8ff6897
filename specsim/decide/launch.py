"""Launch lines that start: the whole command of a plan, as its engine's release takes it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote

from specsim.architecture.loading import load_model, without_quantisation
from specsim.decide import Planned
from specsim.engine import EngineSpec, RunPlan, engine_named
from specsim.engine.flags import GGUF_REPOSITORY, flags_for
from specsim.library import repository
from specsim.profile import Profile, main_algorithm
from specsim.question import Question
from specsim.server import ModelSpec

SHARED = (
    *("mem_fraction_static", "attention_backend", "chunked_prefill_size", "kv_dtype"),
    "disable_custom_all_reduce",
)
"""Settings that the line takes over from the server, besides those of speculation and caps."""

MODEL, DRAFTER = "@MODEL@", "@DRAFTER@"
"""What stands for a path that is not known: $MODEL and $DRAFTER in the shell's line."""

OWN_DRAFT = ("none", "MTP", "NGRAM", "SUFFIX")  # algorithms without a model of their own to load


@dataclass(frozen=True, slots=True)
class Launch(Planned):
    """What to type for one plan; `flags` is empty where a file sets the engine."""

    flags: tuple[str, ...]  # of the speculation, the scheduler and the caps alone
    env: dict[str, str]
    command: str  # all of it, for a shell
    files: dict[str, str]  # that the command names: name and content
    missing: tuple[str, ...]  # variables of the shell that stand for paths: MODEL, DRAFTER


def launches_of(
    profile: Profile, plans: Sequence[RunPlan], question: Question
) -> tuple[Launch, ...]:
    """Return what to type for every plan that the engine runs, once each; what-ifs are left out.

    The question's cap stands instead of the server's; where it has no path of a model, that is a
    name that is known for the library's model, or a variable of the shell.
    """
    engine, draft_model = profile.system().engine, question.draft_model
    if question.max_running_requests is not None:
        engine = replace(engine, max_running_requests=question.max_running_requests)
    draft = profile.setup.draft
    model, online = _told(profile.setup.model, engine, question.model_path)
    result = []
    for plan in dict.fromkeys(plan for plan in plans if plan.allowed):
        spec = replace(engine, version=plan.version)
        rules = engine_named(plan.engine)
        loaded = plan.setting.algorithm not in OWN_DRAFT
        same = draft is not None and plan.setting.algorithm == main_algorithm(profile.setup)
        told = draft_model or (draft.path if draft and same else None)
        drafter = told or DRAFTER if loaded else None
        flags = partial(flags_for, spec.name, spec.version)
        named = [model] if rules.model_first else flags({"model": model})
        words = [*rules.program, *named, *online]
        own = rules.launch_flags(plan, spec, drafter)
        most = flags({"max_running_requests": spec.max_running_requests})
        words += [*_server(profile, spec), *own, *(most if not set(most[:1]) & set(own) else [])]
        files = rules.launch_files(plan, drafter)
        words += [word for name in files for word in (rules.launch_file_flag, name)]
        env = dict(sorted(rules.launch_env(plan).items()))
        said = " ".join([*words, *files.values()])
        missing = tuple(name.strip("@") for name in (MODEL, DRAFTER) if name in said)
        files = {name: text.replace(DRAFTER, '"$DRAFTER"') for name, text in files.items()}
        shown = tuple(rules.launch_flags(plan, spec, told))
        result.append(Launch(plan, shown, env, _shell(env, words), files, missing))
    return tuple(result)


def _told(named: ModelSpec, engine: EngineSpec, asked: str | None) -> tuple[str, list[str]]:
    """Return what the engine is told of the model, and the flags to quantise it when it is loaded.

    The path that is asked for or known, or the library's repository where its weights are as
    published: of others only the engines' own fp8 needs no file.
    """
    if asked is not None:
        return asked, []
    folder, file = os.path.split(named.config or "")
    own = repository("models", named.id or "") or (folder if file == "config.json" else "")
    path = named.path or own
    published = load_model(named.config or named.id or "").native_quantisation
    same = without_quantisation(path)[1] or named.quantisation in (published, "native", None)
    scheme = "" if same else named.quantisation
    if engine.name == "llama.cpp":
        known = path.endswith(".gguf") or GGUF_REPOSITORY.fullmatch(path)
        return (path if known else MODEL), []
    if scheme == "fp8" and engine.name in ("sglang", "vllm"):
        return path or MODEL, flags_for(engine.name, engine.version, {"quantisation": scheme})
    return (path if named.path or not scheme else "") or MODEL, []


def _server(profile: Profile, spec: EngineSpec) -> list[str]:
    """Return the flags of parallelism, memory and kernels, where they are not the default."""
    said: dict[str, object] = {name: getattr(spec, name, None) for name in SHARED}
    if spec.kv_dtype in ("bf16", "auto"):
        said["kv_dtype"] = None
    elif spec.kv_dtype == "fp8" and spec.name == "sglang":
        said["kv_dtype"] = "fp8_e4m3"
    if spec.name == "llama.cpp":  # by itself it takes the longest context of the model
        said["context_tokens"] = spec.kv_tokens
    if profile.setup.hardware.allreduce == "nccl" and spec.tp > 1:
        said["disable_custom_all_reduce"] = True
    sizes = {"tp": spec.tp, "dp_size": spec.dp, "ep": spec.ep, "page_size": spec.page_size}
    said = {name: size if size > 1 else None for name, size in sizes.items()} | said
    if spec.dp > 1 and spec.name == "sglang":
        said["enable_dp_attention"] = True
    return flags_for(spec.name, spec.version, said)


def _shell(env: dict[str, str], words: Sequence[str]) -> str:
    """Write a command for a shell, an option on each line."""
    parts = [f"{name}={quote(value)}" for name, value in env.items()]
    lines = [""]
    for part in [*parts, *map(_quoted, words)]:
        if part.startswith("--") and lines[-1]:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + part
    return " \\\n    ".join(lines)


def _quoted(word: str) -> str:
    """Quote a word; paths that are not known become variables of the shell."""
    text = quote(word)
    for mark in (MODEL, DRAFTER):
        variable = f'"${mark.strip("@")}"'
        text = variable if text == mark else text.replace(mark, f"'{variable}'")
    return text
