"""Closed-loop clients, and the throughput of the steady part of a run.

Answers are not streamed: the clients share the cores with the server. The server's /slots says at
both ends of the window how many tokens each request has got; with the answers in between that is
the number of tokens that came out, exactly. Requests in flight at the end are given up.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
import time
from dataclasses import asdict, dataclass, field

from prompts import prompt

OUTPUT_TOKENS = (64, 128)
"""Range of the requests' lengths; they differ so that clients do not stay in step."""

RAMP_S = 1.0
"""The window opens no sooner, s."""


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request; times in s since the run began, durations in ms by the server."""

    client: int
    index: int
    prompt_kind: str
    start_s: float
    end_s: float
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    draft_n: int
    draft_n_accepted: int

    seed: int

    @property
    def decode_start_s(self) -> float:
        """When the first token was out."""
        return self.end_s - self.predicted_ms / 1e3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tokens that requests in flight had got at a time, by their seeds."""

    time_s: float
    decoded: dict[int, int]


def tokens_between(start: Snapshot, end: Snapshot, answered: list[Request]) -> int:
    """Return the tokens that came out between two snapshots.

    A request that is in no snapshot was answered before or asked after; when its first token came
    out tells which.
    """
    total = sum(decoded - start.decoded.get(seed, 0) for seed, decoded in end.decoded.items())
    for request in answered:
        if request.seed in end.decoded:
            continue
        if request.seed in start.decoded:
            total += request.predicted_n - start.decoded[request.seed]
        elif start.time_s <= request.decode_start_s < end.time_s:
            total += request.predicted_n
    return total


@dataclass(slots=True)
class Run:
    """What a run gave."""

    start: Snapshot = field(default_factory=lambda: Snapshot(0.0, {}))
    end: Snapshot = field(default_factory=lambda: Snapshot(0.0, {}))
    requests: list[Request] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def window(self) -> tuple[float, float]:
        """Begin and end of the window, s since the run began."""
        return self.start.time_s, self.end.time_s

    @property
    def output_tps(self) -> float:
        """Tokens per second within the window."""
        start_s, end_s = self.window
        return tokens_between(self.start, self.end, self.requests) / (end_s - start_s)

    def to_mapping(self) -> dict[str, object]:
        """Return what is kept of the run."""
        return {
            "window": self.window,
            "in_flight": [list(self.start.decoded.items()), list(self.end.decoded.items())],
            "output_tps": self.output_tps,
            "requests": [asdict(request) for request in self.requests],
        }


class _Clients:
    """Threads that each keep one request in flight."""

    def __init__(self, port: int, seed: str, clients: int, temperature: float) -> None:
        self.port, self.seed, self.clients = port, seed, clients
        self.temperature = temperature
        self.requests: list[Request] = []
        self.errors: list[str] = []
        self.zero = time.perf_counter()
        self.connections = [
            http.client.HTTPConnection("127.0.0.1", port, timeout=120) for _ in range(clients)
        ]
        self.stopping = False
        self.lock = threading.Lock()

    def now(self) -> float:
        return time.perf_counter() - self.zero

    def client(self, number: int) -> None:
        index = 0
        try:
            while not self.stopping:
                request = self.ask(number, index)
                with self.lock:
                    self.requests.append(request)
                index += 1
        except (OSError, http.client.HTTPException, KeyError, ValueError, AttributeError) as error:
            if not self.stopping:
                self.errors.append(f"client {number}: {error!r}")

    def ask(self, number: int, index: int) -> Request:
        seed = f"{self.seed}/{number}/{index}"
        kind, text = prompt(seed)
        rng = random.Random(f"length {seed}")
        length = rng.randint(*OUTPUT_TOKENS)
        if index == 0:  # what would be left of a request at a random time: steady from the start
            length = max(4, round(length * (number + 0.5) / self.clients))
        number_seed = rng.randrange(1, 2**31)
        start_s = self.now()
        answer = post(self.connections[number], text, length, number_seed, self.temperature)
        end_s, timings = self.now(), answer["timings"]
        return Request(
            number, index, kind, start_s, end_s,
            timings["prompt_n"], timings["prompt_ms"],
            timings["predicted_n"], timings["predicted_ms"],
            timings.get("draft_n", 0), timings.get("draft_n_accepted", 0), number_seed,
        )  # fmt: skip

    def snapshot(self, connection: http.client.HTTPConnection) -> Snapshot:
        connection.request("GET", "/slots")
        slots = json.loads(connection.getresponse().read())
        time_s = self.now()
        return Snapshot(
            time_s,
            {
                slot["params"]["seed"]: slot["next_token"][0]["n_decoded"]
                for slot in slots
                if slot["is_processing"]
            },
        )

    def stop(self) -> None:
        """Give up what is in flight: the server notices that its clients have gone."""
        self.stopping = True
        for connection in self.connections:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)


def post(
    connection: http.client.HTTPConnection, text: str, length: int, seed: int, temperature: float
) -> dict:
    """Ask for a completion of exactly so many tokens."""
    body = {
        "prompt": text, "n_predict": length, "ignore_eos": True, "cache_prompt": False,
        "temperature": temperature, "seed": seed, "stream": False,
    }  # fmt: skip
    connection.request(
        "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        raise ValueError(f"status {response.status}: {data[:300]!r}")
    return json.loads(data)


def drive(
    port: int, seed: str, clients: int, window_s: float, temperature: float = 0.0,
    ramp_limit_s: float = 40.0,
) -> Run:  # fmt: skip
    """Keep so many requests in flight and measure a window that opens when all are decoding.

    Parameters
    ----------
    port
        The server's.
    seed
        Which requests are sent.
    clients
        Requests in flight.
    window_s
        Length of the window, s.
    temperature
        Of sampling.
    ramp_limit_s
        The window opens after as long at the latest, s.
    """
    state = _Clients(port, seed, clients, temperature)
    control = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    threads = [
        threading.Thread(target=state.client, args=(number,), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    run = Run()
    try:
        while True:
            time.sleep(0.2)
            run.start = state.snapshot(control)
            decoding = [decoded for decoded in run.start.decoded.values() if decoded > 0]
            if run.start.time_s > RAMP_S and len(decoding) == clients:
                break
            if run.start.time_s > ramp_limit_s or state.errors:
                state.errors.append(f"not all clients were decoding after {ramp_limit_s:.0f} s")
                break
        if not state.errors:
            time.sleep(window_s)
            control.close()  # the server drops connections that are idle for 5 s
            run.end = state.snapshot(control)
            time.sleep(0.1)  # for answers that were under way
    finally:
        state.stop()
        control.close()
        for thread in threads:
            thread.join(5)
    with state.lock:
        run.requests, run.errors = list(state.requests), list(state.errors)
    return run
