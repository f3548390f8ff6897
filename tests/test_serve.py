"""``specsim serve``: one page, read-only, and nothing of a request goes anywhere."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, opened

from specsim.cli.main import run
from specsim.report.web import PLAIN, app_of, policy

HAS_WEB = all(find_spec(name) for name in ("starlette", "uvicorn", "httpx2"))
needs_web = pytest.mark.skipif(not HAS_WEB, reason="specsim-llm[web] and httpx2 are not installed")

PAGE = "<!doctype html><p>the report</p><script>let a = 1;</script>"
FAST = ("--concurrency", "1,2", "--solver", "analytic")


def client(hosts: tuple[str, ...] = ()) -> Any:
    from starlette.testclient import TestClient

    return TestClient(app_of(PAGE, hosts), base_url="http://127.0.0.1:8000")


@needs_web
def test_the_page_is_served_under_a_strict_policy() -> None:
    answer = client().get("/?x=../../etc/passwd")
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == policy(PAGE)
    assert "'sha256-" in policy(PAGE)
    assert "unsafe-inline" not in policy(PAGE).split("style-src")[0]
    head = client().head("/")
    assert (head.status_code, head.text) == (200, "")


@needs_web
@pytest.mark.parametrize(
    "path",
    ["/x", "/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/report.html/",
     "/<script>alert(1)</script>", "/%00", "/" + 5000 * "a"],
)  # fmt: skip
def test_any_other_path_is_refused_in_plain_words(path: str) -> None:
    answer = client().get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert PLAIN[404] in answer.text
    assert len(answer.text) < 300  # nothing of the request is in it
    assert "script>" not in answer.text


@needs_web
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_can_only_be_read(method: str) -> None:
    answer = client().request(method, "/", content=b"x" * 1000)
    assert answer.status_code == 405
    assert PLAIN[405] in answer.text
    assert "GET" in answer.headers["allow"]


@needs_web
@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost", 200), ("evil.example:8000", 400), ("", 400)],
)
def test_another_site_s_name_for_this_machine_gets_nothing(host: str, status: int) -> None:
    answer = client(("127.0.0.1", "localhost")).get("/", headers={"host": host})
    assert answer.status_code == status
    assert ("the report" in answer.text) == (status == 200)


def test_without_the_extra_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", *FAST]) == 2
    error = capsys.readouterr().err
    assert "pip install 'specsim-llm[web]'" in error
    assert error.count("\n") == 1


@needs_web
def test_a_taken_port_and_two_profiles_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["serve", "--port", port, *FAST]) == 2
    assert "give another port" in capsys.readouterr().err
    assert run(["serve", "a.toml", "--profile", "b.toml"]) == 2
    assert "choose one of them" in capsys.readouterr().err
    assert run(["serve", "no-such-profile", "--port", "0", *FAST]) == 2
    assert "no-such-profile" in capsys.readouterr().err
    assert run(["serve", "--port", "70000"]) == 2
    assert "0..65535" in capsys.readouterr().err


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    words = [sys.executable, "-m", "specsim", "serve", "--port", "0", "--steps", "2", "--topk", "2"]
    server = subprocess.Popen([*words, *FAST], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert said is not None
        yield said[0]
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 130
    finally:
        server.kill()
        server.communicate()


@needs_web
@pytest.mark.slow
def test_the_command_serves_the_report(address: str) -> None:
    with urllib.request.urlopen(address, timeout=20) as answer:
        page = answer.read().decode()
        assert "server" not in {name.lower() for name in answer.headers}
    assert '<p class="lead" id="answer">' in page
    assert 'id="sliders"' in page


@needs_web
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_its_scripts_run_under_the_policy(address: str, tmp_path: Path) -> None:
    page = opened(address, tmp_path)
    row = page[page.index('id="with"') : page.index('id="without"')]
    assert len(re.findall(r'data-value="-?\d', row)) == 3
    assert page.count("<polyline") >= 3
