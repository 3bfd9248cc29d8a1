"""``NodeClassifier``: training and prediction with the interface of scikit-learn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.baselines.table import AUTO
from bvat.engine.cpu import choose_device
from bvat.errors import GraphError, SettingsError, TrainingError
from bvat.estimator.saved import read_classifier, write_classifier
from bvat.graph import Graph
from bvat.inference.classifier import INSIDE, Classifier, uncalibrated
from bvat.training.loop import TrainedModel, train
from bvat.training.settings import Settings, all_fields, preset
from bvat.training.state import restore_model
from bvat.trust.conformal import prediction_sets
from bvat.trust.explain import Explanation, explain, frame
from bvat.trust.held_out import HeldOut, no_held_out
from bvat.trust.review import review
from bvat.trust.suggest import suggest
from bvat.tuning.cross_validation import (
    Choice,
    cross_validate,
    estimate_of,
    for_ensemble,
    lacks_validation,
    scores_of,
)

_OWN = ("method", "seed", "device", "calibrate")


class NodeClassifier:
    """Classify the nodes of a graph from few labels.

    Args:
        method: a method of :data:`bvat.perturb.methods.METHODS`, such as "vat" or "none" (no regulariser), a
            baseline of :data:`bvat.baselines.table.BASELINES`, such as "lp", or "auto", an ensemble for few
            labels.
        seed: of the weights, the dropout and the search.
        device: "cpu" or "cuda"; None or "auto" is a GPU if there is one, as for ``bvat train``.
        calibrate: fit the confidence to held-out labels where there is a cross-validation; the predicted
            classes stay the same.
        settings: any field of :class:`bvat.Settings`, such as ``model="gat"`` or ``epochs=100``; the model
            may be a module of your own, or a function ``(in_features, classes)`` that makes one. Settings
            that are omitted or None come from the preset of the method and, if there is one, the data set.

    After :meth:`fit`: ``classes_`` (C) class names, ``n_features_in_`` D, ``settings_`` the settings used,
    ``training_`` the :class:`TrainedModel` (None in a classifier that was loaded), ``choice_`` what a
    cross-validation chose, and ``cross_validation_`` the accuracy on folds of the labelled nodes, a
    dictionary with ``accuracy``, ``low``, ``high``, ``nodes`` and more; both None where there was none.

    Example:
        >>> classifier = NodeClassifier(method="vat", epochs=40).fit(graph)
        >>> names = classifier.predict(graph)  # class names, shape (N,)
        >>> 0 <= classifier.score(graph) <= 1  # accuracy on the test nodes
        True
    """

    def __init__(
        self,
        method: str = "obvat",
        *,
        seed: int = 0,
        device: str | None = None,
        calibrate: bool = True,
        **settings: Any,
    ) -> None:
        self.method, self.seed, self.device, self.calibrate = method, seed, device, calibrate
        self._settings: dict[str, Any] = {}
        self._fitted: Classifier | None = None
        self._graph: Graph | None = None
        self._out_of_fold: dict[str, Any] | None = None
        self.training_: TrainedModel | None = None
        self.choice_: Choice | None = None
        self.set_params(**settings)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters; None means the value of the preset. ``deep`` has no effect."""
        own = {name: getattr(self, name) for name in _OWN}
        return own | {name: self._settings.get(name) for name in ("model", *all_fields())}

    def set_params(self, **params: Any) -> NodeClassifier:
        """Set parameters, which take effect at the next :meth:`fit`."""
        for name, value in params.items():
            if name in _OWN:
                setattr(self, name, value)
            elif name == "model" or name in all_fields():
                self._settings[name] = value
            else:
                raise SettingsError(f"there is no setting {name!r}: bvat settings lists them")
        return self

    def fit(self, graph: Graph, y: None = None) -> NodeClassifier:
        """Train on the labels of ``graph.train``; ``y`` is ignored because the graph holds the labels.

        Without validation nodes, cross-validation finds the number of epochs and the accuracy to expect.

        The same graph and parameters give the same weights, bit for bit, on a CPU.
        """
        _require_graph(graph)
        given = {name: value for name, value in self._settings.items() if value is not None}
        known = "" if graph.recipe else graph.name  # a user's folder may be called cora too
        self.choice_, self._graph = None, graph
        device, graph = choose_device(self.device), graph.to("cpu")  # where folds are trained
        settings = preset(known, self.method, **given)
        if self.method == AUTO:
            graph = for_ensemble(graph)
        elif lacks_validation(graph):
            self.choice_ = cross_validate(graph, settings)
            settings, graph = self.choice_.settings, self.choice_.graph
        self.training_ = train(graph.to(device), settings, self.seed)
        found = self.choice_.out_of_fold if self.choice_ else self.training_.fit.get("out_of_fold")
        factor = self.choice_.temperature if self.choice_ and self.calibrate else 1.0
        weights = self.training_.weights
        if not self.calibrate:
            if found and INSIDE in weights:  # what is held out is judged by the same probabilities
                logits = np.array(found["logits"]) / float(weights[INSIDE])
                found = {**found, "logits": logits.tolist()}
            weights = uncalibrated(weights)
        names, width = graph.class_names, graph.num_features
        model = restore_model(settings, width, len(names), weights)
        self._fitted = Classifier((model,), settings, names, width, graph.recipe, factor, graph.targets)
        self._out_of_fold = found
        return self

    @property
    def cross_validation_(self) -> dict[str, Any] | None:
        """The accuracy by cross-validation, in percent; None with validation nodes, or after loading."""
        if self.choice_ is not None:
            return self.choice_.estimate
        return None if self.training_ is None else estimate_of([{"fit": self.training_.fit}])

    @property
    def classifier_(self) -> Classifier:
        """The trained model and its settings; TrainingError before :meth:`fit`."""
        if self._fitted is None:
            raise TrainingError(
                "this NodeClassifier is not fitted: call fit(graph) first, or NodeClassifier.load(path)"
            )
        return self._fitted

    @property
    def classes_(self) -> NDArray[np.str_]:
        """The class names, (C), in the order of the columns of :meth:`predict_proba`."""
        return np.array(self.classifier_.class_names)

    @property
    def n_features_in_(self) -> int:
        return self.classifier_.num_features

    @property
    def settings_(self) -> Settings:
        return self.classifier_.settings

    def predict_proba(self, graph: Graph) -> NDArray[np.float32]:
        """Return the probability of each class or label, (N, C), for any graph with the same features."""
        fitted = self.classifier_
        _require_graph(graph)
        found: NDArray[np.float32] = fitted.probabilities(self._moved(graph)).cpu().numpy()
        return found

    def predict(self, graph: Graph) -> NDArray[np.str_] | NDArray[np.bool_]:
        """Return the name of the most likely class of every node, shape (N).

        If nodes have several labels, return which of ``classes_`` each has, bool (N, C).
        """
        targets = self.classifier_.targets
        found: NDArray[Any] = targets.decided(self.predict_proba(graph))
        return found.astype(np.bool_) if targets.independent else self.classes_[found]

    def score(self, graph: Graph, nodes: Any = None, *, metric: str | None = None) -> float:
        """Return the accuracy, the macro F1 or, if nodes have several labels, the micro F1, from 0 to 1.

        Args:
            graph: with labels.
            nodes: indices of nodes (n); default: the test nodes.
            metric: "accuracy", "macro_f1" or "micro_f1"; by default the accuracy, and micro F1 of several
                labels. Their accuracy is the share of nodes all of whose labels are right.
        """
        metric = metric or self.classifier_.targets.score
        if metric not in ("accuracy", "macro_f1", "micro_f1"):
            raise SettingsError(f"metric must be micro_f1, accuracy or macro_f1, not {metric!r}")
        found = self._scores(graph, nodes)
        accuracy = float(found["correct"] / found["nodes"])
        return accuracy if metric == "accuracy" else float(found.get(metric, 100 * accuracy)) / 100

    def f1_per_class(self, graph: Graph, nodes: Any = None) -> dict[str, float]:
        """Return F1, between 0 and 1, of each class that is predicted or a label of ``nodes``."""
        entries = self._scores(graph, nodes)["f1"]
        return {entry["class"]: entry["f1"] / 100 for entry in entries if entry["f1"] is not None}

    def _scores(self, graph: Graph, nodes: Any) -> dict[str, Any]:
        targets = self.classifier_.targets
        predicted = torch.from_numpy(targets.decided(self.predict_proba(graph)))
        chosen = graph.test.cpu() if nodes is None else torch.as_tensor(nodes, dtype=torch.int64)
        labels = self.classifier_.labels(graph).cpu()[chosen]
        if not chosen.numel() or not bool(targets.known(labels).all()):
            raise GraphError(
                "a score needs test nodes, or nodes with labels named by score(graph, nodes); for a model "
                "trained on all labelled nodes, cross_validation_ has the accuracy"
            )
        return scores_of(predicted[chosen], labels, self.classifier_.class_names)

    def predict_set(
        self, graph: Graph, coverage: float = 0.9, *, per_class: bool = True
    ) -> NDArray[np.bool_]:
        """Return which classes of each node cannot be excluded, bool (N, C): see :mod:`bvat.trust.conformal`.

        The share ``coverage`` of the sets has the true class; of the nodes of each class if ``per_class``.
        """
        p, held = self.predict_proba(graph), self._held_out()
        return prediction_sets(held, p, coverage, "this classifier", per_class=per_class).member

    def suggest(self, count: int, graph: Graph | None = None) -> Any:
        """Return which nodes to label next and why, as a table: see :mod:`bvat.trust.suggest`."""
        graph = self._own_graph(graph)
        labelled = torch.nonzero(graph.labelled)[:, 0]
        probabilities = self.classifier_.probabilities(graph)
        return frame(suggest(graph, probabilities, labelled, count).columns(graph))

    def review(self, graph: Graph | None = None) -> Any:
        """Return the labels, the most doubtful first, as a table: see :mod:`bvat.trust.review`."""
        graph = self._own_graph(graph)
        return frame(review(self._held_out()).columns(graph, self.classifier_.probabilities(graph)))

    def explain(self, node: int | str, graph: Graph | None = None) -> Explanation:
        """Return the neighbours and features that carried a decision: see :mod:`bvat.trust.explain`.

        Args:
            node: its position in the graph, or as text its id.
            graph: the graph it is in; by default the one that :meth:`fit` was called with.
        """
        return explain(self.classifier_, self._own_graph(graph), node)

    def _moved(self, graph: Graph) -> Graph:
        return graph.to(choose_device(self.device))

    def _own_graph(self, graph: Graph | None) -> Graph:
        graph = self._graph if graph is None else graph
        if graph is None:
            raise TrainingError("a NodeClassifier that was loaded has no graph: give it as graph=...")
        _require_graph(graph)
        return self._moved(graph)

    def _held_out(self) -> HeldOut:
        if self._out_of_fold is not None:
            return HeldOut.read(self._out_of_fold, self.classifier_.temperature)
        if self._graph is None or not self._graph.val.numel():
            raise no_held_out("this classifier")
        return HeldOut.of_validation(self.classifier_, self._moved(self._graph))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.safetensors`` file: the weights, with settings, classes and version as metadata.

        The file contains a checksum, which :meth:`load` and ``bvat data check FILE`` verify.
        """
        fitted, params = self.classifier_, self.get_params()
        if params["model"] is not None:
            params["model"] = fitted.settings.model
        write_classifier(Path(path), fitted, params, self._out_of_fold)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, model: Any = None) -> NodeClassifier:
        """Load a saved classifier; its predictions are the same, bit for bit.

        Args:
            path: the file.
            model: what it was fitted with, if that is not a model of bvat: it is never imported unasked.

        Raises:
            DataError: the file is damaged, was not written by :meth:`save`, or by a version that cannot be
                read.
        """
        fitted, params, held_out = read_classifier(Path(path), () if model is None else (model,))
        if params.get("model") is not None:
            params["model"] = fitted.settings.given_model
        known = cls().get_params()
        loaded = cls(**{name: value for name, value in params.items() if name in known})
        loaded._fitted, loaded._out_of_fold = fitted, held_out
        return loaded

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_params().items() if value is not None}
        return f"NodeClassifier({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _require_graph(graph: Any) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(
            f"expected a bvat.Graph, not {type(graph).__name__}: make one with bvat.load, bvat.from_pyg, "
            "bvat.from_networkx or bvat.from_scipy"
        )
