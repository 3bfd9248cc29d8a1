"""The example of a plug-in, installed and used from outside; and plug-ins that do not work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bvat
from bvat.baselines.base import node_table
from bvat.baselines.table import BASELINES
from bvat.data.loading import DATASETS
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.plugins import PluginWarning, Table
from cli_helpers import bvat as command

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
SOURCE = Path(bvat.__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip installs it."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True, timeout=300)
    return folder / "site"


def run(words: list[str], site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(SOURCE), str(site)])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=550
    )


SCRIPT = """
import sys
from bvat.cli.main import main
for line in {lines!r}:
    try:
        main(line.split())
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{{line}}: {{ended.code}}")
"""


@pytest.mark.slow
def test_the_example_goes_through_all_commands(installed: Path, small_file: Path, tmp_path: Path) -> None:
    """From outside the package: trained, resumed, predicted, audited, compared, a member of auto."""
    train = (
        f"train {small_file} --epochs 8 --jobs 1 --out run --model jumping --method several --directions 2"
    )
    quick = "--labels 3 --val 20 --splits 2 --epochs 4 --jobs 1"
    lines = [
        f"{train} --seeds 1",
        f"{train} --seeds 2 --resume",
        "predict run --out predictions.csv",
        "audit run --nodes 4 --out audit.csv",
        f"compare {small_file} --methods gcn,several,jumping,jumping/several {quick} --out compare",
        f"train {small_file} --effort 3 --jobs 1 --out auto",
        "predict auto --out auto.csv",
        "settings jumping several",
    ]
    done = run(["-c", SCRIPT.format(lines=lines)], installed, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Jumping + several" in done.stdout
    assert "directions" in done.stdout
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 121
    assert len((tmp_path / "audit.csv").read_text().splitlines()) == 5
    result = json.loads((tmp_path / "compare" / "compare.json").read_text())
    assert list(result["variants"]) == ["gcn", "several", "jumping", "jumping/several"]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["seeds"] == 2
    fit = json.loads((tmp_path / "auto" / "seed-0" / "result.json").read_text())["fit"]
    assert "GCN + several" in " ".join(member["title"] for member in fit["members"])
    shown = run(["-m", "bvat", "train", "--help"], installed, tmp_path)
    assert "several" in shown.stdout
    assert "jumping" in shown.stdout


@pytest.mark.slow
def test_its_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")], installed, tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def declared(folder: Path, package: str, group: str, point: str, **modules: str) -> None:
    """Write what pip leaves of a package with one entry point."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.mark.slow
def test_a_broken_plug_in_is_one_sentence_and_disables_nothing(tmp_path: Path) -> None:
    declared(
        tmp_path / "site", "broken-package", "bvat.methods", "mine = broken_rows:ROW", broken_rows="1 / 0"
    )
    done = run(["-m", "bvat", "train", "--help"], tmp_path / "site", tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "bvat: note: the plug-in broken-package is left out: its mine in bvat.methods cannot be used "
        "(ZeroDivisionError: division by zero)\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ROW = 3", "its mine in bvat.methods cannot be used .3 is not a MethodRow."),
        ("", "cannot be used .AttributeError: module 'odd_rows"),
        ("raise SystemExit", "cannot be used .SystemExit"),
        ("import bvat\nROW = bvat.MethodRow('gcn', 'GCN + x', 'about')", "the name 'gcn' is taken"),
        ("import bvat\nROW = bvat.MethodRow('vat', 'GCN + x', 'about')", "the name 'vat' is taken"),
        (
            "import bvat\nlist(bvat.perturb.methods.METHODS)\nROW = bvat.MethodRow('x', 'GCN + x', 'about')",
            "",
        ),
    ],
)
def test_what_an_entry_point_names_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    name = f"odd_rows{abs(hash(content))}"
    declared(tmp_path, "odd-package", "bvat.methods", f"mine = {name}:ROW", **{name: content})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(METHODS, "added", METHODS.added)
    del METHODS.__dict__["added"]
    if not message:
        assert "x" in METHODS
        assert "x" in bvat.Settings("x").method
        return
    with pytest.warns(PluginWarning, match=f"the plug-in odd-package is left out: .*{message}"):
        assert "mine" not in METHODS
    assert bvat.Settings("vat").method == "vat"


@pytest.fixture
def clean_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (MODELS, METHODS, BASELINES, DATASETS):
        monkeypatch.setattr(table, "added", dict(table.added))


@pytest.mark.usefixtures("clean_tables")
def test_a_script_registers_all_four_kinds(small: bvat.Graph, tmp_path: Path, capsys: Any) -> None:
    def majority(graph: bvat.Graph, seed: int) -> Any:
        return node_table(graph, torch.zeros(graph.num_nodes, graph.num_classes), {})

    bvat.register(bvat.MethodRow("shout", "GCN + shout", "VAT under another name", home=bvat.VAT))
    bvat.register(bvat.Baseline("majority", "Majority", majority))
    bvat.register(bvat.Model("plain-gcn", "A GCN", "bvat.models.gcn:GCN"))
    bvat.register(bvat.DatasetRow("tiny", "a graph for tests", lambda: small))
    assert bvat.load("tiny").name == "tiny"
    assert bvat.train(small, bvat.preset("", "shout", epochs=3)).metrics[-1]["epoch"] == 3
    assert bvat.train(small, bvat.preset("", "majority")).selected["test"] < 60
    assert bvat.train(small, bvat.Settings("vat", "plain-gcn", epochs=3)).space == "factored"
    done = bvat.run(bvat.load("tiny"), "shout", folder=tmp_path / "run", model="plain-gcn", epochs=3)
    code, _, err = command(["predict", str(done.path), "--out", str(tmp_path / "p.csv")], capsys)
    assert (code, err) == (0, "")
    code, out, _ = command(["data", "list"], capsys)
    assert code == 0
    assert "tiny" in out
    for row, message in (
        (bvat.MethodRow("gat", "GCN + x", "a model's name"), "the name 'gat' is taken"),
        (bvat.Model("shout", "A", "bvat.models.gcn:GCN"), "the name 'shout' is taken"),
        ("shout", "'shout' is no MethodRow, Model, Baseline or DatasetRow"),
    ):
        with pytest.raises(SettingsError, match=message):
            bvat.register(row)


def test_a_table_reads_entry_points_only_when_it_has_to() -> None:
    table = Table("bvat.models", bvat.Model, [MODELS["gcn"]])
    assert table["gcn"].title == "GCN"
    assert "added" not in table.__dict__
    assert len(table) == 1 + len(table.added)
