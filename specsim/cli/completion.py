"""Shell completion: click completes; here are the names, and the shell is told of it."""

import os
from importlib import import_module
from pathlib import Path
from typing import get_args

import click
from click.shell_completion import CompletionItem, get_completion_class

from specsim.errors import InputError

SHELLS = {
    "bash": (".bash_completions/specsim.sh", ".bashrc", "source ~/.bash_completions/specsim.sh"),
    "zsh": (".zfunc/_specsim", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/specsim.fish", "", ""),
}
"""By shell: where the script lies, and the line that a startup file needs, if any."""


def names_at(place: str, begun: str, files: bool = False) -> list[CompletionItem]:
    """Return the names that a `Literal` or a function of a module has, and files where they do."""
    home, _, name = place.rpartition(".")
    found = getattr(import_module(home), name)
    items = [CompletionItem(n) for n in get_args(found) or found() if n.startswith(begun)]
    return [CompletionItem(begun, type="file"), *items] if files else items


def completion_script(command: click.Command) -> tuple[str, str]:
    """Return the name of the user's shell and the script that it reads."""
    shell = Path(os.environ.get("SHELL", "")).name
    found = get_completion_class(shell)
    if shell not in SHELLS or found is None:
        why = "is not one that can complete"
        raise InputError(f"shell {shell!r}", why, f"use {', '.join(SHELLS)}")
    return shell, found(command, {}, "specsim", "_SPECSIM_COMPLETE").source()


def install_completion(command: click.Command) -> str:
    """Write the script where the user's shell finds it, and return a sentence about it."""
    shell, script = completion_script(command)
    place, startup, line = SHELLS[shell]
    path = Path.home() / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
    if startup:
        file = Path.home() / startup
        known = file.read_text(encoding="utf-8") if file.is_file() else ""
        if line not in known:
            file.write_text(f"{known.rstrip()}\n{line}\n".lstrip(), encoding="utf-8")
    return f"{shell} completion installed in {path}; it works in a new terminal"
