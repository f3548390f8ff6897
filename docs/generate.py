"""What the documentation takes from the code: command line, JSON documents, Python names.

mkdocs calls the hooks at the end. ``python docs/generate.py cli`` prints a page; so do json, python
and validation.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parent.parent

MODULES = (
    "specsim.setting",
    "specsim.workload",
    "specsim.question",
    "specsim.predict",
    "specsim.curve",
    "specsim.profile",
    "specsim.acceptance",
    "specsim.tree",
    "specsim.analytic",
    "specsim.simulate",
    "specsim.calibrate.fit",
    "specsim.calibrate.validate",
    "specsim.calibrate.sources",
    "specsim.decide.outlook",
    "specsim.decide.recommend",
    "specsim.decide.breakeven",
    "specsim.decide.adaptive",
    "specsim.decide.plan",
    "specsim.decide.compare",
    "specsim.scenario",
    "specsim.report.timeline",
    "specsim.report.timeline_views",
    "specsim.report.figure",
    "specsim.report.plots_curve",
    "specsim.report.plots",
    "specsim.errors",
)
"""Modules that people call; the others are inner workings."""

DOCUMENTS = (
    ("specsim.curve", "Curve", "predict --json"),
    ("specsim.decide.contest", "Verdict", "predict --json` under `verdict"),
    ("specsim.logs.document", "LogDocument", "read --json"),
    ("specsim.decide.recommend", "Recommendation", "recommend --json"),
    ("specsim.decide.breakeven", "BreakEvens", "breakeven --json"),
    ("specsim.decide.compare", "ServerComparison", "compare --json"),
    ("specsim.decide.plan", "MeasurementPlan", "plan --json"),
    ("specsim.decide.adaptive", "LoadAnswer", "schedule --json"),
    ("specsim.probe.document", "ProbeDocument", "probe"),
)


def cli_page() -> str:
    """Return the help of every command."""
    import io
    import os
    from contextlib import redirect_stdout

    from specsim.cli.main import COMMANDS, run

    os.environ["COLUMNS"] = "100"

    def helped(*words: str) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            code = run([*words, "--help"])
        assert code == 0, words
        lines = [line.rstrip() for line in out.getvalue().strip().splitlines()]
        return "\n".join(lines)

    parts = ["# Command line\n", "Generated from the code.\n", f"```text\n{helped()}\n```\n"]
    parts += [f"## specsim {name}\n\n```text\n{helped(name)}\n```\n" for name in COMMANDS]
    parts.append(
        "## Exit codes\n\n0: done. 2: input that cannot be used; one line on stderr says what, why "
        "and what to do. 1: a bug. 130: interrupted.\n"
    )
    return "\n".join(parts)


def json_page() -> str:
    """Return the fields of the JSON documents."""
    parts = [
        "# JSON documents\n",
        "Generated from the types that are written. SI units, as the names say; "
        "fractions are fractions; what could not be had is null.\n",
    ]
    for place, name, command in DOCUMENTS:
        parts += _dataclass_parts(place, name, command)
    return "\n".join([*parts, *_validation_fields()])


def _dataclass_parts(place: str, name: str, command: str) -> list[str]:
    """Return the fields of a dataclass and of every dataclass in it."""
    module = importlib.import_module(place)
    title, classes = module.SCHEMA, [getattr(module, name)]
    parts = [f"## {title}\n\n`specsim {command}`.\n"]
    for part in classes:  # grows
        hints = get_type_hints(part)
        shown = [f.name for f in fields(part) if f.metadata.get("json", True)]
        rows = [f"| `{name}` | {_words(hints[name], classes)} |" for name in shown]
        text = " ".join((inspect.getdoc(part) or "").split())
        heading = [] if part is classes[0] else [f"### {part.__name__} ({title})\n"]
        parts += [*heading, f"{text}\n", "| field | type |", "|---|---|", *rows, ""]
    return parts


def _words(hint: Any, classes: list[type]) -> str:
    """Write a type in words, and note the dataclasses in it."""
    inner = get_args(hint)
    if hint is type(None):
        return "null"
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if get_origin(hint) is tuple:
        return f"list of {_words(inner[0], classes)}"
    if get_origin(hint) in (dict, Mapping):
        return f"table of {_words(inner[1], classes)}"
    if inner:
        return " or ".join(_words(one, classes) for one in inner)
    if is_dataclass(hint) and hint not in classes:
        classes.append(hint)
    names = {str: "text", float: "number", int: "whole number", bool: "yes or no", object: "any"}
    return names.get(hint, hint.__name__)


def json_schema(place: str, name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document: of the fields that `documents.document` writes."""
    from pydantic import TypeAdapter

    module = importlib.import_module(place)
    schema = TypeAdapter(getattr(module, name)).json_schema()
    if "schema" not in schema["properties"]:  # written before the fields of a dataclass
        schema["properties"] = {"schema": {"const": module.SCHEMA}, **schema["properties"]}
    for part in (schema, *schema.get("$defs", {}).values()):
        part.setdefault("additionalProperties", False)
        for field in _unwritten(module, part.get("title", "")):
            part["properties"].pop(field, None)
    return schema


def _unwritten(module: ModuleType, kind: str) -> list[str]:
    """Name the fields of a dataclass that no document has."""
    known = getattr(module, kind, None)
    if not dataclasses.is_dataclass(known):
        return []
    return [f.name for f in dataclasses.fields(known) if not f.metadata.get("json", True)]


def _validation_fields() -> list[str]:
    """Return the fields of a validation: columns of observations.csv, then the comparison."""
    from specsim.calibrate import validate
    from specsim.observations import SCHEMA

    meaning = {column.name: column.meaning for column in SCHEMA}
    row = [f"| `{name}` | {meaning[name]} |" for name in validate.ASKED]
    row += [
        f"| `{name}` | {_first_line(validate.ValidatedRow, name)} |" for name in validate.COMPARED
    ]
    summary = [f"| `{n}` | {_first_line(validate.Validation, n)} |" for n in validate.SUMMARY]
    return [
        "## specsim.validation/1\n\n`specsim validate --json`: `rows`, `summary`, `notes`.\n",
        *("### A row\n", "| field | meaning |", "|---|---|", *row, ""),
        *("### Summary\n", "| field | meaning |", "|---|---|", "| `n` | Rows |", *summary, ""),
    ]


def _first_line(owner: type, name: str) -> str:
    member = vars(owner)[name]
    text = inspect.getdoc(member) if isinstance(member, property) else None
    return (text or name).splitlines()[0].rstrip(".")


def python_page() -> str:
    """Return signatures and docstrings of what modules export."""
    import specsim

    names = ", ".join(f"`{name}`" for name in specsim.__all__)
    parts = ["# Python\n", f"Generated from the code. At the top: {names}.\n"]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        parts.append(f"## {module_name}\n\n{(module.__doc__ or '').strip().splitlines()[0]}\n")
        exported = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
        for name in exported:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                parts.append(_described(name, value))
    return "\n".join(parts)


def _described(name: str, value: Any) -> str:
    """Return one signature with its docstring; methods of a class below it."""
    lines = [f"{name}{_signature(value)}", *_indented(inspect.getdoc(value))]
    if inspect.isclass(value):
        for inner, member in vars(value).items():
            function = member.__func__ if isinstance(member, classmethod) else member
            if inner.startswith("_") or not (
                inspect.isfunction(function) or isinstance(function, property)
            ):
                continue
            shown = "" if isinstance(function, property) else _signature(function)
            first = (inspect.getdoc(function) or "").splitlines()[:1]
            lines += ["", f"    .{inner}{shown}", *(f"        {line}" for line in first)]
    text = "\n".join(lines)
    return f"```text\n{text}\n```\n"


def _signature(value: Any) -> str:
    try:
        return str(inspect.signature(value)).replace("'", "")
    except (TypeError, ValueError):
        return ""


def _indented(text: str | None) -> list[str]:
    return [f"    {line}".rstrip() for line in (text or "").splitlines()]


def parameters_page() -> str:
    """Return the registry of parameters, with the priors on a server of eight GPUs."""
    from specsim.parameters import ACCEPTANCE, COST, Facts

    server = Facts(allreduce="published", has_experts=True, has_draft=True)
    parts = [
        "# Parameters\n",
        "Generated from `specsim/parameters.toml`. A cost parameter is a factor on a derived time "
        "unless its unit says otherwise; the prior is that of a mixture-of-experts model on GPUs "
        "whose all-reduce is published.\n",
        "| name | unit | prior median | prior sd | reset by | `--set` | rests on |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in {**COST, **ACCEPTANCE}.items():
        median, sd = row.on(server) or ("", "")
        scale = " (ln)" if row.scale == "log" else ""
        keys = ", ".join(f"`{key}`" for key in row.set_as)
        parts.append(
            f"| `{name}` | {row.unit} | {median} | {sd}{scale} | {row.resets} | {keys} | "
            f"{row.source} |"
        )
    return "\n".join(parts) + "\n"


def validation_page() -> str:
    """Return every measured cell beside its prediction, from all of calibration/."""
    from specsim.calibrate.validate import validate
    from specsim.observations import cell_name, read_observations
    from specsim.profile import load_profile, profile_names

    parts = [
        "# All measured cells\n",
        "Generated: what `specsim validate` says of each folder of `calibration/` under the "
        "profile that was fitted to it. These cells were seen by the fit; held-out errors are on "
        "the other pages.\n",
    ]
    for name in profile_names():
        cells = ROOT / "calibration" / name / "observations.csv"
        if not cells.exists():
            continue
        result = validate(load_profile(name), read_observations(cells).rows)
        parts.append(
            f"## {name}\n\nMean absolute error {100 * result.mape:.1f} %, median "
            f"{100 * result.median_ape:.1f} %; {100 * result.coverage:.0f} % of {len(result.rows)} "
            "cells inside their 90 % interval.\n"
        )
        parts.append("| cell | quantity | measured | predicted | low | high | error |")
        parts.append("|---|---|---|---|---|---|---|")
        parts += [
            f"| {cell_name(row.observation)} | `{row.quantity}` | {row.measured:.4g} | "
            f"{row.predicted:.4g} | {row.low:.4g} | {row.high:.4g} | {100 * row.error:+.1f} % |"
            for row in result.rows
        ]
        parts.append("")
    return "\n".join(parts)


PAGES = {
    "reference/cli.md": cli_page,
    "reference/json.md": json_page,
    "reference/python.md": python_page,
    "reference/parameters.md": parameters_page,
    "reference/validation.md": validation_page,
}


def on_config(config: Any) -> Any:
    """Add the pages that exist: validation and performance."""
    folder = ROOT / "docs"
    found = sorted((folder / "validation").glob("*.md"))
    pages: list[Any] = [str(p.relative_to(folder)) for p in found]
    if (folder / "performance.md").exists():
        pages.append("performance.md")
    config["nav"].append({"Validation": [*pages, "reference/validation.md"]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and the figures."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(ROOT))
    for uri, make in PAGES.items():
        files.append(File.generated(config, uri, content=make()))
    for path in sorted((ROOT / "figures").glob("*.svg")):
        files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    return files


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.write(PAGES[f"reference/{sys.argv[1]}.md"]())
