"""Predictions of trained models, for any graph with the same features."""

from bvat.inference.classifier import Classifier
from bvat.inference.runs import SavedRun, open_run

__all__ = ["Classifier", "SavedRun", "open_run"]
