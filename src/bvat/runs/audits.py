"""Audits of trained runs: a table that grows as nodes are measured, and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from bvat.audit.audit import Audit, check_epsilon, sample_nodes
from bvat.audit.kept import KeptAudits, audit_csv
from bvat.baselines.table import BASELINES
from bvat.data.checksums import sha256
from bvat.data.files import append
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference.classifier import Classifier
from bvat.inference.runs import SavedRun, open_run
from bvat.inference.tables import check_writable, write_text
from bvat.report.audit_page import AuditedRun, audit_page
from bvat.runs.run import note
from bvat.store.claim import taken
from bvat.store.pool import thread_count
from bvat.store.progress import ProgressDisplay
from bvat.training.provenance import digest, versions


@dataclass(frozen=True)
class AuditPlan:
    """An audit of one run, or of two to compare.

    The rows of the first run are written to ``out`` as CSV, and both to ``page``. ``nodes`` are drawn at
    random; None audits all. With ``safe``, names do not look like formulas to a spreadsheet.
    """

    runs: Sequence[str]
    out: Path
    epsilon: float = 0.03
    nodes: int | None = None
    seed: int | None = None
    threads: int = 1
    safe: bool = False
    page: Path | None = None
    command: str = ""

    def carry_out(self, console: Any = None) -> list[dict[str, Any]]:
        """Audit the runs, write the table and the page, and return one summary per run.

        Rows are written as they are found, and kept in ``OUT.part`` until all are: an audit that was
        interrupted continues after them.
        """
        check_epsilon(self.epsilon)
        check_writable(self.out, *([self.page] if self.page is not None else []))
        runs = [open_run(path) for path in self.runs]
        if runs[-1].about["graph"] != runs[0].about["graph"]:
            raise SettingsError(
                f"{self.runs[0]} and {self.runs[-1]} were trained on different graphs or splits: compare "
                "runs on the same one"
            )
        graph = runs[0].graph()
        nodes = torch.arange(graph.num_nodes) if self.nodes is None else sample_nodes(graph, self.nodes)
        models = [self._classifier(each, graph) for each in runs]
        with self._kept(runs[0].about["graph"], nodes, models) as kept, thread_count(self.threads):
            table = _Table(self, graph, models[0], kept, nodes, console)
            found = [
                table.measure(number, each.name, model)
                for number, (each, model) in enumerate(zip(runs, models, strict=True))
            ]
            write_text(self.out, table.text(found[0]))
            if self.page is not None:
                each = zip(runs, models, found, strict=True)
                named = [AuditedRun(run.name, model, part) for run, model, part in each]
                write_text(self.page, audit_page(graph, named, self.command))
        return [{"run": each.name, **part.summary()} for each, part in zip(runs, found, strict=True)]

    def _classifier(self, run: SavedRun, graph: Graph) -> Classifier:
        if run.method in BASELINES:
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


@dataclass(frozen=True)
class _Table:
    plan: AuditPlan
    graph: Graph
    model: Classifier
    kept: KeptAudits
    nodes: Tensor
    console: Any

    def text(self, found: Audit) -> str:
        labels = self.model.labels(self.graph)
        return audit_csv(self.graph, self.model.class_names, labels, found, safe=self.plan.safe)

    def measure(self, number: int, name: str, model: Classifier) -> Audit:
        """Return the audit of a run, with a progress bar; rows of the first run are written as they come."""
        plan, total = self.plan, self.nodes.numel()
        out = plan.out if number == 0 else None
        batches = self.kept.audit(number, model.models[0], self.graph, epsilon=plan.epsilon, nodes=self.nodes)
        parts: list[Audit] = []
        done = 0
        try:
            with ProgressDisplay(
                f"audit of {name}", {0: total}, self.console, unit="nodes", line_every=60
            ) as display:
                for part in batches:
                    if out and self.kept.path and parts:
                        append(out, self.text(part).partition("\n")[2])  # without the names of the columns
                    elif out and self.kept.path:
                        write_text(out, self.text(part))
                    parts.append(part)
                    done += part.nodes.numel()
                    display.update(0, done)
        except KeyboardInterrupt:
            path = self.kept.path
            where = f"kept in {out or path}" if path else "lost, because --out is not a regular file"
            note(f"{done:,} of {total:,} nodes of {name} are {where}", self.console)
            raise
        return Audit.joined(parts)
