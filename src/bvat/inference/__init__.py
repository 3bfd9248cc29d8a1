"""Trained models at work: predictions for any graph with the same features."""

from bvat.inference.classifier import Classifier
from bvat.inference.runs import Run, open_run

__all__ = ["Classifier", "Run", "open_run"]
