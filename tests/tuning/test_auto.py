"""``auto``: the ensemble, its weights, what it reports, and that it is one model like any other."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import bvat
from bvat.audit.audit import audit, smallest_perturbation
from bvat.baselines.table import BASELINES, AutoOptions
from bvat.data.splits import resplit
from bvat.errors import GraphError, SettingsError
from bvat.inference.export import exported, write_export
from bvat.models.ensemble import LINEAR, Ensemble, walk
from bvat.training.statistics import wilson
from bvat.training.trained import predict
from bvat.tuning import auto, members, mixture, networks
from bvat.tuning.cross_validation import out_of_fold_scores
from bvat.tuning.members import Member, Work, linear_member
from bvat.tuning.mixture import Mixture


@pytest.fixture(scope="module")
def graph():
    """More features than the rank of their latent ones."""
    whole = bvat.synthetic_graph(nodes=200, features=150, classes=3, seed=3)
    return resplit(whole, 8, 0, 0).with_engine("tensor")


@pytest.fixture(scope="module")
def fitted(graph):
    return auto.fit(graph, 0, AutoOptions(effort=2))


@pytest.fixture(scope="module", autouse=True)
def _few_epochs():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(networks, "EPOCHS", 50)
        yield


def accuracy(fit, graph):
    predicted = predict(fit.model, graph).argmax(1)[graph.test]
    return float((predicted == graph.labels[graph.test]).double().mean())


def test_it_is_better_than_chance_and_than_its_worst_member(graph, fitted):
    assert accuracy(fitted, graph) > 0.6


def test_weights_are_shares_and_the_table_explains_them(fitted):
    members = fitted.report["members"]
    assert sum(row["weight"] for row in members) == pytest.approx(1)
    assert [row["weight"] for row in members] == sorted((row["weight"] for row in members), reverse=True)
    assert {row["name"] for row in members} == {*LINEAR, members_network(members)}
    assert all(row["nodes"] > 0 and 0 <= row["accuracy"] <= 100 for row in members)
    assert sum(fitted.report["smoothing"].values()) == pytest.approx(1)


def members_network(members):
    (name,) = [row["name"] for row in members if row["name"] not in LINEAR]
    return name


def test_the_estimate_is_out_of_fold(graph, fitted):
    found = fitted.report["estimate"]
    assert found["nodes"] == len(graph.train)
    assert found["folds"] == 5
    assert found["low"] < found["accuracy"] + 1e-9
    assert found["accuracy"] - 1e-9 < found["high"]


def test_restored_it_predicts_the_same_bits(graph, fitted):
    state = fitted.model.state_dict()
    restored = BASELINES["auto"].restore(state, graph.num_features, graph.num_classes)
    assert torch.equal(predict(fitted.model, graph), predict(restored, graph))


@pytest.mark.parametrize("change", ["missing", "shape", "name", "metric"])
def test_damaged_tensors_are_refused(graph, fitted, change):
    state = {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()}
    if change == "missing":
        del state["linear.x.bias"]
    elif change == "shape":
        state["latent.weight"] = state["latent.weight"][:-1]
    elif change == "name":
        state["linear.other.weight"] = state.pop("linear.x.weight")
    else:
        state["about.neighbours"][1] = 9
    with pytest.raises(ValueError, match=r"tensor|shape|member|metric"):
        BASELINES["auto"].restore(state, graph.num_features, graph.num_classes)


def test_it_is_the_mean_of_its_members(graph, fitted):
    model: Ensemble = fitted.model
    graphs = model.graphs(graph)
    with torch.no_grad():
        logits = model.member_logits(graphs, model.project(graph))
        mean = sum(
            model.weight[name] * torch.softmax(model.temperature[name] * each, 1)
            for name, each in logits.items()
        )
        p = model.smooth["none"] * mean
        for name in ("given", "features"):
            p = p + model.smooth[name] * walk(graphs[name], mean, 0.2, 5)
    assert torch.allclose(p.sum(1), torch.ones(len(p)), atol=1e-4)
    assert torch.allclose(predict(model, graph), model.about["temperature"] * p.log(), atol=1e-4)


def test_walks_are_those_of_the_random_walk_matrix(graph):
    a = graph.adjacency.to_scipy().toarray() + np.eye(graph.num_nodes)
    matrix = torch.from_numpy(a / a.sum(1, keepdims=True)).float()
    start = torch.randn(graph.num_nodes, 5)
    z = start
    for _ in range(3):
        z = 0.9 * matrix @ z + 0.1 * start
    assert torch.allclose(walk(graph, start, 0.1, 3), z, atol=1e-5)


def test_gradients_reach_the_features_through_every_member(graph, fitted):
    model = fitted.model
    projected = model.project(graph).requires_grad_()
    for name, logits in model.member_logits(model.graphs(graph), projected).items():
        (grad,) = torch.autograd.grad(logits[0].sum() - 2 * logits[0, 0], projected, retain_graph=True)
        assert float(grad.abs().sum()) > 0, name


def test_an_audit_finds_changes_that_flip_predictions(graph, fitted):
    node = int(graph.test[0])
    found = audit(fitted.model, graph, nodes=graph.test[:1])
    assert bool(found.smallest.isfinite())
    change, flip = smallest_perturbation(fitted.model, graph, node)
    projected = (graph.features.to_dense() + 1.001 * change) @ fitted.model.projection()
    with torch.no_grad():
        moved = fitted.model.propagate(graph, projected)[node].argmax()
    assert int(moved) == int(flip.becomes) != int(predict(fitted.model, graph)[node].argmax())


@pytest.mark.parametrize(("labels", "effort"), [(1, 3), (2, 2)])
def test_one_and_two_labels_per_class(labels, effort):
    whole = bvat.synthetic_graph(nodes=300, features=150, classes=3, seed=5).with_engine("tensor")
    graph = resplit(whole, labels, 0, 1)
    fit = auto.fit(graph, 0, AutoOptions(effort=effort))
    assert (fit.report["estimate"] is None) == (labels == 1)
    counts = torch.bincount(predict(fit.model, graph).argmax(1), minlength=3)
    assert counts.min() > 0.05 * graph.num_nodes  # nothing collapsed to one class
    assert accuracy(fit, graph) > 0.4


def test_validation_nodes_decide_where_there_are_enough():
    whole = bvat.synthetic_graph(nodes=300, features=150, classes=3, seed=5).with_engine("tensor")
    graph = resplit(whole, 5, 150, 1)
    fit = auto.fit(graph, 0, AutoOptions(effort=1))
    assert fit.report["estimate"] is None
    assert {row["nodes"] for row in fit.report["members"]} == {150}
    assert fit.report["labels"] == 15


@pytest.fixture(scope="module")
def validated():
    whole = bvat.synthetic_graph(nodes=400, features=150, classes=3, seed=5).with_engine("tensor")
    return resplit(whole, 5, 150, 1)


def test_validation_nodes_choose_the_epochs_of_networks_and_teach_nothing(validated, monkeypatch):
    seen, taught = [], []
    real, asked = networks.train, members.confident

    def train(graph, settings, seed):
        seen.append((graph, settings))
        return real(graph, settings.replace(epochs=30, pretrain=20), seed=seed)

    def confident(work, p, nodes):
        found = asked(work, p, nodes)
        taught.append(found[0])
        return found

    monkeypatch.setattr(networks, "train", train)
    monkeypatch.setattr(networks, "confident", confident)
    monkeypatch.setattr(auto, "confident", confident)
    auto.fit(validated, 0, AutoOptions(effort=2))
    assert len(seen) == len(networks.JUDGED)
    assert taught
    for graph, settings in seen:
        assert (settings.select, settings.patience) == ("accuracy", 50)
        assert torch.equal(graph.val, validated.val)
        assert torch.equal(graph.labels[graph.val], validated.labels[validated.val])
        assert not set(graph.train.tolist()) & set(graph.val.tolist())
        assert not graph.test.numel()
    assert not any(set(nodes) & set(validated.val.tolist()) for nodes in taught)


def test_self_training_is_kept_where_validation_nodes_confirm_it(validated, monkeypatch):
    work = Work.on(validated, AutoOptions(effort=1))
    first = {name: linear_member(work, name) for name in work.linear_names()}
    before = Mixture.of(work, first).loss(work)
    assert work.enough
    fitted, mixture = auto.fitted_members(work, 0)
    assert mixture.loss(work) <= before
    # predictions that teach the wrong classes do harm, and nothing of them is kept
    monkeypatch.setattr(
        auto,
        "confident",
        lambda work, p, train: (lambda nodes, k: (nodes, (k + 1) % 3))(*members.confident(work, p, train)),
    )
    work = Work.on(validated, AutoOptions(effort=1))
    fitted, mixture = auto.fitted_members(work, 0)
    assert not work.enough
    assert mixture.loss(work) == before
    assert all(
        torch.equal(fitted[name].tensors[key], value)
        for name in first
        for key, value in first[name].tensors.items()
    )


@pytest.mark.parametrize("neighbours", ["given", "features", "both"])
def test_neighbours_can_be_chosen(graph, neighbours):
    fit = auto.fit(graph, 0, AutoOptions(effort=1, neighbours=neighbours))
    used = fit.model.used_graphs() - {"given", "features"} | (fit.model.used_graphs() & {neighbours})
    assert used <= {neighbours}
    assert accuracy(fit, graph) > 0.4


def test_without_edges_similar_nodes_are_neighbours(graph):
    content = {name: getattr(graph, name) for name in ("train", "test", "class_names")}
    nothing = sp.csr_array((graph.num_nodes, graph.num_nodes))
    empty = bvat.Graph.build(graph.features, nothing, graph.labels, **content)
    fit = auto.fit(empty, 0, AutoOptions(effort=2))
    assert fit.model.used_graphs() == {"features"}
    assert accuracy(fit, empty) > 0.5


def test_single_keeps_the_heaviest_member(graph):
    whole = auto.fit(graph, 0, AutoOptions(effort=1))
    one = auto.fit(graph, 0, AutoOptions(effort=1, single=True))
    (row,) = one.report["members"]
    assert row["name"] == whole.report["members"][0]["name"]
    assert row["weight"] == 1


def test_one_class_is_refused(graph):
    labels = torch.zeros_like(graph.labels)
    with pytest.raises(GraphError, match="another class"):
        auto.fit(dataclasses.replace(graph, labels=labels), 0)


def test_a_first_answer_is_told(graph):
    said = []
    auto.fit(graph, 0, AutoOptions(effort=1), tell=said.append)
    assert "first answer" in said[0]
    assert "%" in said[0]


@pytest.fixture(scope="module")
def classifier(graph):
    return bvat.NodeClassifier("auto", effort=2).fit(graph)


def test_the_estimator_saves_and_loads_it(graph, classifier, tmp_path):
    assert classifier.cross_validation_["nodes"] == len(graph.train)
    path = tmp_path / "model.safetensors"
    classifier.save(path)
    assert (bvat.NodeClassifier.load(path).predict_proba(graph) == classifier.predict_proba(graph)).all()


def test_exported_it_gives_the_same_probabilities(graph, classifier, tmp_path):
    plain, error = exported(classifier.classifier_, graph)
    assert error < 1e-4
    write_export(plain, tmp_path / "model.safetensors")
    with pytest.raises(SettingsError, match="safetensors"):
        write_export(plain, tmp_path / "model.pt2")


def test_weights_of_members_maximise_their_posterior():
    """Moving weight from one member to another makes labels and prior less probable together."""
    rng = np.random.default_rng(0)
    chances, prior = rng.uniform(0.05, 0.95, (30, 4)), np.array([0.4, 0.3, 0.2, 0.1])

    def posterior(w):
        return np.log(chances @ w).sum() + mixture.PRIOR_LABELS * (prior * np.log(w)).sum()

    found = mixture.pool_weights(chances, prior)
    for i in range(4):
        for j in range(4):
            assert posterior(found) >= posterior(found + 1e-3 * (np.eye(4)[i] - np.eye(4)[j])) - 1e-9
    assert np.allclose(mixture.pool_weights(chances[:0], prior), prior)


def test_a_member_without_predictions_keeps_its_prior_weight():
    chances = np.array([[0.9, 0.2, np.nan], [0.8, 0.1, np.nan], [np.nan] * 3])
    found = mixture.pool_weights(chances, np.array([0.25, 0.25, 0.5]))
    assert found[2] == pytest.approx(0.5)
    assert found[0] > found[1]


def test_the_interval_of_an_estimate_knows_classes_and_folds():
    """As many labels of each class as its share: all count, but for the fold; others count less."""
    labels = torch.tensor([0] * 10 + [1] * 10)
    fair = out_of_fold_scores(labels, labels, torch.tensor([50, 50]), 5, ["a", "b"])
    assert (fair["low"], fair["high"]) == wilson(100, 16)
    skewed = out_of_fold_scores(labels, labels, torch.tensor([90, 10]), 5, ["a", "b"])
    assert skewed["low"] < fair["low"]
    assert skewed["accuracy"] == fair["accuracy"]


def test_a_network_that_was_judged_on_fewer_nodes_counts_less(graph):
    """Networks are trained in two folds only: what they gain there is no evidence for the other nodes."""
    work = Work.on(graph, AutoOptions(effort=1))
    member = linear_member(work, "given-far")
    sure = [5 * np.eye(3)[work.labels] for _ in work.folds]
    weights = []
    for count in (2, len(work.folds)):
        network = Member("gcn+none-given", {}, sure[0], sure[:count])
        found = Mixture.of(work, {"given-far": member, "gcn+none-given": network})
        weights.append(found.weights["gcn+none-given"])
    assert weights[0] < weights[1]


def test_a_network_alone_is_an_ensemble_too(graph, monkeypatch):
    monkeypatch.setattr(members, "NETWORK_PRIOR", 1e30)
    fit = auto.fit(graph, 0, AutoOptions(effort=2, single=True))
    (row,) = fit.report["members"]
    assert row["name"].startswith("gcn+none-")
    assert accuracy(fit, graph) > 0.5
    restored = BASELINES["auto"].restore(fit.model.state_dict(), graph.num_features, graph.num_classes)
    assert torch.equal(predict(restored, graph), predict(fit.model, graph))


def test_with_enough_labels_sure_nodes_teach_in_their_own_proportions():
    whole = bvat.synthetic_graph(nodes=300, features=150, classes=3, seed=5).with_engine("tensor")
    few, many = (Work.on(resplit(whole, n, 0, 1), AutoOptions()) for n in (9, 10))
    assert (few.enough, many.enough) == (False, True)
    p = np.full((300, 3), 0.05)
    p[np.arange(300), np.where(np.arange(300) < 240, 0, 1)] = 0.9
    p[:100] = [0.8, 0.1, 0.1]  # likely, but not sure
    nodes, classes = members.confident(many, p, many.train)
    assert set(nodes) == set(range(100, 300)) - set(many.train)
    assert np.array_equal(classes, p[nodes].argmax(1))
    counts = np.bincount(members.confident(few, p, few.train)[1])
    assert counts[0] < 5 * counts[1]


def test_with_enough_labels_folds_are_taught_without_their_own(monkeypatch):
    whole = bvat.synthetic_graph(nodes=300, features=150, classes=3, seed=5).with_engine("tensor")
    graph = resplit(whole, 12, 0, 1)
    taught = []
    monkeypatch.setattr(
        auto, "confident", lambda work, p, train: taught.append(train) or members.confident(work, p, train)
    )
    fit = auto.fit(graph, 0, AutoOptions(effort=1))
    folds = [fold.train for fold in Work.on(graph, AutoOptions()).folds]
    assert len(taught) == members.ROUNDS * (1 + len(folds))
    for k, train in enumerate(taught):
        assert np.array_equal(train, [graph.train.numpy(), *folds][k % (1 + len(folds))])
    assert accuracy(fit, graph) > 0.6


def test_views_are_not_kept_while_networks_train(graph, fitted, monkeypatch):
    works, kept = [], []
    monkeypatch.setattr(Work, "on", classmethod(lambda cls, *a, on=Work.on: works.append(on(*a)) or works[0]))

    def training(*arguments, real=networks.train, **more):
        kept.append("views" in vars(works[0]))
        return real(*arguments, **more)

    monkeypatch.setattr(networks, "train", training)
    again = auto.fit(graph, 0, AutoOptions(effort=2))
    assert kept
    assert not any(kept)
    for name, tensor in fitted.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_logits_of_a_linear_member_do_not_depend_on_how_many_rows_are_computed_at_once(graph, monkeypatch):
    work = Work.on(graph, AutoOptions())
    whole = linear_member(work, "given-and-features")
    views = [work.views[name][1] for name in LINEAR["given-and-features"]]
    z = np.concatenate(views, 1, dtype=np.float64)
    weight, bias = (whole.tensors[f"linear.given-and-features.{name}"].numpy() for name in ("weight", "bias"))
    np.testing.assert_allclose(whole.logits, z @ weight + bias, rtol=0, atol=1e-5)
    monkeypatch.setattr(members, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(linear_member(work, "given-and-features").logits, whole.logits, atol=1e-6)
