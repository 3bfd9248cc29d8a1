"""The settings of the training, which all models and methods share. It imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from bvat.errors import SettingsError
from bvat.models.options import Options, option

LOSS_RULES = ("accuracy", "loss", "both")
"""Values of ``select`` that need the validation loss of every epoch."""


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    """How the weights are found, whatever the model and the method."""

    epochs: int = option(200, "number of epochs", at_least=1)
    lr: float = option(0.01, "Adam's learning rate", above=0)
    weight_decay: float = option(5e-4, "L2 penalty", at_least=0)
    decay: str = option("first", "what the L2 penalty is on: the first layer or all parameters",
                        choices=("first", "all"))  # fmt: skip
    select: str = option("last", "epoch whose weights are kept: the last, the first with the best "
                         "validation accuracy, the best by accuracy with ties decided by the validation "
                         "loss, the one with the lowest validation loss, or the last at which neither "
                         "was worse than ever before (both)",
                         choices=("last", "best", *LOSS_RULES))  # fmt: skip
    patience: int = option(0, "stop after this many epochs without better validation; 0: never", at_least=0)
    pretrain: int = option(0, "epochs at most without regulariser; the best of them is where regularised "
                           "training starts, and what is kept if that brings nothing; 0: no such phase",
                           at_least=0)  # fmt: skip
    margin: float = option(0.0, "points of validation accuracy that regularised training must gain over "
                           "the phase before to be kept", at_least=0)  # fmt: skip
    ramp: int = option(0, "epochs over which alpha and beta grow to their values", at_least=0)
    guard: bool = option(False, "weaken the regulariser when predictions collapse")
    scale: str = option("none", "features as they are, times one factor that makes the root mean square "
                        "length of their rows 1 (epsilon is then a share of that length), or with columns "
                        "of about the same variance", choices=("none", "unit", "columns"))  # fmt: skip
    class_weights: str = option("none", "how much a labelled node counts in the supervised loss: the same "
                                "for all, or balanced, so that every class counts the same",
                                choices=("none", "balanced"))  # fmt: skip
    schedule: str = option("constant", "learning rate: constant, or falling to 0 along a cosine",
                           choices=("constant", "cosine"))  # fmt: skip
    first_lr: float = option(1.0, "factor of the learning rate of the first layer", above=0)
    clip: float = option(0.0, "largest length of the gradient of all weights; 0: no limit", at_least=0)
    adam_epsilon: float = option(1e-8, "added to the root in Adam's divisor", above=0)
    average: float = option(0.0, "use a moving average of the weights that keeps this share of itself per "
                            "epoch; 0: none", at_least=0, below=1)  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pretrain >= self.epochs and self.pretrain:
            raise SettingsError(
                f"pretrain must be below epochs, which counts both phases, not {self.pretrain} of "
                f"{self.epochs}"
            )
