"""What SGLang says beside its batch lines: launch arguments, memory, graphs, warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.logs.settings import NO_SPECULATION, algorithm_name, literal, stated

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
_VERSION = re.compile(
    rb"sglang(?:==| version:? ?|=)v?(\d\.\d{1,2}\.\d{1,3}(?:\.post\d{1,2})?)(?!\w)"
)
_RETRACT = re.compile(rb"#retracted_reqs: (\d{1,6})(?=,)")
_ADAPTIVE = re.compile(rb"Adaptive spec params updated: steps (\d{1,3}) -> (\d{1,3})(?=\D)")

STATED = (
    re.compile(
        rb"max_total_num_tokens=(?P<kv_tokens>\d{1,12}), "
        rb"chunked_prefill_size=(?P<chunked_prefill_size>-?\d{1,9}|None), "
        rb"max_prefill_tokens=\d{1,9}, max_running_requests=(?P<max_running_requests>\d{1,9}), "
        rb"(?:context_len=(?P<context_len>\d{1,9})(?=, ))?"
    ),
    re.compile(
        rb"Max running requests is reset to (?P<max_running_requests>\d{1,6}) for speculative "
        rb"decoding"
    ),
)
"""Lines that state settings: each named group is one."""

IMPLIED = (
    re.compile(rb"KV Cache is allocated\. #tokens: (?P<kv_tokens>\d{1,12}),"),
    re.compile(
        rb"Capture target verify CUDA graph begin\. backend=\w{1,32}, "
        rb"num_tokens_per_req=(?P<num_draft_tokens>\d{1,4}), bs=\[[\d, ]{1,4096}\]"
    ),
)
"""Lines that tell a setting if no other line states it."""

SAID: tuple[tuple[re.Pattern[bytes], dict[str, object]], ...] = (
    (
        re.compile(rb"Max running requests is reset to \d{1,6} for speculative decoding"),
        {"max_running_requests_source": "default when speculating"},
    ),
    (re.compile(rb"(?:Beta spec|Spec v2) is enabled"), {"scheduler": "overlap"}),
    (
        re.compile(
            rb"Overlap scheduler is disabled (?:because of using eagle|when spec v2 is off)"
            rb"|Spec v1 is used for|Non-overlap \(synchronous\) spec v2"
        ),
        {"scheduler": "sequential"},
    ),
)
"""Lines that say a setting in words."""

_GRAPH_SIZES = re.compile(
    rb"Capture (?:cuda graph bs |target (?:verify|decode) CUDA graph begin\. backend=\w{1,32}, "
    rb"num_tokens_per_req=\d{1,4}, bs=)\[([\d, ]{1,4096})\]"
)
_STARTED = re.compile(rb"server_args=|max_total_num_tokens=|KV Cache is allocated")

MAX_COUNT, MAX_NUMBER = 10**6, 1e15
"""Larger ones are damage."""

ANY_FACT = re.compile(
    rb"server_args=|max_total_num_tokens=|KV Cache is allocated|Capture |Max running requests is"
    rb"|retracted_reqs|Decode out of memory|pec v[12] |Overlap scheduler is disabled|Beta spec"
    rb"|Adaptive spec params|is adjusted to speculative_num_steps|sglang(?:==| version|=v?\d)"
)
"""Cheap test before :meth:`Facts.learn`."""


@dataclass(slots=True)
class Facts:
    """Facts of one server."""

    settings: dict[str, object] = field(default_factory=dict)  # as in setup.toml and SpecSetting
    version: str | None = None
    started: bool = False  # a start-up was seen: the first window after it is a ramp
    retractions: int = 0  # events in which the KV of requests was taken back
    retracted: int = 0  # requests in them
    adaptive: int = 0  # changes of the draft depth while running

    def learn(self, line: bytes) -> None:
        """Take in one line."""
        self.started |= _STARTED.search(line) is not None
        if b"server_args=" in line:
            arguments = {name.decode(): literal(value) for name, value in _ARG.findall(line)}
            self.settings.update(settings_of_args(arguments))
            return
        version = _VERSION.search(line)
        if version:
            self.version = version[1].decode()
        for pattern in STATED:
            self.settings.update(stated(pattern.search(line)))
        for pattern in IMPLIED:
            for name, value in stated(pattern.search(line)).items():
                self.settings.setdefault(name, value)
        for pattern, settings in SAID:
            if pattern.search(line):
                self.settings.update(settings)
        sizes = _GRAPH_SIZES.search(line)
        if sizes:
            numbers = [int(n) for n in sizes[1].replace(b",", b" ").split() if len(n) < 7]
            self.settings.update({"cuda_graph_max_bs": max(numbers)} if numbers else {})
        retract = _RETRACT.search(line)
        if retract:
            self.retractions += 1
            self.retracted += int(retract[1])
        self.adaptive += _ADAPTIVE.search(line) is not None


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
