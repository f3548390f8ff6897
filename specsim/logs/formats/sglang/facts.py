"""What SGLang says beside its batch lines: launch arguments, memory, graphs, warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.settings import NO_SPECULATION, literal, printed_dict, stated

_ARG = re.compile(
    rb"(?<=[(, {])'?([a-z_]{1,64})'?(?:=|: )('[^'\n]{0,512}'|\"[^\"\n]{0,512}\"|None|True|False"
    rb"|-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,3})?)(?=[,)}])"
)
"""An argument of ``ServerArgs(..)``, or, from 0.5.19, of a dict."""
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
    # of the target's pool, which comes before the drafter's; a window's has a label
    re.compile(
        rb"(?<!SWA )KV Cache is allocated\. (?:dtype: [\w.]{1,32}, )?"
        rb"#tokens: (?P<kv_tokens>\d{1,12}),"
    ),
    re.compile(
        rb"Capture target verify \w{3,8} graph begin\. backend=\w{1,32}, "
        rb"num_tokens_per_req=(?P<num_draft_tokens>\d{1,4}),"
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
    rb"Capture (?:cuda graph bs |target (?:verify|decode) \w{3,8} graph (?:begin|end)\. "
    rb"(?:backend=\w{1,32}, num_tokens_per_req=\d{1,4}, )?bs=)\[([\d, ]{1,4096})\]"
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
            self.settings.update(settings_of_args(_arguments(line)))
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


def _arguments(line: bytes) -> dict[str, object]:
    """Return the launch arguments of a log line by their fields."""
    text = line.partition(b"server_args=")[2]
    whole = printed_dict(text) if text[:1] == b"{" else None
    return whole or {name.decode(): literal(value) for name, value in _ARG.findall(line)}


def settings_of_args(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in SGLang's launch arguments, as logged or in ``server_info``."""
    fields = {name: value for name, value in arguments.items() if not name.startswith("-")}
    said, _ = said_by("sglang", fields)
    settings = engine_named("sglang").settings({k: v for k, v in said.items() if _sane(k, v)})
    if "algorithm" not in settings and "speculative_algorithm" in arguments:
        settings.update(NO_SPECULATION)
    return settings


def _sane(key: str, value: object) -> bool:
    """Whether a value can be a setting: the counts of speculation must be counts."""
    if key in ("topk", "num_steps", "num_draft_tokens"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    if isinstance(value, int | float):
        return abs(value) <= MAX_NUMBER
    if key == "algorithm":
        return isinstance(value, str) and bool(value)
    return isinstance(value, str | list | Mapping)
