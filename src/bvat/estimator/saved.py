"""The file of a fitted classifier: its weights, with everything else as metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bvat._version import __version__
from bvat.data.checksums import CHECKSUM
from bvat.data.tensors import read_safetensors, write_safetensors
from bvat.errors import DataError
from bvat.graph.targets import ONE_CLASS, TARGETS
from bvat.inference.classifier import Classifier
from bvat.tuning.cross_validation import checked_logits

CLASSIFIER_FORMAT = 3
"""Version of the file."""
_KIND = "bvat node classifier"
_JSON = ("params", "settings", "classes", "features", "recipe", "temperature", "out_of_fold")
"""What the metadata has as JSON."""


def write_classifier(
    path: Path, fitted: Classifier, params: Mapping[str, Any], held_out: Mapping[str, Any] | None
) -> None:
    """Write a classifier, the parameters it was made with, and the predictions of its folds."""
    content = {
        "params": params,
        "settings": fitted.settings.as_dict(),
        "classes": fitted.class_names,
        "features": fitted.num_features,
        "recipe": dict(fitted.recipe),
        "temperature": fitted.temperature,
        "out_of_fold": held_out,
    }
    about = {"kind": _KIND, "format": str(CLASSIFIER_FORMAT), "version": __version__}
    about |= {name: json.dumps(value) for name, value in content.items()}
    about["targets"] = fitted.targets.name
    try:
        write_safetensors(path, fitted.models[0].state_dict(), about)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): choose another location") from None


def read_classifier(
    path: Path, models: Sequence[Any]
) -> tuple[Classifier, dict[str, Any], dict[str, Any] | None]:
    """Return what :func:`write_classifier` was given; ``models`` are those that may be imported."""
    try:
        about, tensors = read_safetensors(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as a saved NodeClassifier ({error}): check the path"
        ) from None
    version = about.get("version", "?")
    if about.get("kind") != _KIND:
        raise DataError(f"{path} is not a saved NodeClassifier: write it with classifier.save(path)")
    if about.get("format") != str(CLASSIFIER_FORMAT):
        raise DataError(
            f"{path} has format {about.get('format')} of bvat {version}, and bvat {__version__} reads "
            f"format {CLASSIFIER_FORMAT}: install that version, or fit and save again"
        )
    if CHECKSUM not in about:
        raise DataError(f"{path} is damaged (its checksum is missing): fit and save again")
    try:
        stored = about | {name: json.loads(about[name]) for name in _JSON}
        stored |= {"recipe": dict(stored["recipe"]), "temperature": float(stored["temperature"])}
        targets = TARGETS[stored.get("targets", ONE_CLASS.name)]
        fitted = Classifier.read(stored, [tensors], str(path), targets, models)
        return fitted, dict(stored["params"]), checked_logits(stored["out_of_fold"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}): fit and save again") from None
