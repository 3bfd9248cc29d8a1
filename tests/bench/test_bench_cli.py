from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from bvat.bench import measure
from bvat.cli.main import main

FEW = measure.Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2)


@pytest.fixture
def _tiny_plan(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure a small graph, whatever the command asks for."""
    tiny = partial(measure.run_bench, [str(graph_file)], FEW)
    monkeypatch.setattr(
        measure, "run_bench", lambda datasets, budget, log, device: tiny(log, ("gcn", "vat"), device)
    )


def bvat(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_plan")
def test_json_on_stdout_and_progress_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = bvat(["bench", "--quick", "--json", "--out", str(tmp_path)], capsys)
    assert code == 0
    result = json.loads(out)
    assert result == json.loads((tmp_path / "bench.json").read_text())
    assert list(result["epoch_ms"]["tiny"]) == ["gcn", "vat"]
    assert "tiny: gcn, vat" in err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_plan")
def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(["bench"], capsys)
    assert code == 0
    assert "epoch / GCN" in out
    assert "VAT" in out


@pytest.mark.parametrize("arguments", [["--fast"], ["cora"], ["--out"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = bvat(["bench", *arguments], capsys)
    assert (code, out) == (2, "")
    assert err.startswith("bvat: ")


def test_a_file_cannot_be_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        code, out, err = bvat(["bench", "--quick", "--out", str(tmp_path / name)], capsys)
        assert (code, out) == (2, "")
        assert "cannot be a folder" in err
        assert len(err.splitlines()) == 1
