"""What SGLang says beside its batch lines: launch arguments, memory, graphs, warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.logs.settings import NO_SPECULATION, algorithm_name

SERVER_ARGS = {
    "model_path": "model",
    "quantization": "quantisation",
    "kv_cache_dtype": "kv_dtype",
    "tp_size": "tp",
    "dp_size": "dp",
    "ep_size": "ep",
    "pp_size": "pp",
    "context_length": "context_len",
    "mem_fraction_static": "mem_fraction_static",
    "max_running_requests": "max_running_requests",
    "chunked_prefill_size": "chunked_prefill_size",
    "cuda_graph_max_bs": "cuda_graph_max_bs",
    "disable_cuda_graph": "disable_cuda_graph",
    "attention_backend": "attention_backend",
    "page_size": "page_size",
    "disable_custom_all_reduce": "disable_custom_all_reduce",
    "enable_flashinfer_allreduce_fusion": "enable_flashinfer_allreduce_fusion",
    "enable_dp_attention": "enable_dp_attention",
    "disable_overlap_schedule": "disable_overlap_schedule",
    "decode_log_interval": "decode_log_interval",
    "speculative_algorithm": "algorithm",
    "speculative_draft_model_path": "draft",
    "speculative_num_steps": "num_steps",
    "speculative_eagle_topk": "topk",
    "speculative_num_draft_tokens": "num_draft_tokens",
    "speculative_adaptive": "speculative_adaptive",
}
"""Launch arguments that matter here, and what they are called in `settings`."""

_ARG = re.compile(
    rb"(?<=[(, ])([a-z_]{1,64})=('[^'\n]{0,512}'|\"[^\"\n]{0,512}\"|None|True|False"
    rb"|-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,3})?)(?=[,)])"
)
_MEMORY = re.compile(
    rb"max_total_num_tokens=(\d{1,12}), chunked_prefill_size=(-?\d{1,9}|None), "
    rb"max_prefill_tokens=\d{1,9}, max_running_requests=(\d{1,9}), (?:context_len=(\d{1,9})(?=, ))?"
)
_KV = re.compile(rb"KV Cache is allocated\. #tokens: (\d{1,12}),")
_GRAPH_SIZES = re.compile(rb"Capture cuda graph bs \[([\d, ]{1,4096})\]")
_NEW_GRAPH = re.compile(
    rb"Capture (target verify|target decode|draft decode|draft extend) CUDA graph begin\. "
    rb"backend=\w{1,32}, num_tokens_per_req=(\d{1,4}), bs=\[([\d, ]{1,4096})\]"
)
_RESET = re.compile(rb"Max running requests is reset to (\d{1,6}) for speculative decoding")
_RETRACT = re.compile(rb"#retracted_reqs: (\d{1,6})(?=,)")
_ADAPTIVE = re.compile(rb"Adaptive spec params updated: steps (\d{1,3}) -> (\d{1,3})(?=\D)")
_VERSION = re.compile(
    rb"sglang(?:==| version:? ?|=)v?(\d\.\d{1,2}\.\d{1,3}(?:\.post\d{1,2})?)(?!\w)"
)

MAX_COUNT, MAX_NUMBER = 10**6, 1e15
"""Larger ones are damage."""

ANY_FACT = re.compile(
    rb"server_args=|max_total_num_tokens=|KV Cache is allocated|Capture |Max running requests is"
    rb"|retracted_reqs|Decode out of memory|pec v[12] |Overlap scheduler is disabled|Beta spec"
    rb"|Adaptive spec params|is adjusted to speculative_num_steps|sglang(?:==| version|=v?\d)"
)
"""Cheap test before :meth:`Facts.learn`."""

OVERLAP_TEXTS = (
    b"Beta spec is enabled",
    b"Spec v2 is enabled",
)
SEQUENTIAL_TEXTS = (
    b"Overlap scheduler is disabled because of using eagle",
    b"Overlap scheduler is disabled when spec v2 is off",
    b"Spec v1 is used for",
    b"Non-overlap (synchronous) spec v2",
)


@dataclass(slots=True)
class Facts:
    """Facts of one server.

    Attributes
    ----------
    settings
        Named as in setup.toml and SpecSetting.
    retracted
        Requests whose KV was taken back; `retractions` counts the events.
    adaptive
        Changes of the draft depth while running.
    started
        Whether a start-up was seen: the first window after it is a ramp.
    understood
        Lines that were understood.
    version
        The engine's version, if a line states it.
    """

    settings: dict[str, object] = field(default_factory=dict)
    retracted: int = 0
    retractions: int = 0
    adaptive: int = 0
    started: bool = False
    understood: int = 0
    version: str | None = None

    def learn(self, line: bytes) -> bool:
        """Take in one line; return whether it said anything."""
        known = self._args(line) or self._memory(line) or self._graphs(line) or self._warnings(line)
        self.understood += known
        return known

    def _args(self, line: bytes) -> bool:
        if b"server_args=" not in line:
            found = _VERSION.search(line)
            if found:
                self.version = found[1].decode()
            return found is not None
        arguments = dict(_ARG.findall(line))
        self.settings.update(
            settings_of_args({k.decode(): _literal(v) for k, v in arguments.items()})
        )
        self.started = True
        return True

    def _memory(self, line: bytes) -> bool:
        memory, kv = _MEMORY.search(line), _KV.search(line)
        if memory:
            self.settings["kv_tokens"] = int(memory[1])
            if memory[2].isdigit():
                self.settings["chunked_prefill_size"] = int(memory[2])
            self.settings["max_running_requests"] = int(memory[3])
            if memory[4]:
                self.settings["context_len"] = int(memory[4])
        elif kv:
            self.settings.setdefault("kv_tokens", int(kv[1]))
        self.started |= bool(memory or kv)
        return bool(memory or kv)

    def _graphs(self, line: bytes) -> bool:
        old, new = _GRAPH_SIZES.search(line), _NEW_GRAPH.search(line)
        if old:
            self._captured(old[1])
        elif new:
            if new[1].startswith(b"target"):
                self._captured(new[3])
            if new[1] == b"target verify":
                self.settings.setdefault("num_draft_tokens", int(new[2]))
        elif b"uda graph begin" not in line and b"uda graph end" not in line:
            return b" CUDA graph " in line and b"Capture " in line
        return True

    def _captured(self, sizes: bytes) -> None:
        numbers = [int(n) for n in sizes.replace(b",", b" ").split() if len(n) < 7]
        if numbers:
            self.settings["cuda_graph_max_bs"] = max(numbers)

    def _warnings(self, line: bytes) -> bool:
        reset, retract, adaptive = (
            _RESET.search(line),
            _RETRACT.search(line),
            _ADAPTIVE.search(line),
        )
        if reset:
            self.settings["max_running_requests"] = int(reset[1])
            self.settings["max_running_requests_source"] = "default when speculating"
        elif retract:
            self.retractions += 1
            self.retracted += int(retract[1])
        elif adaptive:
            self.adaptive += 1
        elif any(text in line for text in OVERLAP_TEXTS):
            self.settings["scheduler"] = "overlap"
        elif any(text in line for text in SEQUENTIAL_TEXTS):
            self.settings["scheduler"] = "sequential"
        else:
            return b"is adjusted to speculative_num_steps + 1" in line
        return True


def settings_of_args(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in SGLang's launch arguments, as logged or in ``server_info``."""
    settings = {
        key: arguments[name] for name, key in SERVER_ARGS.items() if _sane(key, arguments.get(name))
    }
    if "algorithm" in settings:
        settings["algorithm"] = algorithm_name(str(settings["algorithm"]))
    elif "speculative_algorithm" in arguments:
        settings.update(NO_SPECULATION)
    if settings.pop("disable_overlap_schedule", False):
        settings["scheduler"] = "sequential"
    return settings


def _sane(key: str, value: object) -> bool:
    """Whether a value can be a setting: the counts of speculation must be counts."""
    if key in ("topk", "num_steps", "num_draft_tokens"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    if isinstance(value, int | float):
        return abs(value) <= MAX_NUMBER
    return isinstance(value, str) and (key != "algorithm" or bool(value))


def _literal(value: bytes) -> object:
    if value[:1] in (b"'", b'"'):
        return value[1:-1].decode("utf-8", "replace")
    if value in (b"None", b"True", b"False"):
        return {b"None": None, b"True": True, b"False": False}[value]
    return float(value) if b"." in value or b"e" in value else int(value)
