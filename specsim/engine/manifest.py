"""The little of YAML and Python in which servers are described: options, containers, calls.

No YAML parser: mappings, lists and flow values, as compose, kubectl and the engines take them.
"""

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice

_KEY = re.compile(r"(\s*)(?:- )?([\w.\"'-]+)\s*:(?:\s+(.*))?")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w{1,40})['\"]?([^\n]*)\n(.*?)\n\s*\1\s*(?:\n|\Z)", re.DOTALL)
_TARGET = re.compile(r"(?:>{1,2}|\btee)\s*([\w./~${}-]+)")
_PART = re.compile(
    r"\s*\"?(image|entrypoint|command|(?:extra|additional|server|vllm|sglang)?_?[aA]rgs)\"?"
    r"\s*(?::| = )\s*(.*)"
)
_ORDER = ("image", "entrypoint", "command", "args")


def yaml_mapping(text: str) -> dict[str, object]:
    """Return the nested mapping that simple YAML holds."""
    top: dict[str, object] = {}
    open_tables: list[tuple[int, dict[str, object]]] = [(-1, top)]
    last: tuple[dict[str, object], str] | None = None
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        item = re.fullmatch(r"\s*- ([^:]+)", line)
        if item and last:
            table, key = last
            listed = table[key] if isinstance(table[key], list) else []
            table[key] = [*listed, item[1].strip()] if isinstance(listed, list) else listed
            continue
        found = _KEY.fullmatch(line)
        if not found:
            continue
        indent, key, value = len(found[1]), found[2].strip("\"'"), (found[3] or "").strip()
        while open_tables[-1][0] >= indent:
            open_tables.pop()
        table = open_tables[-1][1]
        if value:
            table[key] = flow(value)
        else:
            inner: dict[str, object] = {}
            table[key] = inner
            open_tables.append((indent, inner))
        last = (table, key)
    return top


def flow(text: str) -> object:
    """Return what ``[a, b]``, ``{a: b}`` or a plain value holds."""
    text = text.strip()
    if text[:1] == "[" and text[-1:] == "]":
        return [part.strip(" \"'") for part in text[1:-1].split(",") if part.strip()]
    if text[:1] == "{" and text[-1:] == "}":
        pairs = (part.partition(":") for part in text[1:-1].split(",") if ":" in part)
        return {key.strip(" \"'"): value.strip(" \"'") for key, _, value in pairs}
    return text.strip("\"'")


def heredocs(text: str) -> tuple[dict[str, str], str]:
    """Return the files that a shell text writes, by name, and the text without them."""
    files: dict[str, str] = {}

    def keep(found: re.Match[str]) -> str:
        before = text[max(found.start() - 300, 0) : found.start()].rpartition("\n")[2]
        target = _TARGET.search(before) or _TARGET.search(found[2])
        if target:
            files[target[1]] = found[3]
        return "\n"

    return files, _HEREDOC.sub(keep, text)


def container_words(text: str) -> Iterator[list[str]]:
    """Yield the words of each container of a manifest: image, command, arguments."""
    parts: dict[str, list[str]] = {}
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        found = _PART.fullmatch(re.sub(r"^(\s*)- ", r"\1  ", lines[at]))
        at += 1
        if not found:
            continue
        key, value = found[1], found[2].strip().rstrip(",")
        key = "args" if key[-4:].lower() == "args" else key
        indent = len(lines[at - 1]) - len(lines[at - 1].lstrip(" -"))
        block = []
        while at < len(lines) and _inside(lines[at], indent, value):
            block.append(lines[at].strip())
            at += 1
        if key in parts:
            yield [word for name in _ORDER for word in parts.get(name, [])]
            parts = {}
        parts[key] = _words(value, block)
        if key == "image" and not value:  # a chart's: its parts by name
            of = yaml_mapping("\n".join(block))
            parts[key] = [f"{of.get('repository', '')}:{of.get('tag', '')}".strip(":")]
    if parts:
        yield [word for name in _ORDER for word in parts.get(name, [])]


_CALL = re.compile(
    r"\b(?P<engine>LLM|(?:Async)?EngineArgs|(?:sgl|sglang)\.Engine)(?=\()"
    r"|(?:(?:CMD|ENTRYPOINT)\s*)?(?=\[\s*[\"'])"
)
MOST_CALLS, MOST_CODE = 64, 2**14  # that are looked at, and their characters
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*|(?P<open>[(\[{])|(?P<close>[)\]}])"
)


def python_words(text: str, starts: Callable[[list[str]], bool]) -> tuple[list[list[str]], str]:
    """Return the words of commands that code holds, and the text without them.

    They are lists of words that start a server, as of Python and Dockerfiles, and calls of offline
    engines.
    """
    found, rest, end = [], [], 0
    for begin in islice(_CALL.finditer(text), MOST_CALLS):
        close = _closing(text, begin.end()) if begin.start() >= end else None
        try:
            call = "f" if begin["engine"] else ""
            node = ast.parse(call + text[begin.end() : close or 0], mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        if isinstance(node, ast.List):
            words = [str(_said(word)) for word in node.elts]
            if not starts(words):
                continue
        elif isinstance(node, ast.Call):
            offline = ["trtllm-serve"] if "tensorrt_llm" in text else ["vllm", "serve"]
            program = ["sglang.launch_server"] if begin["engine"][:2] == "sg" else offline
            said = _arguments(node).items()
            words = [*program, *(f"--{k.replace('_', '-')}={_written(v)}" for k, v in said)]
        else:
            continue
        found.append(words)
        rest.append(text[end : begin.start()])
        end = close or end
    return found, "".join([*rest, text[end:]])


def _closing(text: str, begin: int) -> int | None:
    """Return where the bracket closes that opens at `begin`; None if it does not."""
    depth = 0
    for token in _TOKEN.finditer(text, begin, begin + MOST_CODE):
        depth += bool(token["open"]) - bool(token["close"])
        if not depth:
            return token.end()
    return None


def _arguments(node: ast.Call) -> dict[str, object]:
    """Return the arguments of a call, the first as the model; a configuration names its kind."""
    name = ast.unparse(node.func).rpartition(".")[2]
    kind, config, _ = name.partition("DecodingConfig")
    said: dict[str, object] = {"decoding_type": kind} if config else {}
    said |= {"model": _said(node.args[0])} if node.args else {}
    return said | {part.arg: _said(part.value) for part in node.keywords if part.arg}


def _said(node: ast.expr) -> object:
    """Return what an expression says; a name where it is no constant."""
    if isinstance(node, ast.Call):
        said = _arguments(node)
        text = getattr(node.func, "id", "") == "str" and len(said) == 1
        return next(iter(said.values())) if text else said
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"${ast.unparse(node)}"


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _inside(line: str, indent: int, value: str) -> bool:
    """Whether a line belongs to the value that began above it."""
    if not line.strip():
        return True
    deep = len(line) - len(line.lstrip())
    listed = line.lstrip().startswith("- ") and not value and deep >= indent - 2
    return (
        deep > indent
        or (listed and not _PART.fullmatch(line.replace("- ", "  ", 1)))
        or (value[:1] == "[" and value[-1:] != "]" and line.strip()[:1] in "]\"'-")
    )


def _words(value: str, block: list[str]) -> list[str]:
    """Return the words of a command: a list, a flow list, a text in one or several lines."""
    flow, whole = value[:1] == "[", "\n".join([value, *block])
    text = whole if flow else re.sub(r"(?m)^(?:- +)?[>|]-?$|^- +", "", whole)
    if not flow and re.search(r"(?m)^(?:- +)?\|-?$", whole):
        return [text]  # a script: its lines are commands
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.whitespace += "[]," if flow else ""
    try:
        return list(lexer)
    except ValueError:  # a quotation that is not closed
        return [text]
