"""``python -m bvat`` is the command line, also under ``torchrun``."""

import os
import sys

if __name__ == "__main__":
    # -m puts the current folder first, which may be somebody's download: its rich.py is not ours to run
    if sys.path[0] in ("", os.getcwd()) and not sys.flags.safe_path:  # noqa: PTH109, pathlib may be theirs
        del sys.path[0]
    from bvat.cli.main import main

    main()
