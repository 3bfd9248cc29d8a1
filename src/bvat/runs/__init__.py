"""Whole runs: seeds trained into a folder that can be resumed, with a summary and a page."""

from bvat.runs.run import FinishedRun, RunOptions, run

__all__ = ["FinishedRun", "RunOptions", "run"]
