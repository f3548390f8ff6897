"""Opening what a user hands over: plain, gzip, zstd or standard input, as a stream of lines."""

import codecs
import gzip
import io
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from specsim.errors import FormatError, InputError

CHUNK_BYTES = 1 << 18
MAX_LINE_BYTES = 64 << 20  # a longer line is given in pieces: no engine writes one
MOST_UNPACKED = 200  # times its size, beyond 64 MiB: logs unpack to 10 or 30 times
PATIENCE_S, LEAST_BYTES_PER_S = 5.0, 2e6
"""CPU time that any file may take, and a tenth of the pace of the slowest reader beyond it."""

STDIN = "-"

_GZIP, _ZSTD, SQLITE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\x00"
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\b\a")) + b"\x7f"


class Source:
    r"""A file as a stream of chunks or lines; see :func:`open_source`.

    >>> list(Source("-", [b"a\nb"]).lines())
    [b'a\n', b'b']
    """

    def __init__(self, path: str, chunks: Iterable[bytes], packed: IO[bytes] | None = None) -> None:
        self.path = path  # name of the file, "-" for standard input
        self.cut: str | None = None  # why the packed stream ended early, if it did
        self._chunks = iter(chunks)  # the bytes, unpacked
        self._packed = packed  # the file that they come from, if they come packed
        self._size = 0  # of what was read, unpacked
        self._began = time.monotonic()
        self._slow: float | None = None  # CPU time of the process when it began to take long
        self._decoder: codecs.IncrementalDecoder | None = None
        self.head = self._read()  # the first bytes; as UTF-8 if they are text
        self._decoder = self._text_decoder()
        if self._decoder:
            self.head = self._decoder.decode(self.head).encode()

    def chunks(self) -> Iterator[bytes]:
        """Yield the unpacked bytes (as UTF-8), the head first."""
        chunk = self.head
        while chunk:
            yield chunk
            chunk = self._read()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines with their line ends; carriage returns end a line too."""
        return split_lines(self.chunks())

    def grow(self) -> bool:
        """Read one more chunk into the head; return whether there was one."""
        chunk = self._read()
        self.head += chunk
        return bool(chunk)

    def _read(self) -> bytes:
        chunk = self._unpack()
        while chunk and self._decoder:
            text = self._decoder.decode(chunk).encode()
            if text:
                return text
            chunk = self._unpack()
        return chunk

    def _unpack(self) -> bytes:
        self._check_limits()
        try:
            chunk = next(self._chunks, b"")
            self._size += len(chunk)
            return chunk
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.cut = f"the compressed data ends early or is damaged ({error})"
        except OSError as error:
            raise InputError(self.path, f"cannot be read ({error})", "check the file") from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            self.cut = f"the compressed data ends early or is damaged ({error})"
        return b""

    def _check_limits(self) -> None:
        """Stop at what no log is: a bomb, or lines that each have to be understood anew."""
        if self._packed is not None and self._size > MAX_LINE_BYTES:
            times = self._size / self._packed.tell()
            if times > MOST_UNPACKED:
                reason = f"unpacks to more than {MOST_UNPACKED} times its size"
                raise FormatError(self.path, reason, "unpack it, and give a part of it")
        allowed = PATIENCE_S + self._size / LEAST_BYTES_PER_S
        if time.monotonic() - self._began < allowed:
            return
        now = time.process_time()  # which a busy machine does not lengthen
        self._slow = now if self._slow is None else self._slow
        if now - self._slow > allowed:
            first = f"{self._size / 1e6:.0f} MB"
            reason = f"takes too long: more than {allowed:.0f} s for its first {first}"
            raise FormatError(self.path, reason, "cut out the lines of the engine, and give those")

    def _text_decoder(self) -> codecs.IncrementalDecoder | None:
        """UTF-16, as a redirect in Windows' PowerShell writes it; UTF-8 needs none."""
        if self.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return codecs.getincrementaldecoder("utf-16")("replace")
        if self.head.startswith(codecs.BOM_UTF8):
            self.head = self.head[len(codecs.BOM_UTF8) :]
        return None


def is_url(text: str) -> bool:
    """Whether a source is a server, not a file.

    >>> is_url("http://host:30000"), is_url("server.log")
    (True, False)
    """
    return text.lower().startswith(("http://", "https://"))


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open what a user names, or standard input for ``-``.

    Raises :class:`InputError` if it cannot be opened, :class:`FormatError` if it is empty, binary,
    or packed in a way that cannot be unpacked here.
    """
    name = str(path)
    raw = _open(name)
    try:
        try:
            magic = raw.peek(16)[:16]
        except OSError as error:
            raise InputError(name, f"cannot be read ({error})", "check the file") from error
        packed = magic.startswith((_GZIP, _ZSTD))
        source = Source(name, _chunks(name, raw, magic), raw if packed and name != STDIN else None)
        if source.cut and not source.head:
            raise FormatError(name, source.cut, "copy the file again")
        if not source.head:
            reason = "holds no data once unpacked" if magic else "is empty"
            raise FormatError(name, reason, "give the log of a server that has decoded something")
        if not source.head.startswith(SQLITE):
            _refuse_binary(name, source.head)
        elif packed or name == STDIN:
            reason = "is a database, which cannot be read as a stream"
            raise FormatError(name, reason, "unpack it to a file")
        yield source
    finally:
        if name != STDIN:
            raw.close()


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Cut chunks into lines that keep their ends.

    >>> list(split_lines([b"a\nb", b"c\r\nd"]))
    [b'a\n', b'bc\r\n', b'd']
    """
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).splitlines(keepends=True)
        rest = lines.pop() if lines else b""
        if rest.endswith(b"\n") or len(rest) > MAX_LINE_BYTES:
            lines.append(rest)
            rest = b""
        yield from lines
    if rest:
        yield rest


def _open(path: str) -> io.BufferedReader:
    if path == STDIN:
        if sys.stdin is None:
            raise InputError(path, "is closed", "name a file, or pipe one in")
        buffer = sys.stdin.buffer
        if isinstance(buffer, io.BufferedReader):
            return buffer
        return io.BufferedReader(io.BytesIO(buffer.read()))  # in tests: it cannot peek
    if Path(path).is_dir():
        raise InputError(path, "is a directory", "name the files in it")
    try:
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise InputError(path, "does not exist", "check the name") from error
    except (OSError, ValueError) as error:
        raise InputError(path, f"cannot be opened ({error})", "check its permissions") from error


def _chunks(path: str, raw: io.BufferedReader, magic: bytes) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked."""
    stream: Any = raw
    if magic.startswith(_GZIP):
        stream = gzip.GzipFile(fileobj=raw, mode="rb")
    elif magic.startswith(_ZSTD):
        try:
            import zstandard
        except ImportError as error:
            reason = "is compressed with zstd, which needs the package zstandard"
            remedy = "pip install 'specsim-llm[zstd]', or unpack it: zstd -dc FILE | specsim read -"
            raise FormatError(path, reason, remedy) from error
        stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return pieces(stream)


def pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Return the chunks of an open file."""
    return iter(partial(stream.read, CHUNK_BYTES), b"")


def _refuse_binary(path: str, head: bytes) -> None:
    """Refuse what is not text: more than 1 % of control characters, or any run of NULs."""
    sample = head[: 1 << 16]
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    if controls > 0.01 * len(sample) or b"\0\0\0\0" in sample:
        remedy = "give the text of the log (.gz and .zst are unpacked), a trace .json or a .sqlite"
        raise FormatError(path, "is binary, not a log", remedy)
