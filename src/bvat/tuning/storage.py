"""Optuna studies: where they are kept, and which of their trials are done."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bvat.data.checksums import CHECKSUM, seal_line, verify
from bvat.errors import SettingsError, TrainingError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import optuna


def open_storage(storage: str) -> Any:
    """Return the Optuna storage of a URL (``sqlite:///study.db``, ``postgresql://...``) or journal file."""
    import optuna

    try:
        if "://" in storage:
            return optuna.storages.get_storage(storage.replace("{", "{{").replace("}", "}}"))  # a template
        return optuna.storages.JournalStorage(_journal(Path(storage)))
    except (SettingsError, OSError):
        raise
    except Exception as error:  # whatever a database or its driver raises
        raise SettingsError(
            f"the storage {_shown(storage)!r} cannot be opened ({_reason(error, storage)}): check its URL "
            "(such as sqlite:///study.db) and that its server runs, then run the same command again"
        ) from None


@contextmanager
def answering(storage: str) -> Iterator[None]:
    """Let a database that stops answering inside the block be one sentence."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error.__cause__ or error  # what Optuna says itself is about the length of data
        raise TrainingError(
            f"the storage {_shown(storage)!r} no longer answers ({_reason(cause, storage)}): finished trials "
            "are kept, run the same command again to continue"
        ) from None


_URL = re.compile(r"(\w[\w+]*://)(?:([^:/?@]+)(?::([^:/?@]*))?@)?([\w.-]*(?::\d+)?(?:/[^?@]*)?)")
"""A URL in which it is certain what the password is: scheme, user, password, and place."""


def _shown(storage: str) -> str:
    """Return the name of a storage without a password; if that could be anywhere, only the scheme."""
    url = _URL.fullmatch(storage)
    if url is None:
        return f"{storage.partition('://')[0]}://***"
    user = f"{url[2]}:***@" if url[3] else f"{url[2]}@" if url[2] else ""
    return f"{url[1]}{user}{url[4]}"


def _reason(error: BaseException, storage: str) -> str:
    """Return what kind of error it is, and its first line unless a password could be in there."""
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    url = _URL.fullmatch(storage)
    secret = url[3] if url is not None else ""
    silent = not said or url is None or (secret and (secret in said or unquote(secret) in said))
    return type(error).__name__ if silent else f"{type(error).__name__}: {said}"


_START = b'{"op_code":'
"""How every line of a journal begins."""
_TORN = b" is incomplete\n"
"""What closes a line that a killed process has left incomplete."""


def _journal(path: Path) -> Any:
    from optuna.storages.journal import JournalFileBackend

    if path.exists() and not path.is_file():
        raise SettingsError(f"the storage {path} is not a file: give the name of a journal file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        return JournalFileBackend(str(path))
    with path.open("a+b") as file:
        file.seek(0)
        start = file.readline().removesuffix(_TORN).rstrip(b"\n")
    if not _START.startswith(start[: len(_START)]):
        raise SettingsError(
            f"the storage {path} is not a journal of a search: give another file, or a new one"
        )
    return JournalFile(path)


class JournalFile:
    """A journal of Optuna, one JSON object per line, that outlives processes killed while they write to it.

    Optuna's own backend refuses a journal with an incomplete line, and waits for the lock of a dead process.
    Here an incomplete line is skipped, the lock ends with the process that holds it, and every line has its
    checksum.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count, self._offset = 0, 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries after the first ``log_number_from`` ones."""
        if log_number_from != self._count:
            self._count, self._offset = 0, 0
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):  # still being written, or never completed
                    return
                self._offset += len(line)
                if line.endswith(_TORN):
                    continue
                self._count += 1
                if self._count > log_number_from:
                    yield self._entry(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, after closing a line that a killed process has left incomplete."""
        text = b"".join(map(seal_line, logs))
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else _TORN + text
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _entry(self, line: bytes) -> dict[str, Any]:
        if not verify(line):
            raise SettingsError(
                f"a line of {self.path} is damaged, or of an older version: delete the file, and the search "
                "is made again from the runs that are stored beside it"
            )
        entry: dict[str, Any] = json.loads(line)
        del entry[CHECKSUM]
        return entry


def finished(study: optuna.Study) -> list[Any]:
    """Return the trials that are complete or pruned."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def claim_draw(study: optuna.Study, trial: optuna.Trial) -> int:
    """Return which random draw of the search a trial makes, and keep it with the trial.

    It is the trial's number without those given up before it, so that an interrupted search draws what an
    undisturbed one would, unless a trial of another process draws that already.
    """
    from optuna.trial import TrialState

    if "draw" in trial.user_attrs:  # it was begun before
        return int(trial.user_attrs["draw"])
    others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
    draw = trial.number - sum(one.state == TrialState.FAIL and one.number < trial.number for one in others)
    taken = {one.user_attrs.get("draw") for one in others if one.state != TrialState.FAIL}
    while draw in taken:
        draw += 1
    trial.set_user_attr("draw", draw)
    return draw


def put_back_trials(study: optuna.Study) -> list[Any]:
    """Return the trials that were begun, interrupted and put back; they are run even if there are enough."""
    from optuna.trial import TrialState

    waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    return [trial for trial in waiting if "worker" in trial.user_attrs]


def requeue_abandoned(study: optuna.Study, storage: Any, *, alone: bool = False) -> None:
    """Put trials back whose processes on this machine were killed: they keep their number and settings.

    Args:
        study: the study.
        storage: where it is kept.
        alone: whether no other process can have begun a trial without saying who it is.
    """
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, process = trial.user_attrs.get("worker", (platform.node(), 0) if alone else ("", 0))
        if host == platform.node() and not (process and _is_alive(process)):
            put_back(trial, storage)


def put_back(trial: Any, storage: Any) -> None:
    """Let a trial that was interrupted be run again.

    One that was interrupted while its settings were drawn at random is given up instead: the next one draws
    the same again, which a trial with some settings could not.
    """
    from optuna.trial import TrialState

    drawn = "settings" in trial.user_attrs or "fixed_params" in trial.system_attrs
    storage.set_trial_state_values(trial._trial_id, TrialState.WAITING if drawn else TrialState.FAIL)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 does not just test for existence
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists but belongs to another user
        pass
    return True


def require_optuna(command: str = "bvat tune") -> None:
    """Raise SettingsError unless Optuna is installed; silence its log messages."""
    try:
        import optuna
    except ImportError:
        raise SettingsError(f"{command} needs Optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
