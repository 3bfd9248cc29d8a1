"""Optuna studies: where they are kept, and which of their trials are done."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bvat.errors import SettingsError

if TYPE_CHECKING:
    import optuna


def open_storage(storage: str) -> Any:
    """Return the Optuna storage of a URL (``sqlite:///study.db``, ``postgresql://...``) or journal file."""
    import optuna

    if "://" in storage:
        return optuna.storages.get_storage(storage)
    from optuna.storages.journal import JournalFileBackend

    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(storage))


def finished(study: optuna.Study) -> list[Any]:
    """Return the trials that are complete or pruned."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def requeue_abandoned(study: optuna.Study) -> None:
    """Queue the trials again whose processes on this machine were killed."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, process = trial.user_attrs.get("worker", ("", 0))
        if host == platform.node() and not _is_alive(process):
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params)


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
    optuna.logging.set_verbosity(optuna.logging.WARNING)
