"""``bvat settings``, ``--settings FILE`` and the length of the help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bvat.cli.options import read_settings_file
from bvat.errors import SettingsError
from bvat.training.settings import all_fields, preset
from cli_helpers import bvat


def test_all_settings_are_listed_with_their_owners(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(["settings", "--json"], capsys)
    assert code == 0
    assert [row["name"] for row in json.loads(out)["settings"]] == list(all_fields())
    rows = {
        row["name"]: row
        for row in json.loads(bvat(["settings", "gat", "vat", "--json"], capsys)[1])["settings"]
    }
    assert (rows["heads"]["of"], rows["hidden"]["default"], rows["epochs"]["of"]) == ("gat", 64, "all")
    assert "count" not in rows
    assert "\nepsilon" not in bvat(["settings", "gat"], capsys)[1]
    code, _, err = bvat(["settings", "vat", "obvat"], capsys)
    assert code == 2
    assert "at most one model" in err


def test_the_help_of_train_fits_two_screens(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(bvat(["train", "--help"], capsys)[1].splitlines()) <= 80


def test_a_file_of_settings_is_that_of_a_run_of_tune_or_plain(tmp_path: Path) -> None:
    stored = preset("cora", "obvat", hidden=7)
    run, tuned, plain = tmp_path / "settings.json", tmp_path / "tuned.json", tmp_path / "plain.toml"
    run.write_text(json.dumps({"settings": stored.as_dict(), "dataset": "cora"}), "utf-8")
    found = read_settings_file(tmp_path)
    assert preset("", **found) == stored.replace(epsilon=preset("", "obvat").epsilon)
    tuned.write_text(json.dumps({"fixed": stored.as_dict(), "chosen": {"beta": 0.4}}), "utf-8")
    assert read_settings_file(tuned)["beta"] == 0.4
    plain.write_text('method = "vat"\nepsilon = 0.1\n', "utf-8")
    assert read_settings_file(plain) == {"method": "vat", "epsilon": 0.1}
    for text in ("{", "[1]", '{"magic": 1}'):
        run.write_text(text, "utf-8")
        with pytest.raises(SettingsError, match=r"settings\.json"):
            read_settings_file(run)
