"""What vLLM says at start-up: version, configuration, memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specsim.logs.settings import (
    NO_SPECULATION,
    algorithm_name,
    chain_settings,
    literal,
    stated,
)

CONFIG = {
    b"model": "model",
    b"quantization": "quantisation",
    b"kv_cache_dtype": "kv_dtype",
    b"max_seq_len": "context_len",
    b"tensor_parallel_size": "tp",
    b"data_parallel_size": "dp",
    b"pipeline_parallel_size": "pp",
    b"enforce_eager": "disable_cuda_graph",
}
"""Parts of the configuration that matter here, and what they are called in `settings`."""

_VALUE = re.compile(
    rb"(?<=[ (])(%s)=('[^'\n]{0,512}'|None|True|False|\d{1,12}|[a-z0-9_]{1,32})(?=[,) ])"
    % b"|".join(CONFIG)
)
_VERSION = re.compile(
    rb"(?:vLLM API server version |LLM engine \(v|vLLM version |vllm==)v?"
    rb"(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?[\w.+]{0,40})"
)
_CONFIG_SPECULATION = re.compile(
    rb"speculative_config=(None|SpeculativeConfig\(([^)\n]{0,1024})\))"
)
_ARGS = re.compile(rb"non-default args: (\{[^\n]{0,16384}\})")
_ARGS_SPECULATION = re.compile(rb"'speculative_config': (\{[^{}\n]{0,2048}\})")
_METHOD = re.compile(rb"['\"]?method['\"]?[=:] ?['\"](\w{1,32})['\"]")
_TOKENS = re.compile(rb"['\"]?num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d{1,3})(?=\D)")
_DRAFT = re.compile(rb"['\"]?model['\"]?[=:] ?['\"]([^'\"\n]{1,256})['\"]")

STATED = (
    re.compile(rb"max_num_batched_tokens['\"]?[=:] ?(?P<chunked_prefill_size>\d{1,7})(?=\D)"),
    re.compile(rb"KV cache size: (?P<kv_tokens>\d[\d,]{0,15}) tokens"),
)
STATED_IN_ARGS = (
    re.compile(rb"max_num_seqs['\"]?[=:] ?(?P<max_running_requests>\d{1,7})(?=\D)"),
    re.compile(rb"gpu_memory_utilization['\"]?[=:] ?(?P<mem_fraction_static>0\.\d{1,6})(?=\D)"),
)
"""What states settings in a line and in the launch arguments: each named group is one."""

ANY_FACT = re.compile(
    rb"vLLM |LLM engine|non-default args|KV cache size|max_num_batched_tokens"
    rb"|synchronous scheduling|preempted|vllm=="
)
"""Cheap test before :meth:`Facts.learn`."""


@dataclass(slots=True)
class Facts:
    """Facts of one server."""

    settings: dict[str, object] = field(default_factory=dict)  # as in setup.toml and SpecSetting
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
        for name, value in _VALUE.findall(line):
            known = literal(value)
            if known is not None:
                self.settings.setdefault(CONFIG[name], known)
        speculation = _CONFIG_SPECULATION.search(line)
        if speculation and speculation[1] == b"None":
            self.settings.update(NO_SPECULATION)
        elif speculation:
            self._speculation(speculation[2])

    def _arguments(self, arguments: bytes) -> None:
        for pattern in STATED_IN_ARGS:
            self.settings.update(stated(pattern.search(arguments)))
        speculation = _ARGS_SPECULATION.search(arguments)
        if speculation:
            self._speculation(speculation[1])

    def _speculation(self, text: bytes) -> None:
        method, tokens, draft = (
            _METHOD.search(text),
            _TOKENS.search(text + b" "),
            _DRAFT.search(text),
        )
        if method:
            name = method[1].decode()
            self.settings["algorithm"] = "MTP" if name.endswith("mtp") else algorithm_name(name)
        if draft:
            self.settings["draft"] = draft[1].decode("utf-8", "replace")
        if tokens:
            self.settings.update(chain_settings(int(tokens[1])))
