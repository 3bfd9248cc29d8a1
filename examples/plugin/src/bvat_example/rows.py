"""The rows that the entry points name; importing this imports nothing heavy."""

from dataclasses import dataclass

import bvat


@dataclass(frozen=True, kw_only=True)
class SeveralOptions(bvat.RegulariserOptions):
    """Settings of the method, beside those of every regulariser."""

    epsilon: float = bvat.option(0.3, "length of a perturbation", at_least=0)
    directions: int = bvat.option(4, "random directions, of which the worst is kept", at_least=1)


@dataclass(frozen=True, kw_only=True)
class JumpingOptions(bvat.Options):
    """Settings of the model: keywords of what makes it."""

    hidden: int = bvat.option(16, "width of the hidden layer", at_least=1)
    dropout: float = bvat.option(0.5, "dropout rate", at_least=0, below=1)


SEVERAL = bvat.MethodRow(
    "several",
    "GCN + several",
    "all nodes, the worst of several random directions",
    SeveralOptions,
    "bvat_example.several:Several",
    effort=4.0,
    space={"epsilon": {"low": 0.03, "high": 1.0, "log": True}, "directions": {"choices": [2, 4, 8]}},
    auto=3,
)
JUMPING = bvat.Model("jumping", "Jumping", "bvat_example.jumping:make", JumpingOptions, colour=4)
