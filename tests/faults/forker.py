"""Starts ``bvat`` commands quickly: a process that has imported everything, and forks for each command.

Each line of standard input is a JSON object (see :meth:`commands.Forker.start`); the answers are the process
number and, when the command has ended, its exit code. A command is the leader of a new session, so that all
processes that it starts can be found and killed together.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Run the commands one after the other."""
    import bvat.paper.targets
    import bvat.report.compare_page
    import bvat.report.paper_page
    import bvat.tuning.compare
    import bvat.tuning.tune  # noqa: F401

    for line in sys.stdin:
        wanted = json.loads(line)
        process = os.fork()
        if process == 0:
            _run(wanted)
        while os.getsid(process) != process:
            time.sleep(0.001)
        print(process, flush=True)  # noqa: T201
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _run(wanted: dict) -> None:
    from bvat.cli import main as cli

    os.setsid()
    os.chdir(wanted["folder"])
    os.environ.update(wanted["environment"])
    for descriptor, name in ((0, os.devnull), (1, wanted["stdout"]), (2, wanted["stderr"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    if wanted["limit"] is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted["limit"], resource.RLIM_INFINITY))
    sys.argv = ["bvat", *wanted["arguments"]]
    cli.main()


if __name__ == "__main__":
    main()
