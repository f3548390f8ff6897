"""Bounded GETs from one server: of so long and so many bytes, and never from another host."""

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from specsim.errors import InputError
from specsim.textfile import shown

KEY = "SPECSIM_API_KEY"  # environment variable of the key: sent to the server, and nowhere else
LIMIT_S, LIMIT_BYTES = 10.0, 16 << 20  # metrics of a busy server are some 100 kB
MOST_REDIRECTS = 2
_URL = re.compile(
    r"(?P<scheme>https?)://\[?(?P<host>(?<=\[)[0-9a-f:.]{2,45}(?=\])|(?<!\[)[\w.-]{1,253})\]?"
    r"(?::(?P<port>\d{1,5}))?(?P<path>(?:/[\w.~%-]{0,200}){0,9})",
    re.ASCII | re.IGNORECASE,
)
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")

Json = TypeVar("Json", dict[str, object], list[object])


def parsed(body: bytes | None, kind: type[Json]) -> Json:
    """Return a JSON value of that kind; an empty one for anything else.

    >>> parsed(b"[1]", list), parsed(b"<html>", dict)
    ([1], {})
    """
    try:
        value = json.loads(body or b"")
    except (ValueError, RecursionError):
        return kind()
    return value if isinstance(value, kind) else kind()


@dataclass(frozen=True, slots=True)
class Site:
    """One server by its URL, without a key, a query or the /v1 of an OpenAI client."""

    url: str
    secure: bool
    host: str
    port: int
    base: str  # path before those of the engine

    def get(self, path: str, limit_s: float = LIMIT_S) -> bytes | None:
        """Return what a path holds; None where the server has no such path.

        Raises :class:`InputError` if the server does not answer in time or in bounds, refuses the
        key, or sends elsewhere.
        """
        at = self.base + path
        for _ in range(MOST_REDIRECTS):
            with self.asked("GET", at, None, limit_s) as answer:
                body = answer.read(LIMIT_BYTES + 1)
                if len(body) > LIMIT_BYTES:
                    raise self.refused(path, f"sends more than {LIMIT_BYTES >> 20} MiB")
                status, moved = answer.status, answer.headers.get("Location", "")
            if status in (401, 403):
                raise self.refused(path, f"wants a key (status {status})", f"set {KEY}")
            if not 300 <= status < 400:
                return body if status == 200 else None
            if urlsplit(moved).path != f"{at}/":  # where to is not told: a key may be written there
                raise self.refused(path, "redirects elsewhere", "give the URL of that server")
            at = f"{at}/"  # as mounted pages do; whatever host it names, this one is asked again
        raise self.refused(path, "redirects without end")

    @contextmanager
    def asked(
        self, method: str, at: str, body: bytes | None, limit_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; its connection ends after the block, or after `limit_s` at the latest."""
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=limit_s)
        late = threading.Event()
        sockets: list[socket.socket] = []  # the connection lets go of its own with the answer

        def stop() -> None:  # a server that drips a byte now and then passes every other limit
            late.set()
            for one in sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(limit_s, stop)
        timer.daemon = True
        try:
            timer.start()
            connection.connect()
            sockets.append(connection.sock)
            connection.request(method, at, body, _headers(body is not None))
            with connection.getresponse() as answer:
                yield answer
            if late.is_set():
                raise TimeoutError
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            slow = late.is_set() or isinstance(error, TimeoutError)
            why = getattr(error, "strerror", None) or type(error).__name__
            reason = f"takes more than {limit_s:g} s" if slow else f"does not answer ({why})"
            raise self.refused(at, reason) from None
        finally:
            timer.cancel()
            connection.close()

    def refused(self, path: str, reason: str, remedy: str = "check the URL") -> InputError:
        """Return the error of a path."""
        return InputError(f"{self.url} ({path})", reason, remedy)


def site(url: str) -> Site:
    """Return the server of a URL.

    Raises :class:`InputError` if it names no host, or holds more than scheme, host, port and path.

    >>> site("http://localhost:30000/v1/").url
    'http://localhost:30000'
    """
    if any(mark in url for mark in "@?#"):  # it may hold a key: not shown
        remedy = f"give http://host:port alone, and a key in {KEY}"
        raise InputError("the URL", "holds more than a host and a path", remedy)
    found = _URL.fullmatch(url)
    if found is None or int(found["port"] or 1) > 65535:
        raise InputError(shown(url), "is no URL of a server", "write e.g. http://localhost:30000")
    secure, base = found["scheme"].lower() == "https", re.sub(r"(/v1)?/*\Z", "", found["path"])
    name = url[: found.start("path")] + base
    return Site(name, secure, found["host"], int(found["port"] or (443 if secure else 80)), base)


def _headers(has_body: bool) -> Mapping[str, str]:
    """Headers of a request, with the key if there is one; a damaged key is never shown."""
    headers = {"Connection": "close", "User-Agent": "specsim", "Accept": "*/*"}
    if has_body:
        headers["Content-Type"] = "application/json"
    key = os.environ.get(KEY, "").strip()
    if key and not _KEY.fullmatch(key):
        raise InputError(KEY, "holds what no key does", "set it to the key alone")
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})
