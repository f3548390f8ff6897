"""A closed loop of clients on an OpenAI-compatible endpoint: a cell of observations per load."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specsim.live.fetch import parsed
from specsim.live.server import Server
from specsim.live.watch import counted
from specsim.observations import Observation
from specsim.setting import SpecSetting

WAVES = 4  # requests per client: ramp and drain, which the solvers play too, are a part of the run
MOST_S = 600.0  # a request that takes longer is given up
MOST_LINE = 1 << 20
WORDS = ("river", "past", "old", "mill", "where", "people", "bring", "corn", "autumn", "the", "and")


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent."""

    setting: SpecSetting  # that the server runs
    concurrency: tuple[int, ...]
    input_len: int  # tokens, about
    output_len: int
    temperature: float = 0.0
    prompts: Sequence[str] = ()  # instead of words drawn at random
    most_requests: int = 2000  # of all cells
    most_tokens: int = 2_000_000  # of answers and prompts


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered request; times in seconds of one clock."""

    begun: float
    first: float  # when the first token came
    last: float
    prompt: int  # tokens, as the server counts them
    output: int


def cells(
    server: Server, load: Load, progress: Callable[[int, int], None]
) -> Iterator[Observation | str]:
    """Yield a cell for each load that the caps leave room for, and a note for each other.

    Raises :class:`InputError` if the endpoint refuses a request or gives it up.
    """
    tokens_each = load.input_len + load.output_len
    each = ask(server, load, load.input_len, 0)  # that the first cell does not wait for a compiler
    words = max(1, round(load.input_len * load.input_len / max(each.prompt, 1)))
    done, room = 1, min(load.most_requests, load.most_tokens // tokens_each)
    for clients in load.concurrency:
        requests = WAVES * clients
        if done + requests > room:
            yield f"{clients} clients: not measured, the caps leave no {requests} requests"
            continue
        before = server.scrape()
        answers = _run(server, load, words, clients, range(done, done + requests), progress)
        done += requests
        yield _cell(server, load, clients, answers, before)


def ask(server: Server, load: Load, words: int, number: int) -> Answer:
    """Send one request, and wait for its answer as a stream."""
    draw = random.Random(number)
    prompt = " ".join(draw.choices(WORDS, k=words))
    body = {
        "model": server.name,
        "prompt": load.prompts[number % len(load.prompts)] if load.prompts else prompt,
        "max_tokens": load.output_len,
        "temperature": load.temperature,
        "seed": number,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    at, begun, came = server.site.base + "/v1/completions", time.monotonic(), []
    usage: dict[str, object] = {}
    with server.site.asked("POST", at, json.dumps(body).encode(), MOST_S) as answer:
        if answer.status != 200:
            raise server.site.refused(at, f"refuses a request (status {answer.status})")
        while line := answer.readline(MOST_LINE):
            chunk = parsed(line.removeprefix(b"data:"), dict)
            if chunk.get("choices"):
                came.append(time.monotonic())
            usage = found if isinstance(found := chunk.get("usage"), dict) else usage
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt_tokens, output = (n if type(n) is int and 0 < n < 10**7 else 0 for n in counts)
    if not (came and output):
        raise server.site.refused(at, "gives no stream of tokens with its usage at the end")
    return Answer(begun, came[0], came[-1], prompt_tokens, output)


def _run(
    server: Server,
    load: Load,
    words: int,
    clients: int,
    numbers: range,
    progress: Callable[[int, int], None],
) -> list[Answer]:
    """Keep so many requests in flight until all are answered; an interrupt leaves none to come."""
    waiting, answers = list(reversed(numbers)), list[Answer]()
    errors: list[Exception] = []

    def client() -> None:
        while waiting and not errors:
            try:
                answers.append(ask(server, load, words, waiting.pop()))
            except IndexError:
                return
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not errors:
            threads[0].join(0.1) if threads[0].is_alive() else time.sleep(0.1)
            progress(len(answers), len(numbers))
    finally:
        waiting.clear()
    if errors:
        raise errors[0]
    return answers


def _cell(
    server: Server, load: Load, clients: int, answers: Sequence[Answer], before: bytes
) -> Observation:
    n, output = len(answers), sum(a.output for a in answers)
    seconds = max(a.last for a in answers) - min(a.begun for a in answers)
    row = counted(server, before)
    tau = row.accept_length if row is not None and load.setting.speculates else None
    each = [(a.last - a.first) / (a.output - 1) for a in answers if a.output > 1]
    return Observation(
        kind="closed_loop",
        setting=load.setting,
        concurrency=clients,
        num_requests=n,
        input_len=sum(a.prompt for a in answers) / n,
        output_len=output / n,
        output_tps=output / seconds,
        accept_length=tau,
        accept_length_scope=None if tau is None else "run",
        survival=(row.survival or ()) if row is not None and tau is not None else (),
        ttft_s=sum(a.first - a.begun for a in answers) / n,
        tpot_s=sum(each) / len(each) if each else None,
        temperature=load.temperature,
        source=f"{server.site.url}, {n} requests",
    )
