"""Facts about the machine that explain its speed."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from pathlib import Path


def machine_facts(binary: Path, env: dict[str, str], models: dict[str, Path]) -> dict[str, object]:
    """Return processor, memory, its bandwidth, kernel, versions, and the models' sizes."""
    version = subprocess.run(
        [str(binary), "--version"], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    return {
        "date_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cpu_flags": [
            flag
            for flag in (_first("/proc/cpuinfo", "flags") or "").split()
            if flag.startswith(("avx", "f16c", "fma", "amx"))
        ],
        "cache_kib": _first("/proc/cpuinfo", "cache size"),
        "cores": os.cpu_count(),
        "memory_kib": int((_first("/proc/meminfo", "MemTotal") or "0 kB").split()[0]),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "read_bandwidth_1_thread_bytes_per_s": read_bandwidth(1),
        "read_bandwidth_2_threads_bytes_per_s": read_bandwidth(2),
        "llama_cpp": (version.stdout + version.stderr).strip().splitlines()[:3],
        "model_bytes": {name: path.stat().st_size for name, path in models.items()},
    }


def read_bandwidth(threads: int, size_bytes: int = 256 << 20) -> float:
    """Return the best of five: bytes per second at which threads sum an array each."""
    import numpy as np

    arrays = [np.ones(size_bytes // 8, dtype=np.int64) for _ in range(threads)]
    best = 0.0
    for _ in range(5):
        workers = [threading.Thread(target=array.max) for array in arrays]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * size_bytes / (time.perf_counter() - start))
    return best


def _first(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return None
