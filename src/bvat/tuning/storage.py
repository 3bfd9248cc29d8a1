"""Optuna studies: their journal, and what happens to interrupted trials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bvat.data.checksums import CHECKSUM
from bvat.errors import SettingsError
from bvat.training.provenance import digest

if TYPE_CHECKING:
    import optuna


ENOUGH_TRIALS = 8
"""The importance of settings is estimated from at least this many complete trials."""


def require_optuna() -> None:
    """Raise SettingsError unless Optuna is installed; silence its log messages."""
    try:
        import optuna
    except ImportError:
        raise SettingsError("bvat tune needs Optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_journal(path: Path) -> Any:
    """Return the Optuna storage in a journal file, which is created if necessary."""
    import optuna

    return optuna.storages.JournalStorage(JournalFile(path))  # type: ignore[arg-type]


class JournalFile:
    """Optuna's journal, one JSON object per line, with a checksum in every line."""

    def __init__(self, path: Path) -> None:
        from optuna.storages.journal import JournalFileBackend

        if path.exists() and not path.is_file():
            raise SettingsError(f"{path} is not a file: remove it, or use another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._file = path, JournalFileBackend(str(path), _JournalLock(path))  # type: ignore[arg-type]
        start = b'{"op_code":'
        with path.open("rb") as file:
            if not start.startswith(file.read(len(start))):
                raise SettingsError(f"{path} is not a journal of a search: remove it, or use another --out")

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


def halving() -> Any:
    """Return a pruner that lets half of the trials go on after 1, 2, 4, ... seeds (successive halving).

    Trials that were given up do not compete: they are drawn again, and would count twice.
    """
    from optuna.pruners import SuccessiveHalvingPruner

    class Halving(SuccessiveHalvingPruner):
        def prune(self, study: Any, trial: Any) -> bool:
            def others(deepcopy: bool = True) -> list[Any]:
                every = study.get_trials(deepcopy=deepcopy)
                return [one for one in every if one.state.name != "FAIL" and one.number != trial.number]

            seen = SimpleNamespace(get_trials=others, direction=study.direction, _storage=study._storage)
            return super().prune(seen, trial)  # type: ignore[arg-type]

    return Halving(min_resource=1, reduction_factor=2)


def importances(study: optuna.Study) -> dict[str, float]:
    """Return how much of the variance of the value each setting explains (fANOVA), the largest first.

    Only complete trials count; of fewer than :data:`ENOUGH_TRIALS`, or of equal ones, nothing is returned.
    """
    import optuna

    values = [one.value for one in study.get_trials(deepcopy=False) if one.state.name == "COMPLETE"]
    if len(values) < ENOUGH_TRIALS or len(set(values)) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name.split(".")[0]: round(share, 4) for name, share in found.items()}


def finished(study: optuna.Study) -> list[Any]:
    return [one for one in study.get_trials(deepcopy=False) if one.state.name in ("COMPLETE", "PRUNED")]


def claim_draw(study: optuna.Study, trial: optuna.Trial) -> int:
    """Return which random draw of the search a trial makes, and keep it with the trial.

    It is the trial's number without those given up before it, so that an interrupted search draws what an
    undisturbed one would, unless a trial of another process draws that already.
    """
    if "draw" in trial.user_attrs:  # it was begun before
        return int(trial.user_attrs["draw"])
    others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
    draw = trial.number - sum(one.state.name == "FAIL" and one.number < trial.number for one in others)
    taken = {one.user_attrs.get("draw") for one in others if one.state.name != "FAIL"}
    while draw in taken:
        draw += 1
    trial.set_user_attr("draw", draw)
    return draw


def give_up_running(study: optuna.Study, storage: Any) -> None:
    """Give up the trials of processes that were killed; the next trials make their draws again."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "RUNNING":
            give_up(trial, storage)


def give_up(trial: Any, storage: Any) -> None:
    """Give up a trial that was interrupted; one of the starting points, which nothing draws, waits again."""
    from optuna.trial import TrialState

    given = "fixed_params" in trial.system_attrs
    storage.set_trial_state_values(trial._trial_id, TrialState.WAITING if given else TrialState.FAIL)
