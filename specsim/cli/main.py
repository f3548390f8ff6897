"""The command ``specsim``: finds the subcommand, and turns errors into one line each.

A subcommand's module is imported when it is called, so that ``specsim --help`` costs click alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from specsim import __version__
from specsim.errors import SpecsimError, UnknownNameError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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
    "serve": "That page in the browser, from this machine (needs starlette, uvicorn).",
    "probe": "Measure this machine's GPU or CPU: step times, bandwidth, launches (needs torch).",
    "measure": "Put loads on a running server: cells for calibrate.",
    "read": "Say what a log, a benchmark result or a trace holds.",
    "example": "Sample logs of a vLLM and an SGLang server, to try everything on.",
    "doctor": "Versions, extras and profiles of this installation.",
}
"""Subcommands in the order of ``--help``: specsim.cli.NAME has NAME_command."""

USAGE, BUG, INTERRUPTED, PIPE_CLOSED = 2, 1, 130, 141
"""Exit codes; the last two are those of a shell for SIGINT and SIGPIPE."""

SHOWN_WORD = 160
"""A longer word of an error message is cut."""


class LazyGroup(click.Group):
    """Subcommands by name, each imported when it is called; help and shell need the names alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name in COMMANDS:
            command = getattr(import_module(f"specsim.cli.{cmd_name}"), f"{cmd_name}_command")
            assert isinstance(command, click.Command)
            return command
        # an option in the wrong place: click knows what to say; a shell completes: nothing
        if cmd_name.startswith("-") or ctx.resilient_parsing:
            return None
        raise UnknownNameError("command", cmd_name, COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and options that begin so."""
        from click.shell_completion import CompletionItem

        begun = [name for name in COMMANDS if name.startswith(incomplete)]
        names = [CompletionItem(name, help=COMMANDS[name]) for name in begun]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"show_default": True})
@click.version_option(__version__, message="specsim %(version)s", help="Print the version.")
@click.option("--install-completion", is_flag=True, help="Make the shell complete commands.")
@click.option("--show-completion", is_flag=True, help="Print the shell's completion script.")
@click.pass_context
def specsim(context: click.Context, install_completion: bool, show_completion: bool) -> None:
    """Say which speculative-decoding setting to launch, before a GPU hour is spent.

    Example: specsim predict --topk 2 --steps 2
    """
    if install_completion or show_completion:
        from specsim.cli import completion

        if install_completion:
            click.echo(completion.install_completion(context.command))
        else:
            click.echo(completion.completion_script(context.command)[1])
        context.exit()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Exit codes: 0, 2 for input that cannot be used, 1 for a bug, 130 if interrupted.
    """
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code; errors are one line on stderr each."""
    if sys.stdout is None:  # closed by whoever started us
        return _complain("standard output: is closed; send it to a file, or to /dev/null", USAGE)
    try:
        if hasattr(sys.stdout, "reconfigure"):  # a name from a file must not break the output
            sys.stdout.reconfigure(errors="backslashreplace")
        code = specsim.main(_with_command(argv), prog_name="specsim", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SpecsimError as error:
        return _complain(str(error), USAGE)
    except click.ClickException as error:
        command = f"{argv[0]} " if argv and argv[0] in COMMANDS else ""
        message = error.format_message().rstrip(".")
        return _complain(f"{message}; see specsim {command}--help", USAGE)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not error.code:  # words of a completion
            return 0
        _let_go()  # click and rich exit with 1 where the reader has gone away
        return PIPE_CLOSED
    except OSError as error:  # a full disk, a name too long, a folder of somebody else
        if error.filename is None:
            _let_go()
        what = error.filename or "the output"
        why = error.strerror or type(error).__name__
        return _complain(f"{what}: cannot be used ({why}); give another place or name", USAGE)
    except MemoryError:
        return _complain("out of memory; ask for fewer settings or loads", USAGE)
    except Exception as error:
        if os.environ.get("SPECSIM_DEBUG"):
            raise
        return _complain(
            f"{type(error).__name__}: {error}; this is a bug, please report it: "
            "SPECSIM_DEBUG=1 shows the traceback",
            BUG,
        )


def _with_command(argv: Sequence[str]) -> list[str]:
    """Return the arguments; a launch command after ``--`` becomes the value of ``--command``."""
    words = list(argv)
    if "--" in words:
        import shlex

        from specsim.engine.command import program

        at = words.index("--")
        launch = words[at + 1] if len(words) == at + 2 else shlex.join(words[at + 1 :])
        if program().search(launch):
            return [*words[:at], "--command", launch]
    return words


def _complain(message: str, code: int) -> int:
    """Write one line without control characters or endless words."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    line = re.sub(rf"\S{{{SHOWN_WORD},}}", lambda m: f"{m[0][:60]}...{m[0][-20:]}", line)
    if sys.stderr is not None:
        sys.stderr.write(f"specsim: {line}\n")
    return code


def _let_go() -> None:
    """Let the interpreter flush into nothing, so that it has no reason to complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
