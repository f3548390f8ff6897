"""Make all figures again: python figures/make.py [NAME ...]."""

import importlib
import sys

from founding import FOLDER, save

OTHERS = {"make", "founding"}


def names() -> list[str]:
    """Scripts that make a figure."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in OTHERS)


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        script = importlib.import_module(name)
        save(str(FOLDER / f"{name}.py"), script.HEADER, script.rows(), script.figure())
        print(f"{name}.svg, {name}.csv")
