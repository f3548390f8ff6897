"""``specsim example``: sample logs and results to try everything on."""

import sys
from dataclasses import dataclass
from pathlib import Path

from specsim.cli.options import command
from specsim.errors import InputError


@dataclass(frozen=True)
class Options:
    """What to do, and where."""

    action: str
    folder: str


@command("example", Options)
def example_command(how: Options) -> None:
    """Copy sample logs of a vLLM and an SGLang server into a folder, to try everything on.

    Example: specsim example copy sample
    """
    from importlib.resources import files

    from specsim.textfile import write_text

    if how.action != "copy":
        raise InputError(f"example {how.action}", "is not known", "use: specsim example copy DIR")
    folder = Path(how.folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(how.folder, "is a file", "give the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    samples = [f for f in files("specsim").joinpath("example").iterdir() if f.is_file()]
    for sample in sorted(samples, key=lambda f: f.name):
        if (folder / sample.name).exists():
            raise InputError(str(folder / sample.name), "is there already", "use another folder")
        write_text(folder / sample.name, sample.read_text(encoding="utf-8"))
        sys.stdout.write(f"{folder / sample.name}\n")
