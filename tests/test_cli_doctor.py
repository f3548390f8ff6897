"""``specsim doctor``: what is installed, and the other package of our name."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from specsim.cli.main import run
from specsim.profile import DEFAULT_PROFILE


def test_versions_profiles_and_extras(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "specsim.doctor/1"
    assert all(found["needed"].values())
    assert DEFAULT_PROFILE in found["profiles"]
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "simpy" in out
    assert DEFAULT_PROFILE in out


@pytest.mark.parametrize("beside", [True, False])
def test_it_warns_of_the_other_specsim(
    beside: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``specsim`` on PyPI is another field's package, in a folder of the same name."""

    def version(name: str) -> str:
        if name == "specsim" and not beside:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert run(["doctor"]) == 0
    assert ("warning: another distribution" in capsys.readouterr().out) == beside
    assert run(["doctor", "--json"]) == 0
    assert ("pip uninstall specsim specsim-llm" in capsys.readouterr().out) == beside


def test_it_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "reinstall specsim" in out
    assert "pip install 'specsim-llm[probe]'" in " ".join(out.split())
