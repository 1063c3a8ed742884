# SPDX-License-Identifier: Apache-2.0
"""Configuration of Wide & Deep; the files are in `configs`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from mindspore import nn

from mindspore_rec.models import WideDeep
from mindspore_rec.optim import FTRL, CombinedOptimizer
from models.common.checks import check_least
from models.common.embedding import embedding_parameters
from models.common.model import RunConfig, ZooModel
from models.common.optimizer import OptimizerConfig, lazy_adam
from models.common.precision import loss_scale

__all__ = ["MODEL", "Config", "FtrlConfig", "ModelConfig", "WideDeepOptimizer", "make_optimizer"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: the arguments of `WideDeep`.

    Args:
        numbers: use of the numeric columns, 'concat', 'embed', 'piecewise' or 'periodic'. Default:
            'concat', as in the paper.
        hidden: widths of the perceptron's layers. Default: 256, 128.
        dropout: dropout rate in the perceptron. Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
    """

    numbers: str = "concat"
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.0
    batch_norm: bool = False


@dataclass(frozen=True)
class FtrlConfig:
    """Settings of FTRL, which trains the wide part.

    Args:
        learning_rate: learning rate, at least 0. Default: 0.05.
        l1: L1 penalty, at least 0. The penalty makes weights of rare ids exactly 0. Default: 1e-6.
        l2: L2 penalty, at least 0. Default: 1e-6.
    """

    learning_rate: float = 0.05
    l1: float = 1e-6
    l2: float = 1e-6

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            check_least(f"'optimizer.wide.{name}'", value, 0)


@dataclass(frozen=True)
class WideDeepOptimizer(OptimizerConfig):
    """Settings of the optimizers: FTRL (wide part, as in the paper) and LazyAdam (deep part).

    Args: as for `OptimizerConfig`, and

        wide: settings of FTRL for the wide part; if None, LazyAdam trains the whole network.
    """

    wide: FtrlConfig | None = field(default_factory=FtrlConfig)


@dataclass(frozen=True)
class Config(RunConfig):
    """Configuration of a run of Wide & Deep.

    Args: as for `RunConfig`, and

        model: the network.
    """

    optimizer: WideDeepOptimizer = field(default_factory=WideDeepOptimizer)
    model: ModelConfig = field(default_factory=ModelConfig)


def make_optimizer(
    net: WideDeep, config: WideDeepOptimizer, steps: int = 1, loss_scale: float = 1.0
) -> nn.Optimizer:
    """Return an optimizer that updates the wide part and the deep part in each step.

    Args:
        net: the network.
        config: the section `optimizer`.
        steps: number of steps of the whole run, for a falling rate. Default: 1.
        loss_scale: factor by which the loss was multiplied. Default: 1.0.
    """
    of_ids = embedding_parameters(net if config.wide is None else net.inputs)
    apart = {id(p) for p in of_ids}
    wide = [] if config.wide is None else net.wide.trainable_params()
    apart |= {id(p) for p in wide}
    others = [p for p in net.trainable_params() if id(p) not in apart]
    deep = lazy_adam(config, of_ids, others, steps, loss_scale)
    if config.wide is None:
        return deep
    return CombinedOptimizer(
        [FTRL(wide, loss_scale=loss_scale, **dataclasses.asdict(config.wide)), deep]
    )


def _optimizer(net: WideDeep, config: Config, steps: int) -> nn.Optimizer:
    return make_optimizer(net, config.optimizer, steps, loss_scale(config.compute_dtype))


MODEL = ZooModel("wide_deep", "Wide & Deep", Config, WideDeep, _optimizer)
