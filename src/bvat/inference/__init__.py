"""Trained models at work: predictions for any graph with the same features, and how fragile they are."""

from bvat.inference.audit import Audit, audit, sample_nodes, smallest_perturbation
from bvat.inference.classifier import Classifier
from bvat.inference.runs import Run, open_run

__all__ = ["Audit", "Classifier", "Run", "audit", "open_run", "sample_nodes", "smallest_perturbation"]
