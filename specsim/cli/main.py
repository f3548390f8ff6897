"""The command ``specsim``: finds the subcommand, and turns errors into one line each.

A subcommand's module is imported when it is called, so that ``specsim --help`` costs typer alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from specsim import __version__
from specsim.cli.coercion import PlainCommand, without_adapters
from specsim.errors import SpecsimError, UnknownNameError

COMMANDS = {
    "predict": "What a speculation setting would do to throughput, before it is launched.",
    "recommend": "The best setting at every load, how sure, and the flags to launch it with.",
    "breakeven": "The accept length that a setting needs to pay, and where it stops paying.",
    "compare": "Two profiles or scenarios side by side.",
    "schedule": "Draft steps by running batch, under a load that changes.",
    "plan": "Which measurement to take next, by how much regret it saves.",
    "sweep": "Grids over settings, loads and overrides to a table.",
    "calibrate": "Fit a profile of your own server from measured cells.",
    "validate": "Compare a profile's predictions with measured cells.",
    "timeline": "Where the time of a round goes: lanes, a Gantt picture, a Chrome trace.",
    "report": "One self-contained HTML page: answer, curves, breakdown, calibration.",
    "probe": "Measure this machine's GPU or CPU: step times, bandwidth, launches (needs torch).",
    "read": "Say what a log, a benchmark result or a trace holds.",
    "doctor": "Versions, extras and profiles of this installation.",
}
"""Subcommands in the order of ``--help``: specsim.cli.NAME has NAME_command."""

USAGE, BUG, INTERRUPTED, PIPE_CLOSED = 2, 1, 130, 141
"""Exit codes; the last two are those of a shell for SIGINT and SIGPIPE."""

SHOWN_WORD = 160
"""A longer word of an error message is cut."""


class LazyGroup(TyperGroup):
    """Subcommands by name, each imported when it is needed; the shell is told the names alone."""

    naming = False

    def get_params(self, ctx: Any) -> Any:
        """Return the options, ``--help`` included."""
        return without_adapters(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a subcommand.

        Raises
        ------
        UnknownNameError
            If there is none of that name.
        """
        if self.naming:
            return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name])
        if cmd_name not in COMMANDS:
            # an option in the wrong place: typer knows what to say; a shell completes: nothing
            if cmd_name.startswith("-") or ctx.resilient_parsing:
                return None
            raise UnknownNameError("command", cmd_name, COMMANDS)
        name = cmd_name.replace("-", "_")
        module = import_module(f"specsim.cli.{name}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name, cls=PlainCommand)(getattr(module, f"{name}_command"))
        return get_command(app)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the subcommands and options that begin so."""
        self.naming = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.naming = False

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def specsim(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Say which speculative-decoding setting to launch, before a GPU hour is spent.

    Example: specsim predict --topk 2 --steps 2
    """
    if version:
        typer.echo(f"specsim {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Exit codes: 0, 2 for input that cannot be used, 1 for a bug, 130 if interrupted.
    """
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code; errors are one line on stderr each."""
    try:
        if hasattr(sys.stdout, "reconfigure"):  # a name from a file must not break the output
            sys.stdout.reconfigure(errors="backslashreplace")
        code = app(list(argv), prog_name="specsim", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SpecsimError as error:
        return _complain(str(error), USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer's own way out
            return _pipe_closed()
        raise
    except MemoryError:
        return _complain("out of memory; ask for fewer settings or loads", USAGE)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's usage errors, of any version
            return _complain(_usage(error, argv), USAGE)
        if os.environ.get("SPECSIM_DEBUG"):
            raise
        return _complain(
            f"{type(error).__name__}: {error}; this is a bug, please report it: "
            "SPECSIM_DEBUG=1 shows the traceback",
            BUG,
        )


def _usage(error: Any, argv: Sequence[str]) -> str:
    """Return typer's complaint with the value, which it may leave out, and where to read on."""
    message = str(error.format_message()).rstrip(".")
    names = tuple(getattr(getattr(error, "param", None), "opts", ()))
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name in names:
            message = f"{name} {value if equals else following}: {message.partition(': ')[2]}"
            break
    command = f"{argv[0]} " if argv and argv[0] in COMMANDS else ""
    return f"{message}; see specsim {command}--help"


def _complain(message: str, code: int) -> int:
    """Write one line without control characters or endless words."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    line = re.sub(rf"\S{{{SHOWN_WORD},}}", lambda m: f"{m[0][:60]}...{m[0][-20:]}", line)
    sys.stderr.write(f"specsim: {line}\n")
    return code


def _pipe_closed() -> int:
    """Let the interpreter flush into nothing, so that it has no reason to complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
