"""A server that runs: what it says of itself, its counters over time, and loads put on it.

Everything but :mod:`specsim.live.measure` only reads.
"""


def is_url(text: str) -> bool:
    """Whether a source is a server, not a file.

    >>> is_url("http://host:30000"), is_url("server.log")
    (True, False)
    """
    return text.lower().startswith(("http://", "https://"))
