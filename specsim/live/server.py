"""Which engine serves at a URL, and what it says of itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from specsim.errors import FormatError, InputError
from specsim.live.fetch import Site, parsed, site
from specsim.logs.entry import LogEntry, believable
from specsim.logs.facts import Facts
from specsim.logs.format import detect
from specsim.logs.formats._scrape import scraped
from specsim.logs.formats.bench_json import drafting_of
from specsim.logs.source import Source, split_lines
from specsim.textfile import read_toml

FORMAT = "server"  # name of the format of entries that a server was asked for


@dataclass(frozen=True, slots=True)
class Served:
    """How the server of an engine is asked: a row of ``engines.toml``, which says what is what."""

    engine: str  # as in setup.toml
    prefix: str
    owner: str
    metrics: str
    facts: tuple[str, ...]
    switch: str
    tokens: str = ""
    in_flight: str = ""
    iterations: str = ""
    counts_all: bool = False


@cache
def _served() -> tuple[Served, ...]:
    rows = read_toml(Path(__file__).with_name("engines.toml"), "the table of engines")
    return tuple(Served(name, **row) for name, row in rows.items())


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was found."""

    site: Site
    served: Served
    name: str | None  # of the model, for requests
    version: str | None
    settings: Mapping[str, object] = field(hash=False)
    told: LogEntry | None = None  # what it has counted itself, by its own account
    notes: tuple[str, ...] = ()  # what it does not tell, and how it would

    def scrape(self) -> bytes:
        """Return its counters; empty where it has none."""
        return self.site.get(self.served.metrics) or b""


def find(url: str) -> Server:
    """Return the server at a URL.

    Raises :class:`InputError` if nothing answers there, or nothing that is an engine's.
    """
    at = site(url)
    name, model, owner = _model(at)
    served = next((s for s in _served() if s.owner == owner), None) or _by_metrics(at)
    if served is None:
        names = ", ".join(s.engine for s in _served())
        raise InputError(at.url, f"answers like no server of {names}", "check host, port and path")
    settings: dict[str, object] = {"model": model} if model else {}
    version, told = None, None
    for path in served.facts:
        for entry in _facts(at, path):
            version = version or entry.engine_version
            settings |= entry.settings
            told = entry if entry.usable else told
    for slot in parsed(at.get(served.in_flight), list)[:1] if served.in_flight else []:
        settings |= drafting_of(slot) if isinstance(slot, dict) else {}
    notes = []
    if not (scraped(split_lines([at.get(served.metrics) or b""])).engines or served.iterations):
        notes.append(f"{at.url}{served.metrics} holds no counters: launch with {served.switch}")
    return Server(at, served, name, version, settings, told, tuple(notes))


def _model(at: Site) -> tuple[str | None, ...]:
    """Return name, path or name, and owner of the first model that is served."""
    models = parsed(at.get("/v1/models"), dict).get("data")
    first = models[0] if isinstance(models, list) and models else None
    card = first if isinstance(first, dict) else {}
    said = (card.get(key) for key in ("id", "root", "owned_by"))
    name, root, owner = (word if isinstance(word, str) and word else None for word in said)
    return name, root or name, owner


def _by_metrics(at: Site) -> Served | None:
    """Return the engine that counters are of: a gateway may name other owners."""
    paths = dict.fromkeys(served.metrics for served in _served())
    engines = {path: scraped(split_lines([at.get(path) or b""])).engines for path in paths}
    return next((s for s in _served() if engines[s.metrics][s.prefix]), None)


def _facts(at: Site, path: str) -> Iterator[LogEntry]:
    """Yield what a path says, by the reader of its format; nothing if it is not there."""
    body = at.get(path)
    said = parsed(body, dict)
    version, config = said.get("version"), said.get("vllm_config")
    if isinstance(config, str):  # as vLLM logs it
        facts = Facts("vllm")
        facts.learn(b"with config: " + config.encode().replace(b"\n", b" "))
        yield LogEntry(at.url, FORMAT, settings=facts.settings)
    elif len(said) == 1 and isinstance(version, str):
        yield LogEntry(at.url, FORMAT, engine_version=version.partition("+")[0])
    elif body and said:
        source = Source(at.url, [body])
        try:
            yield from map(believable, detect(source).parse(source))
        except FormatError:
            return
