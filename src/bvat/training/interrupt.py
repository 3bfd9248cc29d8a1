"""Ctrl-C and other signals that end a run: the current epoch is finished first, so that checkpoints are
always consistent."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

STOP_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)
"""What a job scheduler, a shutdown or a closed terminal sends."""
_SAME_REQUEST = 2.0
"""Seconds."""


@contextlib.contextmanager
def stop_like_ctrl_c() -> Iterator[list[int]]:
    """Let :data:`STOP_SIGNALS` raise KeyboardInterrupt inside the block; yield those that were received.

    Signals that the process ignores (``nohup``) or handles already are left alone. A closed terminal may send
    SIGHUP twice: what follows at once is the same request.
    """
    received: list[int] = []
    last = -math.inf

    def handle(number: int, frame: Any) -> None:
        nonlocal last
        again, last = time.monotonic() - last < _SAME_REQUEST, time.monotonic()
        if not again:
            received.append(number)
            raise KeyboardInterrupt

    changed = []
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in STOP_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in changed:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def postpone_interrupts(note: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let the first Ctrl-C inside the block call ``note``; at its end, raise KeyboardInterrupt.

    A second Ctrl-C raises at once. SIGTERM and SIGHUP are treated in the same way where the process handles
    them, as the command line and the workers of :mod:`bvat.store.pool` do. Outside the main thread, where
    Python delivers no signals, the block runs as it is.
    """
    before: dict[int, Callable[..., Any]] = {}
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            before[number](number, frame)
        received.append(number)
        note()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *STOP_SIGNALS):
            handler = signal.getsignal(number)
            if callable(handler):  # neither ignored nor left to the system
                before[number] = handler
                signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        before[received[0]](received[0], None)
        raise KeyboardInterrupt
