"""The ``bvat`` command."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer import Option
from typer.main import get_command

from bvat._version import __version__
from bvat.cli import audit, bench, compare, data, partition, predict, reproduce, runs, train, trust, tune
from bvat.cli import settings as settings_command
from bvat.errors import BvatError, explain
from bvat.training.interrupt import stop_like_ctrl_c

# The base class of all usage errors; typer exports only this subclass of it.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="bvat",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (train.train, predict.predict, audit.audit, trust.explain, predict.export,
                 trust.suggest, trust.review, reproduce.reproduce, compare.compare, tune.tune,
                 settings_command.settings, partition.partition, bench.bench):  # fmt: skip
    app.command()(_command)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bvat {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Virtual adversarial training for graph neural networks."""


STOPPED = 130
"""The exit code after Ctrl-C; after another signal it is 128 plus its number."""
UNREAD = 141
"""The exit code when the reader of the output has closed it, as after SIGPIPE."""


@functools.cache
def _commands() -> Any:
    """Return the tree of commands, which takes long to build: a program may call :func:`main` many times."""
    return get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors that the user can fix become one sentence and exit code 2."""
    with stop_like_ctrl_c() as received:
        try:
            code = _commands()(arguments, standalone_mode=False, prog_name="bvat")
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            code = STOPPED
        except (Exception, SystemExit) as error:
            code = _code_of(error)
            if code is None:
                raise
    if code == STOPPED:  # typer also turns Ctrl-C into this code
        reason = f"stopped by {signal.Signals(received[0]).name}" if received else "interrupted"
        _complain(reason + _how_to_continue(arguments if arguments is not None else sys.argv[1:]))
        code = 128 + received[0] if received else STOPPED
    sys.exit(code if isinstance(code, int) else 0)


def _code_of(error: BaseException) -> int | None:
    """Print a sentence about an error that the user can fix, and return the exit code; None for a bug."""
    if isinstance(error, _UsageError):
        if not error.format_message():  # no arguments: the help has been shown
            return 2
        where = error.ctx.command_path if error.ctx is not None else "bvat"
        return _fail(f"{error.format_message().rstrip('.')}. See '{where} --help'.")
    if isinstance(error, BvatError):
        return _fail(str(error))
    cause = error.__cause__ or error.__context__
    if isinstance(error, ImportError) and isinstance(cause, KeyboardInterrupt):
        return STOPPED  # compiled modules turn a Ctrl-C during their import into this
    if isinstance(cause if isinstance(error, SystemExit) else error, BrokenPipeError):
        _give_up_output()  # typer and rich turn a broken pipe into exit code 1
        return UNREAD
    return _fail(explain(error)) if isinstance(error, OSError) else None


def _how_to_continue(arguments: list[str]) -> str:
    """Return how to continue after Ctrl-C, for the commands that keep finished work."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    if command == "train":
        return "; finished work is kept, and --resume continues from there"
    done = {"audit": "nodes", "tune": "trials", "reproduce": "runs", "compare": "runs"}.get(command)
    return f"; run the same command again to continue after the finished {done}" if done else ""


def _complain(message: str) -> None:
    rank = f"rank {os.environ['RANK']}: " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    with contextlib.suppress(OSError):
        typer.echo(f"bvat: {rank}{message}", err=True)


def _fail(message: str) -> int:
    _complain(message)
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        os._exit(2)  # a thread that waits for another rank must not keep this one
    return 2


def _give_up_output() -> None:
    """Close standard output, which cannot be written, so that Python does not try again and complain."""
    with contextlib.suppress(OSError):
        sys.stdout.close()


if __name__ == "__main__":
    main()
