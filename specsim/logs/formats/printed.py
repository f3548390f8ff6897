"""What programs print in lines: figures in sentences, or after labels, of ``benchmarks.toml``."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from specsim.logs.diagnose import finding
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.formats import listed, pattern
from specsim.logs.formats._benchmarks import Said, figures_of, names
from specsim.logs.formats._results import collected, engine_of, entry_of, row_of, run_entry
from specsim.logs.paste import VERSION, Above
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, MISSING, TRUNCATED, check, counted
from specsim.setting import algorithm_name, chain_settings

NAME = "console"
TEXTS = ("model", "quantisation", "kv_dtype", "version")
_LABELLED = re.compile(r"([A-Za-z\[][^:\n]{1,60}?) *:\s+(\S[^\n]{0,99}?)[ \t]*\r?\n?")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:E[+-]\d\d)?")
_POSITION = re.compile(r"acceptance at token (\d{1,2}):\s*(\d\.\d{2,6})\s*")
_FLAG = re.compile(
    r"--(method|num[-_]spec(?:ulative)?[-_]tokens|model|model-dir)[ =]([\w./-]{1,99})"
)
ALWAYS = ("eagle", "eagle3", "mtp", "draft_model")  # draft in every round
FULL_SHARE = 0.95  # share of rounds with a draft from which on all have one: prompts have none


def parse_console(source: Source) -> list[LogEntry]:
    """Read sentences of ``[console.PROGRAM]``: a run ends with the figure that is printed last.

    Lines of no program are a person's: labels, and the command whose settings the figures are of.
    """
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
                    results.append(_of_console(program, said[program], above[program]))
                said[program] = {}
        unread[DAMAGED] += not read and marks.search(line) is not None
        for one in above.values():
            one.read(line)
    return collected(results, unread, source.path, NAME)


def _of_console(program: str, said: Said, above: Above) -> LogEntry:
    label, launch = above.label, dict(above.launch())
    version = launch.pop(VERSION, None)
    entry = run_entry(program, said, launch)
    return replace(entry, label=label, engine_version=str(version) if version else None)


def _labelled(
    source: Source,
    program: str,
    entry: Callable[[Said], LogEntry],
    otherwise: Callable[[str], Said] = lambda line: {},
) -> list[LogEntry]:
    """Read lines ``label: value`` with the labels of a program; `otherwise` reads other lines.

    A figure that comes again begins another run.
    """
    labels = names("lines", program)
    begun = re.compile(rf"(?:{'|'.join(map(re.escape, labels))}) *:")
    unread: Counter[str] = Counter()
    runs: list[Said] = [{}]
    for raw in source.lines():
        line = raw.decode("utf-8", "replace")
        found = _LABELLED.fullmatch(line)
        name = labels.get(found[1]) if found else None
        if found is None or name is None:
            new = otherwise(line)
            unread[DAMAGED] += 1 if not new and begun.match(line) else 0
        elif name in TEXTS:
            new = {name: found[2]}
        else:
            new = {name: float(found[2])} if _NUMBER.fullmatch(found[2]) else {}
            unread[DAMAGED] += not new and found[2] != "None"
        if new and not raw.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
        elif new:
            if new.keys() & runs[-1].keys():
                runs.append({})
            runs[-1] |= new
    entries = []
    for said in filter(figures_of, runs):
        with counted(unread):
            entries.append(entry(said))
    return collected(entries, unread, source.path, program)


def parse_trtllm_bench(source: Source) -> list[LogEntry]:
    """Read reports of ``trtllm-bench``."""
    return _labelled(source, "trtllm_bench", partial(run_entry, "trtllm_bench"))


def parse_offline(source: Source) -> list[LogEntry]:
    """Read vLLM's example of speculative decoding, and ``vllm bench throughput``."""
    return _labelled(source, "vllm_offline", _offline_entry, _of_offline)


def _of_offline(line: str) -> Said:
    """Figures of a line without a label: a position, a progress bar, speeds, flags."""
    if found := _POSITION.fullmatch(line):
        return {f"position {int(found[1])}": float(found[2])}
    for text in names("sentences", "vllm_offline"):
        if found := re.search(text, line):
            return {name: float(value) for name, value in found.groupdict().items()}
    flags = ((name.replace("-", "_"), value) for name, value in _FLAG.findall(line))
    return {name.removesuffix("_dir"): value for name, value in flags}


def _offline_entry(stated: Said) -> LogEntry:
    said = figures_of(stated)
    rates = {name: said.pop(name) for name in list(said) if name.startswith("position ")}
    check(said.get("output_tps") or said.get("drafts"), MISSING)
    n, tokens, tps = map(said.get, ("num_requests", "output_tokens", "output_tps"))
    into = said.pop("input_tps", None)
    if n and tokens and tps:
        said["duration_s"] = tokens / tps
        if into is not None:
            said["input_len"] = into / tps * tokens / n
    if n:
        said["concurrency"] = n  # all were sent at once
    survival = [rates[name] for i in range(len(rates)) if (name := f"position {i}") in rates]
    row = row_of(said, survival if len(survival) == len(rates) else None, accept_length_scope="run")
    settings: dict[str, object] = {}
    said_k = str(stated.get("num_spec_tokens", ""))
    k = int(said_k) if re.fullmatch(r"\d{1,3}", said_k) else 0
    k = k or len(rates)
    row, rare = _over_all_rounds(row, said, k, stated.get("method"))
    if k and said.get("drafts"):
        check(len(rates) <= k, CONTRADICTION)
        check(said.get("drafted", 0.0) <= 1.001 * k * said["drafts"], CONTRADICTION)
        settings |= chain_settings(k)
    if method := stated.get("method"):
        settings["algorithm"] = algorithm_name(str(method))
    if model := stated.get("model"):
        settings["model"] = model
    entry = entry_of("vllm_offline", row, settings, "vllm")
    return replace(entry, diagnoses=(rare,)) if rare else entry


def _over_all_rounds(
    row: LogRow, said: Mapping[str, float], k: int, method: object
) -> tuple[LogRow, Diagnosis | None]:
    """Count the rounds in which a request had no draft, which the printed length leaves out.

    Each gave one token, and so did each prompt. Without the number of all tokens nothing is known
    of them, so neither is the accept length.
    """
    drafts, tokens, accepted = map(said.get, ("drafts", "output_tokens", "accepted"))
    if method in ALWAYS and (tokens is None or not drafts):
        return row, None
    if not drafts or tokens is None or accepted is None:
        return replace(row, accept_length=None, drafted_per_round=None), None
    rounds = tokens - accepted
    check(rounds >= drafts, CONTRADICTION)
    if drafts >= FULL_SHARE * (rounds - said.get("num_requests", 0.0)):
        return row, None
    drafted, over_all = said.get("drafted", 0.0), tokens / rounds
    told = {"drafts": drafts, "rounds": rounds, "each": drafted / drafts, "k": k}
    told |= {"length": row.accept_length or 0.0, "over_all": over_all}
    row = replace(row, accept_length=over_all, drafted_per_round=drafted / rounds)
    return row, finding("partial_drafting", "rare", **told)
