"""What vLLM says at start-up: version, configuration, memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.settings import NO_SPECULATION, literal, printed_dict, stated

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
_VERSION = re.compile(
    rb"(?:vLLM API server version |LLM engine \(v|vLLM version |vllm==)v?"
    rb"(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?[\w.+]{0,40})"
)
_CONFIG_SPECULATION = re.compile(
    rb"speculative_config=(None|SpeculativeConfig\(([^)\n]{0,1024})\))"
)
_ARGS = re.compile(rb"non-default args: (\{[^\n]{0,16384}\})")
_METHOD = re.compile(rb"['\"]?method['\"]?[=:] ?['\"](\w{1,32})['\"]")
_TOKENS = re.compile(rb"['\"]?num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d{1,3})(?=\D)")
_DRAFT = re.compile(rb"['\"]?model['\"]?[=:] ?['\"]([^'\"\n]{1,256})['\"]")

STATED = (
    re.compile(rb"max_num_batched_tokens['\"]?[=:] ?(?P<chunked_prefill_size>\d{1,7})(?=\D)"),
    re.compile(rb"KV cache size: (?P<kv_tokens>\d[\d,]{0,15}) tokens"),
)
ANY_FACT = re.compile(
    rb"vLLM |LLM engine|non-default args|KV cache size|max_num_batched_tokens"
    rb"|synchronous scheduling|preempted|vllm=="
)
"""Cheap test before :meth:`Facts.learn`."""


@dataclass(slots=True)
class Facts:
    """Facts of one server."""

    settings: dict[str, object] = field(default_factory=dict)  # as in setup.toml and SpecSetting
    said: dict[str, object] = field(default_factory=dict)  # by arguments, as ``flags.csv`` has them
    version: str | None = None
    started: bool = False  # a start-up was seen: the first window after it is a ramp
    preemptions: int = 0  # requests whose KV was dropped

    def learn(self, line: bytes) -> None:
        """Take in one line."""
        version = _VERSION.search(line)
        if version:
            self.version, self.started = version[1].decode().rstrip("."), True
        if b"with config: " in line:
            self._config(line)
        for pattern in STATED:
            self.settings.update(stated(pattern.search(line)))
        arguments = _ARGS.search(line)
        if arguments:
            self._arguments(arguments[1])
        if b"synchronous scheduling is enabled" in line:
            self.settings["scheduler"] = "overlap"
        elif b"synchronous scheduling is disabled" in line:
            self.settings["scheduler"] = "sequential"
        self.preemptions += b" is preempted by " in line

    def _config(self, line: bytes) -> None:
        self.started = True
        said: dict[str, object] = {n.decode(): literal(v) for n, v in _VALUE.findall(line)}
        graphs = _GRAPHS.search(line)
        if graphs:
            said["compilation_config"] = {"max_cudagraph_capture_size": int(graphs[1])}
        speculation = _CONFIG_SPECULATION.search(line)
        if speculation and speculation[1] == b"None":
            self.settings.update(NO_SPECULATION)
        elif speculation:
            said["speculative_config"] = _speculation(speculation[2])
        self._take(said)

    def _arguments(self, arguments: bytes) -> None:
        said = printed_dict(arguments)
        if said is None:  # damaged: what can be read
            said = {"speculative_config": _speculation(arguments)}
        if "model_tag" in said:
            said.setdefault("model", said["model_tag"])
        self._take(said)

    def _take(self, said: Mapping[str, object]) -> None:
        """Take in arguments; of a fact that is told twice the first counts."""
        fields = {name: value for name, value in said.items() if not str(name).startswith("-")}
        self.said = {**said_by("vllm", fields)[0], **self.said}
        for name, value in engine_named("vllm").settings(self.said).items():
            self.settings[name] = value


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
