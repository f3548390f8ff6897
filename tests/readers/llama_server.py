"""A made-up llama-server that decodes all slots in step, and its log in build 11434's layout."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

STARTUP = """\
0.00.005.633 I cmn  common_param: common_params_print_info: build {build} (unknown) with GNU 12.2.0 for Linux x86_64
0.00.005.814 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : SSE3 = 1 | AVX2 = 1 |
0.00.008.295 I srv    load_model: loading model '/models/smollm2-135m-f16.gguf'
0.00.058.671 I print_info: file type   = F16
0.00.170.728 I print_info: arch                  = llama
0.00.170.738 I print_info: n_embd                = 576
0.00.170.739 I print_info: n_layer               = 30
0.00.170.812 I print_info: model params          = 134.52 M
0.00.213.204 I llama_kv_cache: size =   22.50 MiB (  1024 cells,  30 layers,  2/1 seqs), K (f16):   11.25 MiB, V (f16):   11.25 MiB
"""  # noqa: E501
DRAFT = """\
0.00.281.770 I common_speculative_init_result: loading draft model '/models/small-q4_1.gguf'
0.00.309.933 I print_info: file type   = Q4_1
0.00.401.852 I print_info: n_layer               = 10
0.00.401.900 I print_info: model params          = 63.71 M
"""
SLOTS = """\
0.00.463.884 I srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = 1024, kv_unified = 'true'
"""  # noqa: E501
CHAIN = """\
0.00.463.975 I spec common_specu: adding speculative implementation 'draft-simple'
0.00.463.981 I spec common_specu: - n_max={depth}, n_min=0, p_min=0.000000
"""
NGRAM = """\
0.00.302.765 I spec common_specu: adding speculative implementation 'ngram-simple'
0.00.302.766 I spec common_specu: - size_n=3, size_m={depth}, min_hits=1
"""


def stamp(time_s: float) -> str:
    """Return a time as the server prints it."""
    micro = round(time_s * 1e6)
    minutes, rest = divmod(micro, 60_000_000)
    return f"{minutes}.{rest // 1_000_000:02d}.{rest // 1000 % 1000:03d}.{rest % 1000:03d}"


def startup(slots: int, extra: str = "", build: int = 0) -> str:
    """Return what a server prints before its first request."""
    return STARTUP.format(build=build) + SLOTS.format(slots=slots) + extra


@dataclass
class Answer:
    """A request that is being served."""

    slot: int
    task: int
    length: int
    launch_s: float
    begin_s: float
    prompt: int = 50
    first_s: float = 0.0
    got: int = 0
    accepted: int = 0
    drafted: int = 0
    rounds: int = 0
    positions: list[int] = field(default_factory=list)

    def who(self, time_s: float, where: str = "slot print_timing") -> str:
        return f"{stamp(time_s)} I {where}: id  {self.slot} | task {self.task} | "

    def launch_lines(self) -> str:
        return (
            self.who(self.launch_s, "slot launch_slot_") + "processing task, is_child = 0\n"
            + self.who(self.begin_s, "slot   operator()")
            + f"new prompt, n_ctx_slot = 1024, n_keep = 0, task.n_tokens = {self.prompt}\n"
        )  # fmt: skip

    def timing_lines(self, end_s: float) -> str:
        """Return the timings that are printed when the last token is out."""
        prompt_ms, ms = 1e3 * (self.first_s - self.begin_s), 1e3 * (end_s - self.first_s)
        n, who = self.got, self.who(end_s)
        each, speed = ms / max(n - 1, 1), 1e3 * (n - 1) / ms if ms else 0.0
        text = (
            f"{who}prompt eval time = {prompt_ms:10.2f} ms / {self.prompt:5d} tokens "
            f"({prompt_ms / self.prompt:8.2f} ms per token, "
            f"{1e3 * self.prompt / prompt_ms:8.2f} tokens per second)\n"
            f"{who}       eval time = {ms:10.2f} ms / {n:5d} tokens "
            f"({each:8.2f} ms per token, {speed:8.2f} tokens per second)\n"
            f"{who}      total time = {prompt_ms + ms:10.2f} ms / {self.prompt + n:5d} tokens\n"
        )
        if self.drafted:
            mean = 1 + self.accepted / self.rounds
            rates = ", ".join(f"{count / self.rounds:.3f}" for count in self.positions)
            text += (
                f"{who}draft acceptance = {self.accepted / self.drafted:.5f} "
                f"({self.accepted:5d} accepted / {self.drafted:5d} generated), "
                f"mean len = {mean:5.2f}\n"
                f"{who}     acc per pos = ({rates})\n"
            )
        return text

    def release_line(self, end_s: float) -> str:
        return (
            self.who(end_s + 2e-4, "slot      release")
            + f"stop processing: n_tokens = {self.prompt + self.got}, truncated = 0\n"
        )


@dataclass
class Server:
    """A server that prefills one request in `prefill_s` and decodes all slots in `round_s`.

    Parameters
    ----------
    slots, clients
        Of the server; each client keeps one request in flight.
    depth, accept
        Tokens drafted per round and the probability that each is accepted after the others.
    wait_s
        How long a client takes to ask again.
    """

    slots: int
    clients: int
    depth: int = 0
    accept: float = 0.0
    round_s: float = 0.1
    prefill_s: float = 0.2
    wait_s: float = 0.004
    lengths: tuple[int, int] = (64, 128)
    seed: int = 0
    begin_s: float = 1.0
    tasks: int = 0
    text: str = ""
    out: list[tuple[float, int]] = field(default_factory=list)

    def serve(self, until_s: float, stops: bool = True) -> float:
        """Serve until a time; then the server stops, or its clients go. Returns the time."""
        rng = random.Random(self.seed)
        asked = [(self.begin_s + 1e-3 * i, i) for i in range(self.clients)]
        free = list(range(self.slots))[::-1]
        running: list[Answer] = []
        now_s = self.begin_s
        while now_s < until_s:
            if not running:
                now_s = max(now_s, asked[0][0])
            new = []
            while asked and asked[0][0] <= now_s and free:
                launch_s, _ = heapq.heappop(asked)
                self.tasks += 1
                length = rng.randint(*self.lengths)
                new.append(Answer(free.pop(), self.tasks, length, launch_s, now_s))
                self.text += new[-1].launch_lines()
            now_s += self.round_s if running else 0.0
            now_s += self.prefill_s * len(new)
            for answer in running:
                self._round(answer, rng, now_s)
            for answer in new:
                answer.first_s, answer.got = now_s, 1
                self.out.append((now_s, 1))
            ended = [a for a in running if a.got >= a.length]
            running = [a for a in running if a.got < a.length] + new
            for answer in ended:
                self.text += answer.timing_lines(now_s) + answer.release_line(now_s)
                free.append(answer.slot)
                heapq.heappush(asked, (now_s + self.wait_s, answer.task))
        for answer in running:
            cancelled = (
                f"{stamp(now_s)} W srv          stop: cancel task, id_task = {answer.task}\n"
            )
            self.text += cancelled if stops else answer.release_line(now_s)
        return now_s

    def _round(self, answer: Answer, rng: random.Random, now_s: float) -> None:
        drafts = min(self.depth, answer.length - answer.got - 1)
        accepted = 0
        while accepted < drafts and rng.random() < self.accept:
            accepted += 1
        if drafts > 0:
            answer.positions = answer.positions or [0] * self.depth
            for depth in range(accepted):
                answer.positions[depth] += 1
            answer.rounds += 1
        answer.drafted += max(drafts, 0)
        answer.accepted += accepted
        answer.got += accepted + 1
        self.out.append((now_s, accepted + 1))

    def speed(self, begin_s: float, end_s: float) -> float:
        """Tokens per second that came out between two times."""
        return sum(n for t, n in self.out if begin_s < t <= end_s) / (end_s - begin_s)
