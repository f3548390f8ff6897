"""``specsim serve``: the report in the browser, from this machine."""

import socket
import sys
from dataclasses import dataclass, replace
from importlib import import_module

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.report import Shown, page_of
from specsim.errors import InputError

LOCAL = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Options(Shown):
    """What is shown, and where."""

    name: str | None
    host: str
    port: int


@opt.command("serve", opt.AnyServer, opt.Asked, Options)
def serve_command(server: opt.AnyServer, asked: opt.Asked, how: Options) -> None:
    """Show the report of a profile in the browser: read-only, to this machine alone by default.

    The page is made once, then served until ctrl-C. Needs pip install 'specsim-llm[web]'.

    Example: specsim serve my.toml --port 8000
    """
    from specsim.report.web import app_of

    if how.name is not None:
        if server.profile is not None:
            what = f"--profile {server.profile}"
            raise InputError(what, f"{how.name} is a profile already", "choose one of them")
        server = replace(server, profile=how.name)
    try:
        uvicorn, _ = import_module("uvicorn"), import_module("starlette")
    except ImportError:
        remedy = "pip install 'specsim-llm[web]'"
        raise InputError("specsim serve", "needs starlette and uvicorn", remedy) from None
    at = f"--host {how.host} --port {how.port}"
    try:
        listening = socket.create_server((how.host, how.port))
    except OSError as error:
        why = f"cannot listen there ({error.strerror})"
        raise InputError(at, why, "give another port, or leave --host out") from None
    with listening:
        with output.status("making the report"):
            app = app_of(page_of(server, asked, how), LOCAL if how.host in LOCAL else ())
        host, port = listening.getsockname()
        if how.host not in LOCAL:
            output.remark(["whoever can reach this machine can read the report"])
        sys.stdout.write(f"the report is at http://{host}:{port}/ (ctrl-C ends it)\n")
        sys.stdout.flush()
        settings = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False
        )
        uvicorn.Server(settings).run(sockets=[listening])
