"""Fetch bytes over HTTP: short time-outs, a bound on the length, a progress bar when someone is watching."""

from __future__ import annotations

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

TIMEOUT = 5.0
"""Seconds to wait for a connection and between two pieces of a file."""
_PIECE = 1 << 16


class Unreachable(Exception):
    """A file could not be fetched; the message says from where and why."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error if that is a terminal; call what is yielded with each count of bytes."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def download(url: str, *, size: int | None, limit: int) -> bytes:
    """Return what a URL holds.

    Args:
        url: http or https; redirects are followed, proxies of the environment are used.
        size: the length it should have, for the bar and to notice a connection that broke off.
        limit: refuse to read more bytes than this.

    Raises:
        Unreachable: no connection, an HTTP error, or not all (or too many) of the bytes came.
    """
    host = urlsplit(url).netloc
    pieces: list[bytes] = []
    count = 0
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT) as answer,
            progress(url.rsplit("/", 1)[-1], size) as advance,
        ):
            announced = answer.headers.get("Content-Length", "")
            expected = int(announced) if announced.isdecimal() else size
            while piece := answer.read(_PIECE):
                count += len(piece)
                if count > limit:
                    raise Unreachable(f"{host}: the file is longer than it should be")
                pieces.append(piece)
                advance(len(piece))
    except urllib.error.HTTPError as fault:
        fault.close()
        raise Unreachable(f"{host}: HTTP status {fault.code}") from None
    except urllib.error.URLError as fault:
        raise Unreachable(f"{host}: {getattr(fault.reason, 'strerror', None) or fault.reason}") from None
    except (OSError, http.client.HTTPException) as fault:
        raise Unreachable(f"{host}: {str(fault) or type(fault).__name__}") from None
    if expected is not None and count != expected:
        raise Unreachable(f"{host}: the connection broke off after {count} of {expected} bytes")
    return b"".join(pieces)
