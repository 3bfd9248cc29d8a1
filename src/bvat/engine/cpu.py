"""The engine of a CPU: compiled attention, tensor operations for everything else."""

from __future__ import annotations

from torch import Tensor

from bvat.engine.attention import Attention, usable
from bvat.engine.matrix import Matrix
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError


class CompiledEngine(TensorEngine):
    """One process with compiled loops where they pay (``results/bench/kernels.json``)."""

    def attention(
        self, pattern: Matrix, source: Tensor, target: Tensor, h: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        if not h.numel() or not usable(source, target, h):
            return super().attention(pattern, source, target, h, mask)
        out: Tensor = Attention.apply(pattern, source, target, h, mask)  # type: ignore[no-untyped-call]
        return out


DEFAULT_ENGINE = CompiledEngine()
"""What matrices and graphs have unless they were given another: it keeps nothing."""


def find_engine(engine: str | TensorEngine) -> TensorEngine:
    """Return the engine of a name, "tensor" or "compiled", or the one given."""
    if not isinstance(engine, str):
        return engine
    named = {"tensor": TensorEngine(), "compiled": DEFAULT_ENGINE}
    if engine not in named:
        raise SettingsError(f"there is no engine {engine!r}: use tensor or compiled")
    return named[engine]
