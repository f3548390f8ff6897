"""Is every launch line that specsim prints accepted by the release that it is printed for?

    python benchmarks/launch_lines.py FOLDER [--write]

FOLDER holds unpacked wheels as ``sglang-0.5.23`` and ``vllm-0.33.0`` (``pip download --no-deps``,
``unzip``) and sources of llama.cpp as ``llama.cpp-b11434``. Of each the declarations of its
arguments are read, with ast, and put into an argparse parser as that release does; nothing of an
engine is imported or run. ``--write`` puts the result into docs/validation/engines.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from specsim.engine import EngineSpec, engine_named
from specsim.errors import EngineRefusal, InputError, SpecsimError
from specsim.setting import Algorithm, SpecSetting

PAGE = Path(__file__).parents[1] / "docs/validation/engines.md"
GIB = 2**30
ALGORITHMS: tuple[Algorithm, ...] = (
    *("EAGLE", "EAGLE3", "MTP", "STANDALONE", "NGRAM", "SUFFIX"),
    *("DFLASH", "DSPARK", "P_EAGLE", "MEDUSA", "UNO"),
)


class Refused(Exception):
    """What a parser says when it does not take a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise Refused(message)


def lines(engine: str, version: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines that specsim prints for a release, with the settings that they are of."""
    asked = [SpecSetting.none(), SpecSetting.none("sequential")]
    for algorithm in ALGORITHMS:
        for topk, steps, tokens in ((1, 3, 4), (1, 7, 8), (2, 3, 6)):
            with suppress(InputError):  # some draft chains only
                asked.append(SpecSetting(algorithm, topk, steps, tokens))
                asked.append(SpecSetting(algorithm, topk, steps, tokens, "sequential"))
    server = EngineSpec(
        engine, version, tp=1, attention_backend="fa3" if engine == "sglang" else None
    )
    capped = replace(server, max_running_requests=64, cuda_graph_max_bs=32)
    for spec in (server, capped):
        for setting in asked:
            try:
                plan = engine_named(engine).plan(setting, spec, 80 * GIB, False)
            except (EngineRefusal, SpecsimError):
                continue
            draft = "org/draft" if setting.speculates and setting.family != "lookup" else None
            yield (
                f"{setting.algorithm} {setting.name}",
                engine_named(engine).launch_flags(plan, spec, draft),
            )
            yield from _tables(engine, spec, setting)


def _tables(engine: str, spec: EngineSpec, setting: SpecSetting) -> Iterator[tuple[str, list[str]]]:
    """Yield the flags of a table of draft steps by batch size."""
    syntax = engine_named(engine).schedule
    if syntax is None or setting.topk > 1 or not setting.speculates or setting.scheduler != "auto":
        return
    if syntax.limits(engine, spec.version, setting.algorithm, True):
        return
    rows = ((1, setting.num_steps), (16, 1), (64, 0))
    yield f"{setting.algorithm}, table", list(syntax.write(rows, 256).words)


# --- the parsers of the releases


def sglang_parser(folder: Path) -> Parser:
    """SGLang: fields with ``A[type, help or Arg(...)]``, or ``parser.add_argument`` calls."""
    srt = folder / "sglang/srt"
    parser = Parser(prog="sglang")
    files = [srt / "server_args.py", *sorted((srt / "arg_groups/fields").glob("*.py"))]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                if getattr(node.annotation.value, "id", "") == "A":
                    _sglang_field(parser, node)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                _add(parser, _strings(node.args), {k.arg: k.value for k in node.keywords})
    return parser


def _sglang_field(parser: Parser, node: ast.AnnAssign) -> None:
    kind, *about = node.annotation.slice.elts  # type: ignore[attr-defined]
    name = f"--{node.target.id.replace('_', '-')}"  # type: ignore[union-attr]
    given: dict[str | None, ast.expr] = {}
    for part in about:
        if isinstance(part, ast.Call):
            given |= {k.arg: k.value for k in part.keywords}
    if "no_cli" in given:
        return
    names = _strings([given["cli_name"]]) if "cli_name" in given else [name]
    names += _strings(given["aliases"].elts) if "aliases" in given else []  # type: ignore[attr-defined]
    text = ast.unparse(kind)
    if "action" in given:
        _add(parser, names, {"action": given["action"]})
    elif text == "bool":
        _add(parser, names, {"action": ast.Constant("store_true")})
    else:
        keywords = {"choices": given["choices"]} if "choices" in given else {}
        literal = re.search(r"Literal\[(.*?)\]", text)
        if literal:
            keywords = {"choices": ast.parse(f"[{literal[1]}]", mode="eval").body}
        kinds = {"int": "int", "float": "float"}
        plain = re.sub(r"Optional\[(.*)\]", r"\1", text)
        _add(parser, names, keywords, kinds.get(plain), listed=plain.startswith("List["))


def vllm_parser(folder: Path) -> Parser:
    """vLLM: ``add_argument`` calls; a flag of a bool field has a negative, too."""
    package = folder / "vllm"
    parser = Parser(prog="vllm", allow_abbrev=False)
    source = "\n".join(
        p.read_text(encoding="utf-8") for p in sorted((package / "config").glob("*.py"))
    )
    for node in ast.walk(ast.parse((package / "engine/arg_utils.py").read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        names = _strings(node.args)
        if not names:
            continue
        field = names[0].lstrip("-").replace("-", "_")
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        found = re.search(rf"(?m)^    {field}: ([^=\n]+)", source)
        kind = found[1].strip() if found else ""
        if "action" not in keywords and kind.startswith("bool"):
            keywords["action"] = ast.parse("argparse.BooleanOptionalAction", mode="eval").body
        number = "int" if kind.startswith("int") and "max_num" not in field else None
        _add(parser, names, keywords, number)
    return parser


def llama_parser(folder: Path) -> Parser:
    """llama.cpp: the names of ``common/arg.cpp``, but those removed, or of other programs."""
    text = next(folder.glob("**/common/arg.cpp")).read_text(encoding="utf-8")
    parser = Parser(prog="llama-server", allow_abbrev=False)
    for block in text.split("add_opt(common_arg(")[1:]:
        head = re.match(r'\s*\{([^}]*)\}\s*,\s*(?:\{[^}]*\}\s*,\s*)?(")?', block)
        if head is None or "has been removed" in block[:400]:
            continue
        programs = re.search(r"\.set_examples\(\{([^}]*)\}\)", block)  # all, where none is named
        if programs and not re.search("EXAMPLE_(?:SERVER|COMMON)\\b", programs[1]):
            continue
        names = re.findall(r'"(-[^"]+)"', head[1])
        read = re.search(r"\]\(common_params &[^,)]*(?:,([^)]*))?\)", block)
        value = read is not None and read[1] is not None and "bool" not in read[1]
        action = {} if value else {"action": ast.Constant("store_true")}
        _add(parser, names, action)  # type: ignore[arg-type]
    return parser


def _strings(nodes: list[ast.expr]) -> list[str]:
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _add(
    parser: Parser,
    names: list[str],
    keywords: dict[str | None, ast.expr] | dict[str, ast.expr],
    number: str | None = None,
    listed: bool = False,
) -> None:
    """Add an argument as its declaration has it; what cannot be read is taken as any value."""
    if not names or not names[0].startswith("-"):
        return
    options: dict[str, object] = {}
    action = keywords.get("action")  # type: ignore[call-overload]
    if action is not None:
        text = ast.unparse(action).strip("'")
        if "BooleanOptionalAction" in text:
            options["action"] = argparse.BooleanOptionalAction
        elif text in ("store_true", "store_false") or "StoreTrue" in text or "StoreConst" in text:
            options["action"] = "store_true"
        elif "Deprecated" in text and "Alias" not in text:
            return
    if "action" not in options:
        options["type"] = {"int": int, "float": float}.get(number or "", str)
        choices = keywords.get("choices")  # type: ignore[call-overload]
        if isinstance(choices, ast.List) and (said := _strings(choices.elts)):
            options["choices"] = said
        if listed or "nargs" in keywords:
            options["nargs"] = "*"
    try:
        parser.add_argument(*names, **options)  # type: ignore[arg-type]
    except argparse.ArgumentError:  # declared twice in this file
        return


PARSERS = {"sglang": sglang_parser, "vllm": vllm_parser, "llama.cpp": llama_parser}


def check_json(engine: str, folder: Path, words: list[str]) -> None:
    """Refuse a speculative configuration of vLLM with a key or method that the release lacks."""
    if engine != "vllm" or "--speculative-config" not in words:
        return
    source = (folder / "vllm/config/speculative.py").read_text(encoding="utf-8")
    said = json.loads(words[words.index("--speculative-config") + 1])
    for key in said:
        if not re.search(rf"(?m)^    {key}\s*:", source):
            raise Refused(f"no key {key} in --speculative-config")
    if "method" in said and f'"{said["method"]}"' not in source:
        raise Refused(f"no method {said['method']}")


def check(engine: str, version: str, folder: Path) -> tuple[int, list[str]]:
    """Return how many lines a release takes, and what it says of those that it refuses."""
    parser = PARSERS[engine](folder)
    taken, refused = 0, []
    for name, words in lines(engine, version):
        try:
            _, unknown = parser.parse_known_args(words)
            if unknown:
                raise Refused(f"unrecognized arguments: {' '.join(unknown)}")
            check_json(engine, folder, words)
            taken += 1
        except Refused as error:
            refused.append(f"{name}: {' '.join(words)}: {error}")
    return taken, refused


def main() -> None:
    root = Path(sys.argv[1])
    rows = []
    for folder in sorted(root.iterdir(), key=_order):
        engine, _, version = folder.name.partition("-")
        if engine not in PARSERS:
            continue
        taken, refused = check(engine, version, folder)
        rows.append(f"| {engine} {version} | {taken + len(refused)} | {taken} |")
        print(rows[-1])
        for line in refused[:5]:
            print("   ", line)
    if "--write" in sys.argv:
        head = PAGE.read_text(encoding="utf-8").partition("| release |")[0]
        table = ["| release | launch lines | accepted |", "|---|---|---|", *rows]
        PAGE.write_text(head + "\n".join(table) + "\n", encoding="utf-8")


def _order(folder: Path) -> list[object]:
    engine, _, version = folder.name.partition("-")
    return [engine, [int(n) for n in re.findall(r"\d+", version)]]


if __name__ == "__main__":
    main()
