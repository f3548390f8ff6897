"""vLLM's arguments and configuration, as it logs them."""

import re
from collections.abc import Mapping

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.facts import Facts
from specsim.logs.settings import NO_SPECULATION, literal, printed_dict

CONFIG = (
    *("model", "quantization", "kv_cache_dtype", "max_seq_len", "enforce_eager"),
    *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size"),
    "decode_context_parallel_size",
)
"""Parts of the configuration that matter here, as ``flags.csv`` knows them."""

_VALUE = re.compile(
    rb"(?<=[ (])(%s)=('[^'\n]{0,512}'|None|True|False|\d{1,12}|[a-z0-9_]{1,32})(?=[,) ])"
    % b"|".join(name.encode() for name in CONFIG)
)
_GRAPHS = re.compile(rb"['\"]?max_cudagraph_capture_size['\"]?[=:] ?(\d{1,6})(?=\D)")
_CONFIG_SPECULATION = re.compile(
    rb"speculative_config=(None|SpeculativeConfig\(([^)\n]{0,1024})\))"
)
_ARGS = re.compile(rb"non-default args: (\{[^\n]{0,16384}\})")
_METHOD = re.compile(rb"['\"]?method['\"]?[=:] ?['\"](\w{1,32})['\"]")
_TOKENS = re.compile(rb"['\"]?num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d{1,3})(?=\D)")
_DRAFT = re.compile(rb"['\"]?model['\"]?[=:] ?['\"]([^'\"\n]{1,256})['\"]")


def learn(facts: Facts, line: bytes) -> None:
    """Take in a line that states a fact; of an argument that is told twice the first counts."""
    facts.learn(line)
    if b"with config: " in line:
        _take(facts, _config(facts, line))
    if arguments := _ARGS.search(line):
        said = printed_dict(arguments[1])
        if said is None:  # damaged: what can be read
            said = {"speculative_config": _speculation(arguments[1])}
        if "model_tag" in said:
            said.setdefault("model", said["model_tag"])
        _take(facts, said)


def _config(facts: Facts, line: bytes) -> dict[str, object]:
    """Return the arguments that an engine's configuration tells."""
    said: dict[str, object] = {n.decode(): literal(v) for n, v in _VALUE.findall(line)}
    if graphs := _GRAPHS.search(line):
        said["compilation_config"] = {"max_cudagraph_capture_size": int(graphs[1])}
    speculation = _CONFIG_SPECULATION.search(line)
    if speculation and speculation[1] == b"None":
        facts.settings.update(NO_SPECULATION)
    elif speculation:
        said["speculative_config"] = _speculation(speculation[2])
    return said


def _take(facts: Facts, said: Mapping[str, object]) -> None:
    fields = {name: value for name, value in said.items() if not str(name).startswith("-")}
    facts.said = {**said_by("vllm", fields)[0], **facts.said}
    facts.settings.update(engine_named("vllm").settings(facts.said))


def _speculation(text: bytes) -> dict[str, object]:
    """Return what a speculative configuration says, as the engine prints it."""
    method, tokens, draft = _METHOD.search(text), _TOKENS.search(text + b" "), _DRAFT.search(text)
    found: dict[str, object] = {}
    if method:
        found["method"] = method[1].decode()
    if draft and found:
        found["model"] = draft[1].decode("utf-8", "replace")
    if tokens:
        found["num_speculative_tokens"] = int(tokens[1])
    return found
