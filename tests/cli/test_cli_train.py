"""``bvat train`` as a user meets it."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bvat.data import load_graph, save_graph, synthetic_graph
from bvat.store.progress import ProgressDisplay
from bvat.training import provenance
from bvat.training.checkpoint import Checkpoint
from bvat.training.settings import Settings
from bvat.training.state import start_training
from cli_helpers import bvat

PLAIN = ["--epochs", "6", "--hidden", "8", "--device", "cpu"]
QUICK = [*PLAIN, "--confidence", "0"]


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "small.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_json_is_one_object_with_all_keys(graph_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(
        ["train", str(graph_file), "--method", "obvat", "--seeds", "2", "--jobs", "1", "--json", *QUICK],
        capsys,
    )
    result = json.loads(out)
    assert code == 0
    assert list(result) == [
        "dataset", "method", "space", "seeds", "epochs", "settings", "validation", "val_accuracy",
        "test_accuracy", "cross_validation", "val_macro_f1", "test_macro_f1", "f1_nodes", "f1_classes",
        "epoch_ms", "stopped", "events", "peak_rss_mb", "version", "versions", "run",
    ]  # fmt: skip
    assert (result["method"], result["space"], result["seeds"], result["epochs"]) == (
        "obvat",
        "factored",
        2,
        6,
    )
    assert result["settings"]["hidden"] == 8
    source = provenance.code()["source"]
    for name in ("result.json", "settings.json", "seed-0/result.json", "seed-1/result.json"):
        content = json.loads(Path("runs/small-obvat", name).read_text("utf-8"))
        assert content["versions"]["source"] == source, name
    assert f"source {source}" in Path("runs/small-obvat/report.html").read_text("utf-8")
    assert result["run"] == "runs/small-obvat"
    assert Path(result["run"], "result.json").is_file()
    for part in (result["val_accuracy"], result["test_accuracy"]):
        assert part["mean"] == pytest.approx(sum(part["values"]) / 2)
        assert 0 <= part["mean"] <= 100


def test_the_table_and_the_folder(graph_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(["train", str(graph_file), "--method", "sbvat", "--count", "5", *QUICK], capsys)
    assert code == 0
    for word in ("validation accuracy", "test accuracy", "time per epoch", "peak memory", "runs/small-sbvat"):
        assert word in out
    assert {"settings.json", "split.npz", "metrics.csv", "result.json", "seed-0"} <= {
        path.name for path in Path("runs/small-sbvat").iterdir()
    }
    bvat(["train", str(graph_file), "--method", "sbvat", "--no-report", *QUICK], capsys)
    assert Path("runs/small-sbvat-2").exists()  # what was there is not touched


def test_early_stopping_and_f1_are_shown(
    graph_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    titles: list[str] = []
    monkeypatch.setattr(ProgressDisplay, "set_title", lambda self, title: titles.append(title))
    arguments = ["train", str(graph_file), "--method", "none", "--epochs", "90", "--patience", "3"]
    code, out, _ = bvat([*arguments, "--out", "run", "--class-weights", "balanced"], capsys)
    assert code == 0
    (stopped,) = json.loads(Path("run/result.json").read_text())["stopped"]
    assert re.fullmatch(r"seed 0 stopped at epoch \d+ of 90: no better validation for 3 epochs", stopped)
    assert f"│ early stopping      │ {stopped} │" in out
    assert titles[-1].endswith(f"({stopped})")
    assert "test macro F1" in out
    assert re.search(r"^F1 in % on the test nodes, per class: 0 [\d.]+, 1 [\d.]+, 2 [\d.]+\.$", out, re.M)
    page = Path("run/report.html").read_text("utf-8")
    assert f"S{stopped[1:]}." in page
    assert "F1 per class" in page
    assert "test macro F1" in page
    assert json.loads(Path("run/settings.json").read_text())["settings"]["class_weights"] == "balanced"


def test_the_page_repeats_all_options_and_names_the_model_as_tables_do(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", "sage", "--threads", "1", "--device", "cpu", "--epochs", "3"]
    given += ["--no-guard", "--pretrain", "0"]
    unnamed = ["--jobs", "1", "--out", "run"]
    code, out, _ = bvat(["train", str(graph_file), "--method", "vat", *given, *unnamed], capsys)
    assert code == 0
    assert "GraphSAGE + VAT on synthetic" in out
    page = Path("run/report.html").read_text("utf-8")
    assert "<h1>GraphSAGE + VAT on synthetic</h1>" in page
    command = shlex.split(html.unescape(re.search("<pre>(bvat train .*?)</pre>", page)[1]))  # type: ignore[index]
    for name, value in zip(given, [*given[1:], ""], strict=True):
        if name.startswith("--"):
            assert name in command
            assert value.startswith("--") or command[command.index(name) + 1] == value
    assert not set(command) & {"--jobs", "--out", "--log"}
    again, _, _ = bvat([*command[1:], "--out", "again", "--no-report"], capsys)
    assert again == 0
    one, two = (Path(run, "seed-0/metrics.csv").read_text().splitlines() for run in ("run", "again"))
    assert [row.rsplit(",", 3)[0] for row in one] == [row.rsplit(",", 3)[0] for row in two]


def test_logging_for_tensorboard_needs_it_before_training(
    graph_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = bvat(["train", str(graph_file), "--method", "none", "--tensorboard"], capsys)
    assert code == 2
    assert "pip install 'bvat[tensorboard]'" in err
    assert not Path("runs").exists()


@pytest.mark.parametrize("space", ["dense", "sparse", "factored"])
def test_every_space(graph_file: Path, space: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(
        ["train", str(graph_file), "--method", "obvat", "--space", space, "--json", "--no-report", *QUICK],
        capsys,
    )
    assert code == 0
    assert json.loads(out)["space"] == space


BAD: list[tuple[list[str], str]] = [
    (["train", "corra"], "no data set or file 'corra' (did you mean cora?)"),
    (["train", "GRAPH", "--method", "magic"], "there is no method 'magic': use one of none"),
    (["train", "GRAPH", "--metod", "gcn"], "No such option: --metod"),
    (["train", "GRAPH", "--lr", "fast"], "Invalid value for '--lr'"),
    (["train", "GRAPH", "--lr", "-1"], "lr must be above 0, not -1.0"),
    (["train", "GRAPH", "--dropout", "1"], "dropout must be below 1"),
    (["train", "GRAPH", "--select", "first"], "'first' is not one of"),
    (["train", "GRAPH", "--epochs", "0"], "epochs must be at least 1"),
    (["train", "GRAPH", "--seeds", "0"], "--seeds"),
    (
        ["train", "GRAPH", "--method", "vat", "--space", "curved"],
        "space must be one of auto, dense, sparse, factored",
    ),
    (["train", "GRAPH", "--device", "tpu"], "device must be auto, cpu or cuda, not 'tpu'"),
    (["train", "GRAPH", "--resume"], "there is no run to resume at runs/small-auto"),
    (
        ["train", "GRAPH", "--method", "vat", "--norm", "field"],
        "norm has no effect with vat: leave it out, it belongs to sbvat",
    ),
    (["train", "GRAPH", "--out", "occupied"], "occupied exists but is not a run folder"),
    (
        ["train", "GRAPH", "--method", "none", "--out", "/proc/run"],
        "/proc/run cannot be read or written (No such",
    ),
    (["train", "GRAPH", "--method", "none", "--out", "n" * 300], "(File name too long): use a shorter name"),
    (
        ["train", "GRAPH", "--method", "none", "--out", "occupied/letter.txt/run"],
        "(Not a directory): check the path",
    ),
    (["train", "GRAPH", "extra"], "unexpected extra argument"),
    (["train", "broken.npz"], "broken.npz"),
    (["trian"], "No such command 'trian'"),
    (["data", "check", "corra"], "corra"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(arguments)[:60] for arguments, _ in BAD]
)
def test_bad_input_gets_one_sentence_and_code_2(
    arguments: list[str], message: str, graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("occupied").mkdir()
    Path("occupied/letter.txt").write_text("keep me")
    Path("broken.npz").write_bytes(b"PK\x03\x04 and then nothing")
    code, out, err = bvat([str(graph_file) if a == "GRAPH" else a for a in arguments], capsys)
    assert code == 2
    assert message in err
    assert err.startswith("bvat: ")
    assert len(err.strip().splitlines()) == 1, err
    assert out == ""
    assert Path("occupied/letter.txt").read_text() == "keep me"


def test_cuda_is_asked_for_in_vain(graph_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    code, _, err = bvat(["train", str(graph_file), "--device", "cuda"], capsys)
    assert code == 2
    assert "use --device cpu" in err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["train", "--help"], ["data", "--help"]):
        code, out, _ = bvat(arguments, capsys)
        assert code == 0
        assert "Usage" in out
    assert "--epsilon" in bvat(["train", "--help"], capsys)[1]
    assert bvat(["--version"], capsys)[1].startswith("bvat ")


def test_help_needs_no_torch() -> None:
    code = "import sys, bvat.cli.main; sys.exit(any(m in sys.modules for m in ('torch', 'numba', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bvat.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def wait_for(path: str, process: subprocess.Popen[bytes]) -> None:
    stop = time.monotonic() + 120
    while not list(Path().glob(path)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < stop, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done(graph_file: Path, processes: int) -> None:
    several = ["--seeds", str(processes), "--jobs", str(processes)]
    options = ["--method", "obvat", "--epochs", "100000", "--hidden", "8", "--out", "run"]
    process = start(["train", str(graph_file), *options, *several])
    wait_for(f"run/seed-{processes - 1}/checkpoint.safetensors", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"--resume continues from there" in err
    stored = json.loads(Path("run/settings.json").read_text())
    state = start_training(load_graph(graph_file), Settings(**stored["settings"]), processes - 1)
    Checkpoint(Path(f"run/seed-{processes - 1}/checkpoint.safetensors")).load(state)
    assert state.epoch == len(state.metrics) == state.optimizer.state[0]["count"][0]  # of a whole epoch


@pytest.fixture(scope="module")
def few_labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 120 nodes, 30 of them with a label, and no split."""
    folder = tmp_path_factory.mktemp("few") / "few"
    folder.mkdir()
    graph = synthetic_graph(nodes=120, edges=300, features=20, classes=3, train_per_class=10)
    words = (graph.features.to_dense() > 0).int().tolist()
    known = set(graph.train.tolist())
    rows = [
        ",".join(map(str, [k, int(graph.labels[k]) if k in known else "", *words[k]]))
        for k in range(graph.num_nodes)
    ]
    columns = ",".join(f"w{k}" for k in range(20))
    (folder / "nodes.csv").write_text("\n".join([f"id,label,{columns}", *rows]) + "\n")
    ends = zip(graph.adjacency.rows.tolist(), graph.adjacency.col.tolist(), strict=True)
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"{u},{v}" for u, v in ends if u < v)]))
    return folder


def test_few_labels_all_train_and_are_measured_by_cross_validation(
    few_labels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = ["train", str(few_labels), "--method", "none", "--jobs", "1", *PLAIN]
    code, out, _ = bvat([*command, "--out", "run"], capsys)
    assert code == 0
    assert re.search(
        r"cross-validated accuracy │ +[\d.]+ % \(95 % interval [\d.]+ to [\d.]+ on 30 nodes\)", out
    )
    assert "each trained without one fold of the 30 labelled nodes" in out
    for absent in ("test accuracy", "validation accuracy", "±"):
        assert absent not in out
        assert absent not in Path("run/report.html").read_text("utf-8")
    result = json.loads(Path("run/result.json").read_text("utf-8"))
    assert (result["val_accuracy"], result["test_accuracy"]) == (None, None)
    assert result["cross_validation"]["nodes"] == 30
    accuracy = (
        next(line for line in out.splitlines() if "cross-validated accuracy" in line).split("│")[2].strip()
    )
    assert f"cross-validated accuracy: {accuracy}\n" in bvat(["runs", "show", "run"], capsys)[1]
    code, _, err = bvat([*command, "--out", "run", "--resume", "--hidden", "9"], capsys)
    assert (code, "hidden was 8, now 9" in err) == (2, True)
    code, out, _ = bvat([*command, "--out", "run", "--resume", "--seeds", "2", "--no-report"], capsys)
    assert (code, "± " in out) == (0, False)  # the folds are those of one seed


def test_nodes_that_are_held_out_get_an_interval(
    few_labels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = ["train", str(few_labels), "--method", "none", "--jobs", "1", *PLAIN]
    code, out, _ = bvat([*command, "--test", "9", "--val", "6", "--no-report"], capsys)
    assert code == 0
    for line in (r"validation accuracy.* on 6 nodes\)", r"test accuracy.*[\d.]+ % \(95 % .* on 9 nodes\)"):
        assert re.search(line, out)
    assert "±" not in out
    assert "cross-validated" not in out
    shown = bvat(["runs", "show", "runs/few-none"], capsys)[1]
    assert re.search(r"^test accuracy: [\d.]+ % \(95 % interval [\d.]+ to [\d.]+ on 9 nodes\)$", shown, re.M)
    code, _, err = bvat([*command, "--test", "28"], capsys)
    assert (code, "use at most 27 for val and test together" in err) == (2, True)


def test_parts_without_validation_nodes_train_to_the_last_epoch(
    few_labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bvat(["partition", str(few_labels), "--parts", "2", "--out", "parts"], capsys)[0] == 0
    command = ["train", "parts", "--method", "none", "--batch-parts", "2", "--no-report", *PLAIN]
    code, out, err = bvat(command, capsys)
    assert code == 0
    assert "note: there are no validation nodes: training runs to its last epoch" in err
    assert "accuracy" not in out
