"""Figures that programs print in sentences: ``[console.PROGRAM]`` of ``benchmarks.toml``.

Lines of no program are a person's: labels, and the command whose settings the figures are of.
"""

from collections import Counter
from dataclasses import replace

from specsim.logs.entry import LogEntry
from specsim.logs.formats import listed, pattern
from specsim.logs.formats._benchmarks import Said, names
from specsim.logs.formats._results import engine_of, joined, run_entry, with_unread
from specsim.logs.paste import VERSION, Above
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED, counted

NAME = "console"


def parse(source: Source) -> list[LogEntry]:
    """Read runs: each ends with the figure that its program prints last."""
    marks = pattern("|".join(listed("formats", NAME)["mark"]))
    above = {name: Above(engine_of(name.split("_")[0]) or "") for name in names(NAME)}
    said: dict[str, Said] = {name: {} for name in above}
    unread: Counter[str] = Counter()
    results: list[LogEntry] = []
    for line in source.lines():
        read = False
        for program, of in names(NAME).items():
            if "restarts" in of and pattern(of["restarts"]).match(line):
                results = [result for result in results if result.format != program]
            for found in filter(None, (pattern(text).search(line) for text in of["lines"])):
                known = {k: float(v) for k, v in found.groupdict().items() if v}
                if any(said[program].get(k, v) != v for k, v in known.items()):
                    said[program] = {}  # another run, and the last one did not end
                said[program] |= known
                read = True
            if of["last"] in said[program]:
                with counted(unread):
                    results.append(_entry(program, said[program], above[program]))
                said[program] = {}
        unread[DAMAGED] += not read and marks.search(line) is not None
        for one in above.values():
            one.read(line)
    return with_unread(joined(results, source.path), +unread, source.path, NAME)


def _entry(program: str, said: Said, above: Above) -> LogEntry:
    label, launch = above.label, dict(above.launch())
    version = launch.pop(VERSION, None)
    entry = run_entry(program, said, launch)
    return replace(entry, label=label, engine_version=str(version) if version else None)
