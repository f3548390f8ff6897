"""``--install-completion`` and ``--show-completion``: tell the shell how click completes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specsim.errors import InputError

SHELLS: dict[str, tuple[str, str, str]] = {
    "bash": (".bash_completions/specsim.sh", ".bashrc", "source ~/.bash_completions/specsim.sh"),
    "zsh": (".zfunc/_specsim", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/specsim.fish", "", ""),
}
"""By shell: where the script lies, and the line that a startup file needs, if any."""


def completion_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command both options."""
    for name, callback, help_text in (
        ("--show-completion", _show, "Print the shell's completion script."),
        ("--install-completion", _install, "Make the shell complete commands and options."),
    ):
        option = click.option(
            name,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=callback,
            help=help_text,
        )
        command = option(command)
    return command


def _script(context: click.Context) -> tuple[str, str]:
    """Return the name of the user's shell and its completion script."""
    from click.shell_completion import get_completion_class

    shell = Path(os.environ.get("SHELL", "")).name
    found = get_completion_class(shell)
    if shell not in SHELLS or found is None:
        raise InputError(
            f"shell {shell!r}", "is not one that can complete", f"use {', '.join(SHELLS)}"
        )
    return shell, found(context.command, {}, "specsim", "_SPECSIM_COMPLETE").source()


def _show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(_script(context)[1])
        context.exit()


def _install(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    shell, script = _script(context)
    place, startup, line = SHELLS[shell]
    path = Path.home() / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
    if startup:
        file = Path.home() / startup
        known = file.read_text(encoding="utf-8") if file.is_file() else ""
        if line not in known:
            file.write_text(f"{known.rstrip()}\n{line}\n".lstrip(), encoding="utf-8")
    click.echo(f"{shell} completion installed in {path}; it works in a new terminal")
    context.exit()
