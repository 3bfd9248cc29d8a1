"""Errors that a user can act on.

The message of each is one sentence that says what is wrong and how to fix it; the command line prints that
sentence and exits with code 2. Any other exception is a bug in bvat and keeps its traceback.
"""

from __future__ import annotations

import errno


def printable(text: str) -> str:
    """Return text in which control characters, such as those of colours and new lines, are written out.

    Names come from files of others: printed as they are, they could change what a terminal shows.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object, width: int = 40) -> str:
    """Return a value for an error message, shortened if necessary."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 4]}...{text[0]}"


class BvatError(Exception):
    """Base class of all errors whose message is meant for the user: one line of printable text."""

    def __str__(self) -> str:
        return printable(super().__str__())


class GraphError(BvatError, ValueError):
    """A graph is inconsistent: the message says what is wrong and how to fix it."""


class DataError(BvatError):
    """A data set cannot be found, fetched or trusted: the message says which file to put where."""


class SettingsError(BvatError, ValueError):
    """A setting has an invalid value: the message names the setting and the allowed values."""


class TrainingError(BvatError, RuntimeError):
    """Training cannot continue: the loss is not finite, or a checkpoint belongs to a different run."""


_REMEDIES = {
    errno.ENOSPC: "free some space, or use another folder",
    errno.EDQUOT: "free some space, or use another folder",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EACCES: "use a place that you may write to",
    errno.EPERM: "use a place that you may write to",
    errno.EROFS: "use a place that you may write to",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOENT: "check the path; its folder may have been removed",
    errno.ENOTDIR: "check the path, a part of it is a file",
    errno.EISDIR: "give the name of a file",
}


def explain(error: OSError) -> str:
    """Return one sentence about a file that cannot be read or written, with the remedy."""
    what = "the output" if error.filename is None else str(error.filename)
    remedy = _REMEDIES.get(error.errno or 0, "check the path and the disk")
    return printable(f"{what} cannot be read or written ({error.strerror or error}): {remedy}")
