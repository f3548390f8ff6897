"""The report in a browser: one page, made before anybody asks, that can only be read.

Nothing of a request reaches the file system, and nothing of it stands in an answer.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PLAIN = {
    400: "This page answers to the address that specsim printed when it started.",
    404: 'There is no such page here. <a href="/">The report</a> is the only one.',
    405: 'This page can only be read. <a href="/">The report</a> is here.',
}
"""What people are told, by HTTP status."""


def app_of(page: str, hosts: Collection[str] = ()) -> Starlette:
    """Return what answers GET / with a page.

    `hosts` are the names that a browser may call it by, if not any: a web site that gives its own
    name this machine's address must not read the page.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    headers = {
        "Content-Security-Policy": policy(page),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    async def show(request: Request) -> Response:
        if hosts and request.headers.get("host", "").split(":")[0] not in hosts:
            raise HTTPException(400)
        return HTMLResponse(page, headers=headers)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = f"<!doctype html><title>specsim</title><p>{PLAIN[error.status_code]}</p>"
        return HTMLResponse(text, error.status_code, {**(error.headers or {}), **headers})

    return Starlette(routes=[Route("/", show)], exception_handlers={HTTPException: refuse})


def policy(page: str) -> str:
    """Return the content policy of a page: its own scripts run and no others, nothing is fetched.

    >>> policy("<script>1</script>").split("; ")[1]
    "script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='"
    """
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
