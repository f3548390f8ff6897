"""Launch commands: what they say of a server that nothing is measured of."""

from specsim.errors import FormatError, InputError
from specsim.logs.entry import LogEntry
from specsim.logs.source import Source


def parse(source: Source) -> list[LogEntry]:
    """Read the commands of a file or paste, an entry for each."""
    from specsim.engine.command import LIMIT, launches_in

    text = b"".join(source.chunks())[:LIMIT].decode("utf-8", "replace")
    try:
        launches = list(launches_in(text))
    except InputError as error:
        raise FormatError(source.path, f"{error.value} {error.reason}", error.remedy) from None
    if not launches:
        reason = "holds no command that starts a server"
        raise FormatError(source.path, reason, "give the whole command")
    entries = []
    for found in launches:
        unknown = {"unknown": ", ".join(found.unknown)} if found.unknown else {}
        settings = {**found.settings, **unknown}
        entries.append(LogEntry(source.path, "launch", found.engine, found.version, settings))
    return entries
