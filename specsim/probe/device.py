"""The device under the probe: name, memory, cache, clock."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import InputError
from specsim.probe.document import Device, Dtype

if TYPE_CHECKING:
    import torch

FALLBACK_CACHE = 64e6  # bytes, where neither driver nor system says: most have less
DTYPES: dict[Dtype, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
INSTALL = "pip install 'specsim-llm[probe]'"


def import_torch() -> Any:
    """Return torch, or say how to install it."""
    try:
        import torch
    except ImportError as error:
        raise InputError("specsim probe", f"needs torch ({error})", INSTALL) from None
    return torch


def choose_device(name: str) -> torch.device:
    """Return the device called cpu, cuda, cuda:N or auto (CUDA where it is); refuse any other."""
    torch = import_torch()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    found = re.fullmatch(r"cpu|cuda(?::(\d{1,3}))?", name)
    if found is None:
        raise InputError(f"device {name!r}", "is not known", "use auto, cpu, cuda or cuda:N")
    if name == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(found[1] or 0)
    if index >= count:
        why = f"is not there: torch {torch.__version__} sees {count} CUDA device(s)"
        remedy = "check the driver and torch's CUDA build, or use --device cpu"
        raise InputError(f"device {name}", why, remedy)
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def describe(device: torch.device) -> Device:
    """Return name, memory and cache of a device; the clocks are filled in by whoever reads them."""
    torch = import_torch()
    cuda = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return Device(
        kind="cuda" if cuda else "cpu",
        name=cuda.name if cuda else _cpu_name(),
        count=torch.cuda.device_count() if cuda else 1,
        mem_bytes=float(cuda.total_memory) if cuda else _installed_bytes(),
        cache_bytes=float(getattr(cuda, "L2_cache_size", 0) or FALLBACK_CACHE)
        if cuda
        else _cpu_cache(),
        threads=0 if cuda else torch.get_num_threads(),
        clock_mhz=(),
        torch=torch.__version__,
    )


def free_bytes(device: torch.device) -> float:
    """Memory that the probe may take: nine tenths of what is free on a GPU, half on a CPU."""
    if device.type == "cuda":
        free, _ = import_torch().cuda.mem_get_info(device)
        return 0.9 * float(free)
    available = _first_line("/proc/meminfo", "MemAvailable:").split()
    return 0.5 * 1024.0 * float(available[0]) if available else 0.25 * _installed_bytes()


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


def _installed_bytes() -> float:
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _first_line(path: str, begin: str) -> str:
    """Return what follows the begin of a line of a system file; nothing where it is not there."""
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith(begin):
                return line.removeprefix(begin)
    return ""


def _cpu_name() -> str:
    import platform

    name = _first_line("/proc/cpuinfo", "model name").partition(":")[2]
    return " ".join(name.split()) or platform.processor() or platform.machine() or "CPU"


def _cpu_cache() -> float:
    """Last-level cache of the first core, bytes."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            text = path.read_text(encoding="ascii").strip()
            unit = {"K": 1024.0, "M": 1024.0**2}.get(text[-1:], 1.0)
            sizes.append(float(text.rstrip("KM")) * unit)
    return max(sizes, default=FALLBACK_CACHE)
