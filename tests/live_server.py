"""Made-up servers on loopback: what each engine answers to GET, and what no server should."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = bytes | tuple[int, dict[str, str], bytes] | Callable[["Handler"], None]
"""A body; status, headers and body; or what writes to the connection itself."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from a table of paths; keeps what it was asked."""

    routes: Callable[[], dict[str, Answer]]
    asked: list[tuple[str, str, str | None]]

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.asked.append((self.command, self.path, self.headers.get("Authorization")))
        answer = type(self).routes().get(self.path)
        if callable(answer):
            answer(self)
            return
        if answer is None:
            answer = (404, {}, b"not found")
        status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        self.do_GET()


class Quiet(http.server.ThreadingHTTPServer):
    """A client that goes away is no error here."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@contextmanager
def serving(
    routes: Callable[[], dict[str, Answer]],
) -> Iterator[tuple[str, list[tuple[str, str, str | None]]]]:
    """Yield the URL of a server and the list of what it is asked."""
    asked: list[tuple[str, str, str | None]] = []
    kind = type("Made", (Handler,), {"routes": staticmethod(routes), "asked": asked})
    server = Quiet(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def models(owner: str, root: str = "meta-llama/Llama-3.1-8B-Instruct") -> bytes:
    """Return a list of models as each engine gives it."""
    card = {"id": "served", "object": "model", "owned_by": owner, "root": root}
    return json.dumps({"object": "list", "data": [card]}).encode()


def prometheus(prefix: str, values: dict[str, float], labels: str = "") -> bytes:
    """Return samples; a name may carry labels of its own."""
    lines = []
    for name, value in values.items():
        bare, _, own = name.partition("|")
        said = ",".join(part for part in (labels, own) if part)
        lines.append(f"{prefix}{bare}{{{said}}} {value}\n" if said else f"{prefix}{bare} {value}\n")
    return "".join(lines).encode()


def sglang(running: float = 8.0, tps: float = 900.0, accept: float = 2.4) -> dict[str, Answer]:
    """EAGLE-3 on SGLang 0.5.9: settings from /server_info, gauges of the last 40 iterations."""
    info = {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct",
        "tp_size": 1,
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "version": "0.5.9",
        "max_total_num_tokens": 120000,
        "internal_states": [
            {"avg_spec_accept_length": accept, "effective_max_running_requests_per_dp": 48}
        ],
    }
    gauges = {
        "num_running_reqs": running,
        "num_queue_reqs": 0.0,
        "gen_throughput": tps,
        "spec_accept_length": accept,
        "token_usage": 0.125,
        "prompt_tokens_total|is_streaming=\"true\"": 5000.0,
        "prompt_tokens_total|is_streaming=\"false\"": 400.0,
    }  # fmt: skip
    return {
        "/v1/models": models("sglang"),
        "/server_info": json.dumps(info).encode(),
        "/metrics": prometheus("sglang:", gauges, 'model_name="served",tp_rank="0"'),
    }


def vllm(seconds: float, running: float = 8.0, speculates: bool = True) -> dict[str, Answer]:
    """vLLM 0.20.2 that has worked so long: 800 tok/s, 400 rounds/s of 3 drafts, 400 accepted."""
    counts = {
        "num_requests_running": running,
        "num_requests_waiting": 2.0,
        "kv_cache_usage_perc": 0.25,
        "generation_tokens_total": 800 * seconds,
        "prompt_tokens_total": 9000.0,
    }
    if speculates:
        counts |= {
            "spec_decode_num_drafts_total": 400 * seconds,
            "spec_decode_num_draft_tokens_total": 1200 * seconds,
            "spec_decode_num_accepted_tokens_total": 400 * seconds,
        }
        for position, rate in enumerate((240, 120, 40)):
            name = f'spec_decode_num_accepted_tokens_per_pos_total|position="{position}"'
            counts[name] = rate * seconds
    return {
        "/v1/models": models("vllm"),
        "/version": b'{"version": "0.20.2+cu129"}',
        "/metrics": prometheus("vllm:", counts, 'engine="0",model_name="served"'),
    }


def llama_cpp(ended: int, decoded: int, speculates: bool = False) -> dict[str, Answer]:
    """llama-server b11434: its counters are of ended requests, /slots tells of those that run."""
    types = "draft-simple" if speculates else "none"
    slot = {
        "id": 0,
        "n_ctx": 4096,
        "speculative": speculates,
        "is_processing": True,
        "params": {"speculative.types": types},
        "next_token": [{"has_next_token": True, "n_decoded": decoded}],
    }
    idle = {**slot, "id": 1, "is_processing": False}
    props = {
        "default_generation_settings": {"params": {}, "n_ctx": 4096},
        "total_slots": 2,
        "model_path": "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "build_info": "b11434-unknown",
    }
    counts = {
        "prompt_tokens_total": 500.0,
        "tokens_predicted_total": float(ended),
        "requests_processing": 2.0,
        "requests_deferred": 0.0,
        "spec_decode_num_draft_tokens_total": 1.5 * ended if speculates else 0.0,
        "spec_decode_num_accepted_tokens_total": 0.5 * ended if speculates else 0.0,
        "spec_decode_num_drafts_total": 0.5 * ended if speculates else 0.0,
    }
    if speculates:
        for position, share in enumerate((0.25, 0.15, 0.1)):
            name = f'spec_decode_num_accepted_tokens_per_pos_total|position="{position}"'
            counts[name] = share * ended
    return {
        "/v1/models": models("llamacpp", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        "/props": json.dumps(props).encode(),
        "/slots": json.dumps([slot, idle]).encode(),
        "/metrics": prometheus("llamacpp:", counts),
    }


def trtllm(iterations: int = 40) -> dict[str, Answer]:
    """TensorRT-LLM: statistics of each iteration; its models name it."""
    record = {
        "iterLatencyMS": 20.0,
        "numQueuedRequests": 0,
        "inflightBatchingStats": {"numGenRequests": 8, "numContextRequests": 0, "numCtxTokens": 0},
        "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 100, "tokensPerBlock": 32},
        "specDecodingStats": {
            "numDraftTokens": 24, "numAcceptedTokens": 12, "numRequestsWithDraftTokens": 8
        },
    }  # fmt: skip
    stats = [{"iter": i, **record} for i in range(iterations)]
    return {
        "/v1/models": models("tensorrt_llm"),
        "/version": b'{"version": "1.2.0"}',
        "/metrics": json.dumps(stats).encode(),
        "/prometheus/metrics": prometheus("trtllm_", {"num_requests_running": 8.0}),
    }


def drip(handler: Handler) -> None:
    """Send a byte now and then, for ever."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.05)


def endless(handler: Handler) -> None:
    """Send without end."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"# " + b"a" * 65536)


class Endpoint:
    """An OpenAI endpoint that streams: a prompt takes 20 ms, a token 2 ms, two tokens a chunk."""

    def __init__(self, speculates: bool = True) -> None:
        self.rounds = self.tokens = 0
        self.most = self.open = 0
        self.lock = threading.Lock()
        self.speculates = speculates
        self.bodies: list[dict[str, object]] = []

    def routes(self) -> dict[str, Answer]:
        """Counters so far, and completions."""
        counts = {"num_requests_running": 0.0, "generation_tokens_total": float(self.tokens)}
        if self.speculates:
            counts |= {
                "spec_decode_num_drafts_total": float(self.rounds),
                "spec_decode_num_draft_tokens_total": 3.0 * self.rounds,
                "spec_decode_num_accepted_tokens_total": float(self.rounds),
            }
        return {
            "/v1/models": models("vllm"),
            "/version": b'{"version": "0.20.2"}',
            "/metrics": prometheus("vllm:", counts, 'engine="0"'),
            "/v1/completions": self.complete,
        }

    def complete(self, handler: Handler) -> None:
        """Stream one answer."""
        body = json.loads(handler.body)
        with self.lock:
            self.bodies.append(body)
            self.open += 1
            self.most = max(self.most, self.open)
        handler.send_response(200)
        handler.end_headers()
        time.sleep(0.02)
        n = body["max_tokens"]
        for _ in range(n // 2):
            time.sleep(0.004)
            self._send(handler, {"choices": [{"text": "a b"}]})
        with self.lock:
            self.rounds, self.tokens, self.open = (
                self.rounds + n // 2, self.tokens + n, self.open - 1
            )  # fmt: skip
        prompt = 2 * len(body["prompt"].split())
        usage = {"prompt_tokens": prompt, "completion_tokens": n}
        self._send(handler, {"choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")

    @staticmethod
    def _send(handler: Handler, chunk: dict[str, object]) -> None:
        handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        handler.wfile.flush()
