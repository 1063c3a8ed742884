# SPDX-License-Identifier: Apache-2.0
"""Configuration of DCN-V2; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.models import CrossMixture, DCNv2
from models.common.model import RunConfig, ZooModel

__all__ = ["MODEL", "Config", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: the arguments of `DCNv2`.

    Args:
        numbers: use of the numeric columns, 'concat', 'embed', 'piecewise' or 'periodic'. Default:
            'concat', as in the paper.
        structure: 'parallel' or 'stacked'. Default: 'parallel'.
        cross: 'matrix' or 'mixture'. Default: 'matrix'.
        layers: number of cross layers. Default: 3.
        experts: number of experts in a layer of a mixture. Default: None, which means 4 experts if
            `cross` is 'mixture'.
        rank: width (rank) of an expert in a mixture. Default: None, which means width 32 if `cross`
            is 'mixture'.
        hidden: widths of the perceptron's layers. Default: 256, 128.
        dropout: dropout rate in the perceptron. Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
    """

    numbers: str = "concat"
    structure: str = "parallel"
    cross: str = "matrix"
    layers: int = 3
    experts: int | None = None
    rank: int | None = None
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.0
    batch_norm: bool = False


@dataclass(frozen=True)
class Config(RunConfig):
    """A run of DCN-V2.

    Args: as for `RunConfig`, and

        model: the network.
    """

    model: ModelConfig = field(default_factory=ModelConfig)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the network."""
        settings = super().settings()
        structure = check_one_of("structure", settings.pop("structure"), ("parallel", "stacked"))
        chosen = {key: settings.pop(key) for key in ("experts", "rank")}
        chosen = {key: value for key, value in chosen.items() if value is not None}
        if settings["cross"] == "mixture":
            settings["cross"] = CrossMixture(**chosen, stacked=structure == "stacked")
        elif chosen:
            raise ValueError(f"experts and rank are only for cross: mixture, got {chosen}")
        elif structure == "stacked":
            settings["cross"] = f"stacked_{settings['cross']}"
        return settings


MODEL = ZooModel("dcn_v2", "DCN-V2", Config, DCNv2)
