"""What vLLM says at start-up: version, configuration, memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specsim.logs.settings import (
    NO_SPECULATION,
    algorithm_name,
    chain_settings,
)

_VERSION = re.compile(
    rb"(?:vLLM API server version |LLM engine \(v|vLLM version |vllm==)v?"
    rb"(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?[\w.+]{0,40})"
)
_CONFIG = re.compile(
    rb"(?<=[ (])(model|quantization|kv_cache_dtype|max_seq_len|tensor_parallel_size|enforce_eager"
    rb"|data_parallel_size|pipeline_parallel_size)=('[^'\n]{0,512}'|None|True|False|\d{1,12}"
    rb"|[a-z0-9_]{1,32})(?=[,) ])"
)
_SPECULATION = re.compile(rb"speculative_config=(None|SpeculativeConfig\(([^)\n]{0,1024})\))")
_METHOD = re.compile(rb"['\"]?method['\"]?[=:] ?['\"](\w{1,32})['\"]")
_TOKENS = re.compile(rb"['\"]?num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d{1,3})(?=\D)")
_DRAFT = re.compile(rb"['\"]?model['\"]?[=:] ?['\"]([^'\"\n]{1,256})['\"]")
_ARGS = re.compile(rb"non-default args: (\{[^\n]{0,16384}\})")
_ARG_SPECULATION = re.compile(rb"'speculative_config': (\{[^{}\n]{0,2048}\})")
_SEQS = re.compile(rb"['\"]?max_num_seqs['\"]?[=:] ?(\d{1,7})(?=\D)")
_CHUNK = re.compile(rb"['\"]?max_num_batched_tokens['\"]?[=:] ?(\d{1,7})(?=\D)")
_MEMORY = re.compile(rb"['\"]?gpu_memory_utilization['\"]?[=:] ?(0\.\d{1,6})(?=\D)")
_KV = re.compile(rb"KV cache size: ([\d,]{1,16}) tokens")

ANY_FACT = re.compile(
    rb"vLLM |LLM engine|non-default args|KV cache size|max_num_batched_tokens"
    rb"|synchronous scheduling|preempted|vllm=="
)

_NAMES = {
    b"model": "model",
    b"quantization": "quantisation",
    b"kv_cache_dtype": "kv_dtype",
    b"max_seq_len": "context_len",
    b"tensor_parallel_size": "tp",
    b"data_parallel_size": "dp",
    b"pipeline_parallel_size": "pp",
    b"enforce_eager": "disable_cuda_graph",
}


@dataclass(slots=True)
class Facts:
    """Facts of one server.

    Attributes
    ----------
    settings
        Named as in setup.toml and SpecSetting.
    version
        As printed.
    preemptions
        Requests whose KV was dropped.
    started
        Whether a start-up was seen.
    understood
        Lines that were understood.
    """

    settings: dict[str, object] = field(default_factory=dict)
    version: str | None = None
    preemptions: int = 0
    started: bool = False
    understood: int = 0

    def learn(self, line: bytes) -> None:
        """Take in one line."""
        before = (dict(self.settings), self.version, self.preemptions)
        version = _VERSION.search(line)
        if version:
            self.version, self.started = version[1].decode().rstrip("."), True
        if b"with config: " in line:
            self._config(line)
        self._arguments(line)
        kv = _KV.search(line)
        if kv:
            self.settings["kv_tokens"] = int(kv[1].replace(b",", b"") or b"0")
        if b"synchronous scheduling is enabled" in line:
            self.settings["scheduler"] = "overlap"
        elif b"synchronous scheduling is disabled" in line:
            self.settings["scheduler"] = "sequential"
        self.preemptions += b" is preempted by " in line
        self.understood += (self.settings, self.version, self.preemptions) != before

    def _config(self, line: bytes) -> None:
        self.started = True
        for name, value in _CONFIG.findall(line):
            known = _literal(value)
            if known is not None and _NAMES[name] not in self.settings:
                self.settings[_NAMES[name]] = known
        speculation = _SPECULATION.search(line)
        if speculation and speculation[1] == b"None":
            self.settings.update(NO_SPECULATION)
        elif speculation:
            self._speculation(speculation[2])

    def _arguments(self, line: bytes) -> None:
        arguments = _ARGS.search(line)
        chunk = _CHUNK.search(line)
        if chunk:
            self.settings["chunked_prefill_size"] = int(chunk[1])
        if arguments is None:
            return
        seqs, memory = _SEQS.search(arguments[1]), _MEMORY.search(arguments[1])
        if seqs:
            self.settings["max_running_requests"] = int(seqs[1])
        if memory:
            self.settings["mem_fraction_static"] = float(memory[1])
        speculation = _ARG_SPECULATION.search(arguments[1])
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


def _literal(value: bytes) -> object:
    if value in (b"None", b"True", b"False"):
        return {b"None": None, b"True": True, b"False": False}[value]
    if value.isdigit():
        return int(value)
    return value.strip(b"'").decode("utf-8", "replace")
