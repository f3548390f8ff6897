"""Wall time, CPU time and peak memory of whole commands, from start to exit.

    python benchmarks/bench_cli.py [REPEATS]

The least of several runs counts: what other processes take from a shared machine only adds. Byte
code is cached, as it is once a package is installed. Ends with exit code 1 if a command is over its
bar.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

PREDICT = ("predict", "--topk", "2", "--steps", "2")


@dataclass(frozen=True, slots=True)
class Bar:
    """A command, the seconds it may take, and the megabytes."""

    argv: tuple[str, ...]
    wall_s: float
    memory_mb: float = 300.0


BARS = (
    Bar(("--help",), 0.4),
    Bar((*PREDICT, "--solver", "analytic"), 0.8),
    Bar(PREDICT, 3.0),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command."""

    wall_s: float
    cpu_s: float
    memory_mb: float


def run(argv: tuple[str, ...], environment: Mapping[str, str]) -> Run:
    """Run ``python -m specsim`` once, its output thrown away."""
    null = os.open(os.devnull, os.O_WRONLY)
    began = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "specsim", *argv],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)],
    )
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - began
    os.close(null)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"specsim {' '.join(argv)} failed")
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> int:
    """Print a table; 1 if a command is over its bar."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    python = sys.version.split()[0]
    load = os.getloadavg()[0]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    print(f"Python {python}, {os.cpu_count()} CPUs, load {load:.1f}, least of {repeats} runs")
    print(f"{'command':54} {'wall s':>7} {'bar':>5} {'median':>7} {'CPU s':>6} {'MB':>5}")
    over = False
    with tempfile.TemporaryDirectory() as cache:
        environment["PYTHONPYCACHEPREFIX"] = cache
        for bar in BARS:
            run(bar.argv, environment)  # fills the cache
            over |= report(bar, [run(bar.argv, environment) for _ in range(repeats)])
    return int(over)


def report(bar: Bar, runs: list[Run]) -> bool:
    """Print the row of one command; whether it is over its bar."""
    wall_s = min(r.wall_s for r in runs)
    memory_mb = max(r.memory_mb for r in runs)
    over = wall_s > bar.wall_s or memory_mb > bar.memory_mb
    print(
        f"{'specsim ' + ' '.join(bar.argv):54} {wall_s:7.3f} {bar.wall_s:5.1f} "
        f"{statistics.median(r.wall_s for r in runs):7.3f} {min(r.cpu_s for r in runs):6.3f} "
        f"{memory_mb:5.0f}{'  OVER' if over else ''}"
    )
    return over


if __name__ == "__main__":
    sys.exit(main())
