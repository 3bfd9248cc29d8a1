"""Tasks that several processes, also of several machines, share through a folder that all of them see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from bvat.runs.claim import taken
from bvat.runs.pool import ReportProgress, Task, TaskFunction, run_tasks


def run_shared_tasks(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    lock: Callable[[Task], Path],
    jobs: int,
    progress: Callable[[Task, float], None],
) -> None:
    """Do all tasks that no other process does, then wait for those, and do what they have left undone.

    Args:
        function: does a task unless it is finished already, see :func:`run_tasks`.
        tasks: in the order in which they are started.
        lock: returns a file that exists while a process is at a task; sent to worker processes.
        jobs: number of processes.
        progress: called with a task and how much of it is done.
    """
    run_tasks(_Alone(function, lock, wait=False).run, tasks, jobs, progress)
    left = [task for task in tasks if lock(task).exists()]
    run_tasks(_Alone(function, lock, wait=True).run, left, jobs, progress)


@dataclass(frozen=True)
class _Alone(Generic[Task]):
    function: TaskFunction[Task]
    lock: Callable[[Task], Path]
    wait: bool

    def run(self, task: Task, report: ReportProgress) -> Any:
        with taken(self.lock(task), wait=self.wait) as mine:
            if mine:
                self.function(task, report)
