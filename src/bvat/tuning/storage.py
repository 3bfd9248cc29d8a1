"""Optuna studies: where they are kept, and which of their trials are run again."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from filelock import FileLock

from bvat.data.checksums import CHECKSUM
from bvat.errors import SettingsError, TrainingError
from bvat.training.provenance import digest

if TYPE_CHECKING:
    import optuna


def require_optuna(command: str = "bvat tune") -> None:
    """Raise SettingsError unless Optuna is installed; silence its log messages."""
    try:
        import optuna
    except ImportError:
        raise SettingsError(f"{command} needs Optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_storage(storage: str) -> Any:
    """Return the Optuna storage of a URL (``sqlite:///study.db``, ``postgresql://...``) or journal file."""
    import optuna

    try:
        if "://" in storage:
            return optuna.storages.get_storage(storage.replace("{", "{{").replace("}", "}}"))  # a template
        return optuna.storages.JournalStorage(JournalFile(Path(storage)))  # type: ignore[arg-type]
    except (SettingsError, OSError):
        raise
    except Exception as error:  # whatever a database or its driver raises
        raise SettingsError(
            f"the storage {_shown(storage)!r} cannot be opened ({_reason(error, storage)}): check its URL "
            "(such as sqlite:///study.db) and that its server runs, then run the same command again"
        ) from None


@contextmanager
def answering(storage: str) -> Iterator[None]:
    """Turn the errors of a database that stops answering into one sentence."""
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


class JournalFile:
    """Optuna's journal, one JSON object per line, with a checksum in every line."""

    def __init__(self, path: Path) -> None:
        from optuna.storages.journal import JournalFileBackend

        if path.exists() and not path.is_file():
            raise SettingsError(f"the storage {path} is not a file: give the name of a journal file")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._file = path, JournalFileBackend(str(path), _JournalLock(path))  # type: ignore[arg-type]
        start = b'{"op_code":'
        with path.open("rb") as file:
            if not start.startswith(file.read(len(start))):
                raise SettingsError(
                    f"the storage {path} is not a journal of a search: give another file, or a new one"
                )

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        try:
            for log in self._file.read_logs(log_number_from):
                if log.pop(CHECKSUM, None) != digest(log):
                    raise ValueError(CHECKSUM)
                yield log
        except (ValueError, AttributeError, TypeError):
            raise SettingsError(
                f"a line of {self.path} is damaged: delete the file, and the search is repeated from the "
                "runs that are stored beside it"
            ) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._file.append_logs([{**log, CHECKSUM: digest(log)} for log in logs])


class _JournalLock:
    """A lock that ends with its process; Optuna's own outlives a killed one by half a minute.

    Whoever gets it removes the incomplete line that a killed process may have left.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, FileLock(f"{path}.lock")

    def acquire(self) -> bool:
        self._lock.acquire()
        with self.path.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self._lock.release()


def finished(study: optuna.Study) -> list[Any]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def put_back_trials(study: optuna.Study) -> list[Any]:
    """Return the trials that were begun, interrupted and put back; they are run even if there are enough."""
    from optuna.trial import TrialState

    waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    return [trial for trial in waiting if "worker" in trial.user_attrs]


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


def requeue_abandoned(study: optuna.Study, storage: Any, *, alone: bool = False) -> None:
    """Put back the trials whose processes on this machine were killed: they keep their number and settings.

    ``alone`` says that no other process can have begun a trial without having named itself yet. (Optuna
    itself notices dead processes in databases only, by heartbeats.)
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
