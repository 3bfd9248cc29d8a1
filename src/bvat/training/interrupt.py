"""Ctrl-C during training: the current epoch is finished first, so that checkpoints are always consistent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bvat.training.state import TrainState


@contextlib.contextmanager
def finish_epoch_first(state: TrainState) -> Iterator[None]:
    """Turn the first Ctrl-C inside the block into ``state.interrupted``; at its end, raise KeyboardInterrupt.

    A second Ctrl-C raises at once. SIGTERM is treated in the same way where the process handles it, as the
    workers of :mod:`bvat.training.pool` do. Outside the main thread, where Python delivers no signals, the
    block runs as it is.
    """
    before: dict[int, Callable[..., Any]] = {}
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            before[number](number, frame)
        received.append(number)
        state.interrupted = True

    if threading.current_thread() is threading.main_thread():
        for number in (int(signal.SIGINT), int(signal.SIGTERM)):
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
