"""Files are written completely or not at all; tables as CSV."""

from __future__ import annotations

import csv
import errno
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from pyarrow import csv as arrow

from bvat.data import files
from bvat.data.files import csv_text, remove_leftovers, write_atomic, write_csv
from bvat.errors import DataError


def test_missing_cells_are_empty_and_text_is_quoted(tmp_path: Path) -> None:
    rows = [(1, None, math.nan), (0.5, 'a "b", c', math.inf)]
    text = csv_text(("x", "y", "z"), rows)
    assert text == 'x,y,z\n1,,\n0.5,"a ""b"", c",inf\n'
    write_csv(tmp_path / "new" / "table.csv", ("x", "y", "z"), rows)
    assert (tmp_path / "new" / "table.csv").read_text("utf-8") == text


@pytest.mark.parametrize("mark", ["\r", "\n", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_line_separator_breaks_a_row(mark: str, tmp_path: Path) -> None:
    rows = [[f"a{mark}=1+1", "x"], ["b", f"{mark}y"], [mark, "z"]]
    write_csv(tmp_path / "table.csv", ("id", "class"), rows)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["id", "class"], *rows]
    options = arrow.ParseOptions(newlines_in_values=True)
    found = arrow.read_csv(tmp_path / "table.csv", parse_options=options).to_pydict()
    assert found == {"id": [row[0] for row in rows], "class": [row[1] for row in rows]}


def test_links_are_followed_and_the_mode_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "real" / "secret.csv"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o600)
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "real" / "made")
    write_atomic(dangling, "new")
    assert dangling.is_symlink()
    assert (tmp_path / "real" / "made").read_text() == "new"
    assert {path.name for path in target.parent.iterdir()} == {"secret.csv", "made"}


def test_a_fifo_and_a_device_are_written_to(tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    with pytest.raises(DataError, match="fifo is not a regular file: remove it"):
        write_atomic(fifo, "into a run folder")
    thread = threading.Thread(target=lambda: read.append(fifo.read_text()))
    thread.start()
    write_atomic(fifo, "through", special=True)
    thread.join()
    assert read == ["through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_atomic(null, "away", special=True)
    assert null.is_symlink()
    assert stat.S_ISCHR(null.stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"fifo", "null"}


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("n" * 255), "x")
    with pytest.raises(OSError, match="too long") as caught:
        write_atomic(tmp_path / ("n" * 256), "x")
    assert caught.value.filename == str(tmp_path / ("n" * 256))


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_was_removed_is_not_created_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "gone" / "x", "x", new_folders=False)
    assert not (tmp_path / "gone").exists()


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.Path, "replace", lambda *_: os._exit(0))
    for folder in (tmp_path, tmp_path / "seed-0", tmp_path / "other"):
        child = os.fork()
        if not child:
            write_atomic(folder / "x", "killed")
        os.waitpid(child, 0)
        (folder / ".bvat").write_text("of somebody else")
    assert len(list(tmp_path.rglob("*.part"))) == 3
    remove_leftovers(tmp_path, "seed-*", older_than=1000)
    assert len(list(tmp_path.rglob("*.part"))) == 3
    remove_leftovers(tmp_path, "seed-*")
    assert [path.parent.name for path in tmp_path.rglob("*.part")] == ["other"]
    assert len(list(tmp_path.rglob(".bvat"))) == 3
