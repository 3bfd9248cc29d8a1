"""Audits of trained runs: a table, a page, and what an interrupted one has found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from bvat.audit.audit import check_epsilon, require_one_class, sample_nodes
from bvat.audit.certify import BUDGETS, read_layers
from bvat.audit.kept import KeptAudits
from bvat.audit.result import Audit
from bvat.baselines.table import PUBLISHED
from bvat.data.checksums import sha256
from bvat.data.files import csv_text
from bvat.errors import SettingsError
from bvat.graph import UNKNOWN, Graph
from bvat.inference.classifier import Classifier
from bvat.inference.runs import SavedRun, open_run
from bvat.inference.tables import check_writable, node_id, short_number, write_text
from bvat.runs.run import note
from bvat.store.claim import taken
from bvat.store.pool import thread_count
from bvat.store.progress import ProgressDisplay
from bvat.training.provenance import digest, versions


@dataclass(frozen=True)
class AuditPlan:
    """An audit of one run, or of two to compare.

    The rows of the first run are written to ``out`` as CSV, and both to ``page``. ``nodes`` are drawn at
    random; None audits all; ``models`` are those of :func:`bvat.inference.open_run`.
    """

    runs: Sequence[str]
    out: Path
    epsilon: float = 0.03
    nodes: int | None = None
    seed: int | None = None
    threads: int = 1
    page: Path | None = None
    certify: bool = False
    command: str = ""
    models: tuple[Any, ...] = ()

    def carry_out(self, console: Any = None) -> list[dict[str, Any]]:
        """Audit the runs, write the table and the page, and return one summary per run.

        What is found is kept in ``OUT.part`` until the table is written: an audit that was interrupted
        continues after it.
        """
        check_epsilon(self.epsilon)
        check_writable(self.out, self.page)
        runs = [open_run(path, self.models) for path in self.runs]
        for opened in runs:
            require_one_class(opened)
        if runs[-1].about["graph"] != runs[0].about["graph"]:
            raise SettingsError(
                f"{self.runs[0]} and {self.runs[-1]} were trained on different graphs or splits: compare "
                "runs on the same one"
            )
        graph = runs[0].graph()
        nodes = torch.arange(graph.num_nodes) if self.nodes is None else sample_nodes(graph, self.nodes)
        models = [self._classifier(each, graph) for each in runs]
        if self.certify:  # what has no certificate is refused before a file is begun
            for model in models:
                read_layers(model.models[0])
        with self._kept(runs[0].about["graph"], nodes, models) as kept, thread_count(self.threads):
            found: list[Audit] = []
            for run, model in zip(runs, models, strict=True):
                asked: dict[str, Any] = {"epsilon": self.epsilon, "nodes": nodes, "certify": self.certify}
                batches = kept.audit(len(found), model.models[0], graph, **asked)
                found.append(_measured(batches, nodes.numel(), run.name, kept.path, console))
            write_text(self.out, audit_csv(graph, models[0], found[0], certify=self.certify))
            if self.page is not None:
                from bvat.report.audit_page import AuditedRun, audit_page  # it needs matplotlib

                each = zip(runs, models, found, strict=True)
                named = [AuditedRun(run.name, model, part) for run, model, part in each]
                write_text(self.page, audit_page(graph, named, self.command))
        return [{"run": each.name, **part.summary()} for each, part in zip(runs, found, strict=True)]

    def _classifier(self, run: SavedRun, graph: Graph) -> Classifier:
        if run.method in PUBLISHED:
            raise SettingsError(
                f"{run.name} was fitted by {run.method}, which is no network that can be audited: audit a "
                "run of a model"
            )
        return run.classifier(graph, run.seeds[0] if self.seed is None else self.seed)

    @contextmanager
    def _kept(self, graph: str, nodes: Tensor, models: list[Classifier]) -> Iterator[KeptAudits]:
        """Open ``OUT.part``, which keeps what is found until the table is complete; a device has none."""
        about = {
            "model": [[m.settings.as_dict(), sha256(save(m.models[0].state_dict()))] for m in models],
            "graph": graph,
            "epsilon": self.epsilon,
            "--certify": self.certify,
            "choice of nodes": digest(nodes.tolist()),
            "version of bvat or torch": versions(),
        }
        out = self.out
        if out.is_symlink() or (out.exists() and not out.is_file()):  # also /dev/stdout
            yield KeptAudits(None, about)
            return
        path = Path(f"{out}.part")
        with taken(Path(f"{path}.lock"), wait=False) as mine:
            if not mine:
                raise SettingsError(
                    f"another process is writing {out}: wait until it has ended, or use another --out"
                )
            yield KeptAudits(path, about)
            path.unlink(missing_ok=True)


def _measured(batches: Iterator[Audit], total: int, name: str, kept: Path | None, console: Any) -> Audit:
    """Join the batches of a run's audit, with a progress bar."""
    parts, done = list[Audit](), 0
    try:
        with ProgressDisplay(f"audit of {name}", {0: total}, console, unit="nodes", line_every=60) as display:
            for part in batches:
                parts.append(part)
                done += part.nodes.numel()
                display.update(0, done)
    except KeyboardInterrupt:
        where = f"kept in {kept}" if kept else "lost, because --out is not a regular file"
        note(f"{done:,} of {total:,} nodes of {name} are {where}", console)
        raise
    return Audit.joined(parts)


def audit_csv(graph: Graph, model: Classifier, found: Audit, *, certify: bool = False) -> str:
    """Return one line per node; cells are empty where nothing was found.

    With ``certify`` there are also norms below which no change of the features changes the class, and both
    norms for the other budgets.
    """

    def names(classes: Tensor) -> list[str]:
        return ["" if k == UNKNOWN else model.class_names[k] for k in classes.tolist()]

    def numbers(values: Tensor) -> list[str]:
        return [short_number(value) for value in values.tolist()]

    columns = {
        "id": [node_id(graph, node) for node in found.nodes.tolist()],
        "predicted": names(found.predicted),
        "label": names(model.labels(graph).cpu()[found.nodes]),
        "confidence": numbers(found.confidence),
        "field_size": found.field_size.tolist(),
        "lds": numbers(found.lds),
        "smallest": numbers(found.smallest),
        "smallest_relative": numbers(found.relative),
        "becomes": names(found.becomes),
    }
    for budget in BUDGETS if certify else ():
        certified, smallest = found.norms(budget)
        if budget != "graph":
            columns[f"smallest_{budget}"] = numbers(smallest)
        columns["certified" if budget == "graph" else f"certified_{budget}"] = certified.tolist()
    return csv_text(tuple(columns), zip(*columns.values(), strict=True))
