"""A launch command as people paste it -> what it says of its server.

:func:`parse_command` takes the first command of a text, :func:`launches_in` all of them: SGLang,
vLLM, TensorRT-LLM, llama.cpp and what resembles them, under docker, kubectl, compose files,
environment variables and line continuations. Nothing is run, and no file is opened: `read` gives
the content of files that a command names.

To use it: ``launch.settings`` has the keys of a log's settings (``LogEntry.settings``), so it joins
them as it is.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from specsim.engine import engine_named
from specsim.engine.flags import NEUTRAL, UNMODELLED, flag_named, said_by
from specsim.engine.manifest import container_words, flow, heredocs, python_words, yaml_mapping
from specsim.engine.rules import rows, table
from specsim.errors import InputError
from specsim.setting import NO_SPECULATION

Read = Callable[[str], str | None]

SUBCOMMANDS = ("serve", "run", "throughput", "latency", "disaggregated", "mm_embedding_serve")
_ENDS = frozenset(";&|<>\n")
_VERSION = re.compile(
    r"[:-]v?(\d{1,4}\.\d{1,3}\.\d{1,4}(?:\.?(?:post|rc)\d{1,3})?)(?![\d.])|-(b\d{4,6})\b"
)
_PINNED = re.compile(r"\b(sglang|vllm|tensorrt[-_]llm)(?:\[[\w,]+\])?==([\w.]{3,24})")
_ASSIGNED = re.compile(
    r"(?m)^\s*(?:export\s+|set\s+|\$(?:env:)?)?([A-Za-z_]\w{0,63})(?:=|\s{1,9}=\s{1,9}(?=[\"'\d]))"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|]*)"
)
_DECLARED = re.compile(r"- name:\s*[\"']?(\w{1,64})[\"']?\s*\n\s*value:\s*([^\s#]{1,200})")
_VARIABLE = re.compile(r"\$[{(]?([A-Za-z_]\w{0,63})(?::-([^}]*))?[})]?")
_ENVIRONMENT = re.compile(
    r"\b((?:SGLANG|VLLM|TRTLLM|LLAMA_ARG|OLLAMA)_[A-Z0-9_]{2,60})(?:=|:\s+|[\"']?\s*\n\s*value:\s*)"
    r"[\"']?([\w./,+-]{1,200})"
)
OF_COMMANDS = "command"
"""Marks states of which a setup says nothing: what a command says of them is noted."""
_TYPESET = (
    (re.compile(r"[ \t]{100,}"), " "),  # in which each blank would be looked at anew
    # what word processors and chats make of quotes and dashes; a list as a Dockerfile has it
    (re.compile(r"[\u201c\u201d](?=\{)|(?<=\})[\u201c\u201d]|[\u2018\u2019]"), "'"),
    (re.compile(r"[\u201c\u201d]"), '"'),
    (re.compile(r"\"(\{(?=[^\n'\\]*\")[^\n'\\]*?\})\"(?=\s|\Z)"), r"'\1'"),
    (re.compile(r"(?<=\s)(?:\u2014|[\u2013-]?\u2013|\u2013-)(?=[A-Za-z])"), "--"),
    # variables of Python's formatted texts, and of Windows
    (
        re.compile(r"(?<=[=(,\[\s])[fF](\"[^\"\n]*\"|'[^'\n]*')"),
        lambda text: re.sub(r"\{(\w+)[^{}]*\}", r"${\1}", text[1]),
    ),
    (re.compile(r"%([A-Za-z_]\w{0,63})%"), r"${\1}"),
)
_SHELL = (
    # comments, lines that go on, paths of Windows, lines broken where they were pasted, `2> file`,
    # code within a sentence
    (re.compile(r"(?m)^\s*#(?![^\n]*\\$)(?!\s*(?:python|vllm|sglang|trtllm|llama)).*$"), ""),
    (re.compile(r"(?:[ \t]*[\\^]|[ \t]+`)[ \t]*(?:#[^\n]*)?\r?\n\s*"), " "),
    (re.compile(r"(?<=[\w:.])\\(?=\w)"), "/"),
    (re.compile(r"\n\s*(?=--?[A-Za-z])"), " "),
    (re.compile(r"(?<=\s)\d(?=[<>])"), ""),
    (re.compile(r"(?<=\S)`"), " ;"),
    (re.compile(r"`"), " "),
)
_MANIFEST = re.compile(r"(?m)^\s*(?:- )?\"?(?:image|command|args|entrypoint)\"?\s*(?::| = [\"\[])")
LIMIT = 2**18  # characters of a text that are looked at


@cache
def _known(kind: str) -> tuple[tuple[str, str, str], ...]:
    """Return words that start a server (`program`), parts of image names, names of a `fork`.

    Each with its engine, and with the dialect where it only resembles that engine; of what starts
    `other` servers the name alone.
    """
    listed = (row for row in table("programs") if row["kind"] == kind)
    return tuple((row["text"], row["engine"], row["dialect"]) for row in listed)


@cache
def program() -> re.Pattern[str]:
    """Return what finds the words that start a server."""
    names = (re.escape(words).replace(r"\ ", r"(?:\.exe)?\s+") for words, _, _ in _known("program"))
    return re.compile(rf"(?<![\w-])(?:{'|'.join(names)})(?:\.exe)?(?![\w-])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a command says of its server."""

    engine: str  # whose rules it is read by
    version: str | None = None  # as an image or an installation beside it says
    dialect: str = ""  # what it is, where it only resembles that engine
    settings: Mapping[str, object] = field(default_factory=dict)  # by the keys of a log's settings
    unknown: tuple[str, ...] = ()  # arguments that were not understood, once each
    notes: tuple[str, ...] = ()  # what was taken how


def parse_command(text: str, read: Read | None = None) -> Launch | None:
    """Return what the first launch command of a text says; None if there is none.

    The text may be a command line, a script, a compose file or a manifest. `read` gives the content
    of a file that the command names (``--config``), None if there is none. Raises
    :class:`InputError` if a quotation or a JSON value is not closed, or if what is launched is
    another server than those that are known.
    """
    return next(launches_in(text, read), None)


def launches_in(text: str, read: Read | None = None) -> Iterator[Launch]:
    """Yield what each launch command of a text says, as :func:`parse_command` does."""
    text = text[:LIMIT]
    for pattern, plainly in _TYPESET:
        text = pattern.sub(plainly, text)
    files, shell = heredocs(text)
    environment = dict(_ENVIRONMENT.findall(shell))

    def content(name: str) -> str | None:
        return files.get(name) or (read(name) if read is not None else None)

    pinned = {name.replace("_", "-"): version for name, version in _PINNED.findall(shell)}
    fork = next((name for part, _, name in _known("fork") if part in shell), "")
    found = False
    for words in _commands(shell):
        if (started := _started(words, environment)) is None:
            continue
        found = True
        engine, dialect, version, rest = started
        settings, unknown, notes = _read(engine, rest, environment, content)
        yield Launch(
            engine=engine,
            version=version or pinned.get(engine),
            dialect=dialect or fork,
            settings=settings,
            unknown=unknown,
            notes=(*notes, *_told(engine, dialect or fork, settings, unknown)),
        )
    if not found:
        for word, _, name in _known("other"):
            if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", shell):
                remedy = "name the engine that is nearest to it: --engine sglang, vllm, llama.cpp"
                raise InputError(name, "is a server whose rules specsim does not know", remedy)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command that may launch a server."""
    if _MANIFEST.search(text):
        variables = _variables(text)
        for words in container_words(text):
            yield from _split(words, variables)
        return
    listed, text = python_words(text, _starts_server)
    variables = _variables(text)
    for words in listed:
        yield from _split(words, variables)
    for pattern, plainly in _SHELL:
        text = pattern.sub(plainly, text)
    variables = _variables(text)
    for start in _starts(text):
        yield from _split(_lexed(text[start:]), variables)


def _starts(text: str) -> list[int]:
    lines = list(re.finditer(r"(?m)^.*$", text))
    image = re.compile(r"\b(?:docker|podman|nerdctl|apptainer|singularity)\b.*\b(?:run|exec)\b")
    return [m.start() for m in lines if program().search(m[0]) or image.search(m[0])]


def _lexed(text: str) -> list[str]:
    """Return the words of the first command line of a text, as a shell splits them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= _ENDS and "\n" in word and _starts_server(words):
                break
            words.append(word)
    except ValueError:
        if (command := program().search(text)) and command.start():  # of the sentence before it
            return _lexed(text[command.start() :])
        why = "has a quotation that is not closed"
        raise InputError(text[:60].strip(), why, "close it") from None
    return words


def _starts_server(words: Sequence[str]) -> bool:
    """Whether a word, or up to three neighbours as in ``vllm bench latency``, start a server."""
    neighbours = (zip(*(words[at:] for at in range(n)), strict=False) for n in (1, 2, 3))
    return any(program().search(" ".join(of)) for some in neighbours for of in some)


def _variables(text: str) -> dict[str, str]:
    """Return what a script or a manifest sets."""
    said = (*_ASSIGNED.findall(text), *_DECLARED.findall(text))
    return {name: value.strip("\"'") for name, value in said}


def _split(words: Sequence[str], variables: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the commands among words; a word that holds a command line is one of its own."""

    def value(of: re.Match[str]) -> str:
        return str(variables.get(of[1], of[0] if of[2] is None else of[2]))

    plain = [_VARIABLE.sub(value, word) for word in words]
    nested = [word for word in plain if re.search(r"\s", word) and program().search(word)]
    image = next((w for w in plain if _image(w)), None)
    for word in nested:
        for inner in _commands(word):
            yield [image, *inner] if image else inner
    if not nested:
        yield plain


def _image(word: str) -> tuple[str, str] | None:
    """Return the engine and the dialect of a container image."""
    name = word.rpartition("=")[2].removeprefix("docker://")
    if name.startswith(("-", "/", ".", "~")) or ("/" not in name and ":" not in name):
        return None
    tagged = re.fullmatch(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*(?:[:@][\w.:+-]+)?", name)
    repository = re.split(r"[:@](?=[^/]*$)", name)[0]
    return next(
        ((e, d) for part, e, d in _known("image") if tagged and f"/{repository}".endswith(part)),
        None,
    )


def _started(
    words: list[str], environment: Mapping[str, str]
) -> tuple[str, str, str | None, list[str]] | None:
    """Return engine, dialect, release and arguments of the server that words start, if any."""
    version = None
    engine, dialect, rest = "", "", list[str]()
    for at, word in enumerate(words):
        if (image := _image(word)) and not engine:
            found = _VERSION.search(word.replace("_", "-"))
            (engine, dialect), rest = image, words[at + 1 :]
            # of what only resembles the engine the releases are its own
            version = (found[1] or found[2]) if found and not dialect else None
            continue
        for name, of, as_dialect in _known("program"):
            size = len(name.split())
            shown = " ".join(words[at : at + size]).replace("\\", "/").rpartition("/")[2]
            if shown.replace(".exe", "") == name:
                return of, as_dialect, version, words[at + size :]
    told = rest or (engine == "llama.cpp" and any(k.startswith("LLAMA_ARG") for k in environment))
    return (engine, dialect, version, rest) if told else None


def _read(
    engine: str, words: Sequence[str], environment: Mapping[str, str], content: Read
) -> tuple[dict[str, object], tuple[str, ...], list[str]]:
    """Return the settings that arguments say, what is not understood of them, what is missing."""
    positional, arguments = _arguments(engine, words)
    names = [name for name in arguments if (f := flag_named(engine, name)) and f.kind == "file"]
    names += [name for name in arguments if name.lstrip("-") == "config" and name not in names]
    notes = []
    for name in names:
        file = str(arguments.pop(name))
        inside = content(file)
        if inside is None:
            notes.append(f"not found: {name} {file}, whose settings are not known")
        else:
            arguments = {**yaml_mapping(inside), **arguments}
    variables = {name.removeprefix("LLAMA_ARG_"): value for name, value in environment.items()}
    said = {name.lower(): value for name, value in variables.items()}
    arguments = {**{k: v for k, v in said.items() if flag_named(engine, k)}, **arguments}
    raw, unknown = said_by(engine, arguments)
    others = [word for word in positional if word not in SUBCOMMANDS]
    if others and "model" not in raw:
        raw["model"] = arguments["model"] = others[0]
    open_ = sorted({f"{name} {text}" for name, text in arguments.items() if "$" in str(text)})
    notes += [f"{name}: the text does not say what that is" for name in open_]
    rules = engine_named(engine)
    settings = rules.settings({k: v for k, v in raw.items() if "$" not in str(v)})
    settings = rules.completed(settings)
    if "algorithm" not in settings and not any("not known" in note for note in notes):
        settings |= NO_SPECULATION
    if not notes:  # nothing that it says is missing
        settings.setdefault("tp", 1)
    if UNMODELLED in raw:
        settings[UNMODELLED] = raw[UNMODELLED]
    return settings, (*(name for name in unknown if "$" not in name), *others[1:]), notes


def _arguments(engine: str, words: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """Return the words without a flag, and flags with their values, up to the command's end."""
    positional: list[str] = []
    found: dict[str, object] = {}
    ends = next((i for i, word in enumerate(words) if word and set(word) <= _ENDS), len(words))
    rest = list(words[:ends])
    while rest:
        word = rest.pop(0)
        if word[:1] == "#":  # a comment
            break
        if not re.match(r"--?[A-Za-z]", word):
            positional.append(word)
            continue
        name, joined, value = word.partition("=")
        head, dot, tail = name.partition(".")
        flag = flag_named(engine, name) or (flag_named(engine, head) if dot else None)
        if flag is not None and dot and flag.kind == "json":
            name = f"{flag.names[0].lstrip('-').replace('-', '_')}.{tail}"
            flag = flag_named(engine, name) or flag
        takes = flag.takes_value if flag is not None else bool(rest) and rest[0][:1] != "-"
        off = flag is None and flag_named(engine, name.replace("--no-", "--", 1))
        if off and not joined and off.kind == "switch":
            name, value = name.replace("--no-", "--", 1), "false"
        elif flag is not None and flag.kind in ("list", "largest") and not joined:
            value = " ".join(iter(lambda: rest.pop(0) if rest and rest[0][:1] != "-" else "", ""))
        elif takes and not joined and rest and (flag is None or _is_value(flag.kind, rest[0])):
            value = rest.pop(0)
        elif not takes and not joined:
            value = "true"
        if flag is not None and flag.setting not in (NEUTRAL, UNMODELLED):  # the last one counts
            found = {n: v for n, v in found.items() if flag_named(engine, n) is not flag}
        if flag is not None and flag.kind == "json":
            name = flag.names[0].lstrip("-") if "." not in name else name
            found.update({name.replace("-", "_"): _json(word, value)})
        else:
            found[name] = value
    return positional, found


def _is_value(kind: str, word: str) -> bool:
    """Whether a word is a flag's value: another flag is none, a negative number is one."""
    return (kind == "text" and word[:2] != "--") or not re.match(r"--?[A-Za-z]", word)


def _json(flag: str, text: str) -> object:
    """Return what a value in JSON, or in the plain form of its flag, says."""
    if text.strip()[:1] not in "{[":
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        try:  # unquoted in a paste, or as Python writes it
            value = json.loads(
                re.sub(r"'", '"', text).replace("True", "true").replace("False", "false")
            )
        except (ValueError, RecursionError):
            if bare := re.fullmatch(r"\s*(\{(?:[\w.]+:[\w./-]+,?)+\})\s*", text):
                return flow(bare[1])  # its quotes were lost
            remedy = 'quote it: \'{"method": "eagle3", ...}\''
            raise InputError(f"{flag} {text[:60]}", "is not JSON", remedy) from None
    return value


def _told(
    engine: str, dialect: str, settings: Mapping[str, object], unknown: Sequence[str]
) -> Iterator[str]:
    """Yield what is to be said of a command."""
    if dialect:
        more = [f"; it {text}" for text, _, of in _known("dialect") if of == dialect]
        yield f"{dialect} is read as {engine}, which it resembles{''.join(more)}"
    for row in rows("states", OF_COMMANDS):
        value = settings.get(row["field"])
        if row["engine"] == OF_COMMANDS and value not in (None, False, 1, 1.0, "null"):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            yield row["text"].format(value=shown)
    if unknown:
        yield f"not understood, and taken as without effect: {', '.join(unknown)}"
