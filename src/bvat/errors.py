"""Errors that a user can act on.

Each carries one sentence that names what is wrong and the remedy; the command line prints that sentence
and exits with code 2. Anything else that escapes is a defect of bvat and keeps its traceback.
"""

from __future__ import annotations


class BvatError(Exception):
    """Base of all errors whose message is meant for the user."""


class GraphError(BvatError, ValueError):
    """A graph is inconsistent: the message names the fault and its remedy."""


class DataError(BvatError):
    """A data set cannot be found, fetched or trusted: the message says which file to put where."""


class SettingsError(BvatError, ValueError):
    """A setting has a value that makes no sense: the message names it and the allowed range."""


class TrainingError(BvatError, RuntimeError):
    """Training cannot go on (a loss that is not finite, a checkpoint of another run)."""
