"""The device under the probe: stopwatch, memory, cache, clocks. torch is imported when called."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import InputError
from specsim.probe.document import Device
from specsim.probe.timing import Step, Timer

if TYPE_CHECKING:
    import torch

WARM_UPS = 3
FALLBACK_CACHE = 64e6
"""Last-level cache, bytes, where neither the driver nor the system says: most have less."""
COVER_BYTES = 256e6
"""Written before each timed run: it clears the L2, and while it runs (60-100 us) the host gets
ahead, so that the launch of a graph is not in its time."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
INSTALL = "pip install 'specsim-llm[probe]'"


def import_torch() -> Any:
    """Return torch.

    Raises
    ------
    InputError
        Says how to install it.
    """
    try:
        import torch
    except ImportError as error:
        raise InputError("specsim probe", f"needs torch ({error})", INSTALL) from None
    return torch


def choose_device(name: str) -> torch.device:
    """Return the device called auto, cpu, cuda or cuda:N; auto is CUDA where it is there.

    Raises
    ------
    InputError
        If there is no such device.
    """
    torch = import_torch()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    found = re.fullmatch(r"cpu|cuda(?::(\d{1,3}))?", name)
    if found is None:
        raise InputError(f"device {name!r}", "is not known", "use auto, cpu, cuda or cuda:N")
    if name.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(found[1] or 0) >= count:
            raise InputError(
                f"device {name}",
                f"is not there: torch {torch.__version__} sees {count} CUDA device(s)",
                "check the driver and torch's CUDA build, or use --device cpu",
            )
        torch.cuda.set_device(int(found[1] or 0))
        return torch.device("cuda", int(found[1] or 0))
    return torch.device("cpu")


class CpuTimer:
    """Wall-clock times; the step runs as it is."""

    def prepare(self, step: Step) -> Step:
        """Warm up once."""
        step()
        return step

    def times(self, steps: Sequence[Step], repeats: int) -> list[list[float]]:
        """Run the steps in turn; seconds by step."""
        found: list[list[float]] = [[] for _ in steps]
        for _ in range(repeats):
            for step, times in zip(steps, found, strict=True):
                began = time.perf_counter()
                step()
                times.append(time.perf_counter() - began)
        return found


class CudaTimer:
    """CUDA events around replays of captured graphs.

    Attributes
    ----------
    graphs
        Whether every step so far could be captured.
    notes
        What could not, and why.
    """

    def __init__(self, device: torch.device, cache_bytes: float) -> None:
        torch = import_torch()
        self._torch = torch
        self._device = device
        size = int(max(COVER_BYTES, 2 * cache_bytes))
        self._cover = torch.empty(size, dtype=torch.uint8, device=device)
        self.graphs = True
        self.notes: list[str] = []

    def prepare(self, step: Step) -> Step:
        """Warm up on a side stream and capture; the step itself where that fails."""
        torch = self._torch
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream(self._device).wait_stream(side)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
        except RuntimeError as error:
            self.graphs = False
            self.notes.append(f"no CUDA graph: {str(error).splitlines()[0][:120]}")
            torch.cuda.synchronize(self._device)
            return step
        replay: Step = graph.replay
        return replay

    def times(self, steps: Sequence[Step], repeats: int) -> list[list[float]]:
        """Run the steps in turn, each after a write that clears the cache; seconds by step."""
        torch = self._torch
        marks: list[list[tuple[Any, Any]]] = [[] for _ in steps]
        for turn in range(repeats):
            for step, pairs in zip(steps, marks, strict=True):
                self._cover.fill_(turn % 251)
                begin = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                begin.record()
                step()
                end.record()
                pairs.append((begin, end))
        torch.cuda.synchronize(self._device)
        return [[begin.elapsed_time(end) * 1e-3 for begin, end in pairs] for pairs in marks]


def timer_of(device: torch.device, cache_bytes: float) -> Timer:
    """Return the stopwatch of a device."""
    return CudaTimer(device, cache_bytes) if device.type == "cuda" else CpuTimer()


def captured(timer: Timer) -> bool:
    """Whether a stopwatch ran everything in CUDA graphs."""
    return isinstance(timer, CudaTimer) and timer.graphs


def describe(device: torch.device, clocks: Sequence[float] = ()) -> Device:
    """Return name, memory and cache of a device."""
    torch = import_torch()
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        return Device(
            kind="cuda",
            name=facts.name,
            count=torch.cuda.device_count(),
            mem_bytes=float(facts.total_memory),
            cache_bytes=float(getattr(facts, "L2_cache_size", 0) or FALLBACK_CACHE),
            threads=0,
            clock_mhz=tuple(clocks),
            torch=torch.__version__,
        )
    return Device(
        kind="cpu",
        name=_cpu_name(),
        count=1,
        mem_bytes=float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        cache_bytes=_cpu_cache(),
        threads=torch.get_num_threads(),
        clock_mhz=tuple(clocks),
        torch=torch.__version__,
    )


def free_bytes(device: torch.device) -> float:
    """Memory that the probe may take: nine tenths of what is free on a GPU, half on a CPU."""
    if device.type == "cuda":
        free, _ = import_torch().cuda.mem_get_info(device)
        return 0.9 * float(free)
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 0.5 * 1024.0 * float(line.split()[1])
    return 0.25 * float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def occupied_bytes(device: torch.device) -> float:
    """Memory of a GPU that is taken, by whomever; 0 on a CPU."""
    if device.type != "cuda":
        return 0.0
    free, total = import_torch().cuda.mem_get_info(device)
    return float(total - free)


def clock_mhz(device: torch.device) -> list[float]:
    """Return the GPU's clock in MHz, empty where it cannot be read (it needs pynvml)."""
    if device.type != "cuda":
        return []
    try:
        return [float(import_torch().cuda.clock_rate(device))]
    except Exception:  # a driver library of any version may be absent or refuse
        return []


def heat_up(device: torch.device, seconds: float) -> None:
    """Keep a GPU busy until its clock has risen."""
    if device.type != "cuda":
        return
    torch = import_torch()
    square = torch.randn(4096, 4096, dtype=torch.bfloat16, device=device)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            square @ square
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give freed memory back to the device."""
    if device.type == "cuda":
        import_torch().cuda.empty_cache()


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    import platform

    return platform.processor() or platform.machine() or "CPU"


def _cpu_cache() -> float:
    """Last-level cache of the first core, bytes."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            text = path.read_text(encoding="ascii").strip()
            unit = {"K": 1024.0, "M": 1024.0**2}.get(text[-1:], 1.0)
            sizes.append(float(text.rstrip("KM")) * unit)
    return max(sizes, default=FALLBACK_CACHE)
