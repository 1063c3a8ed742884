# SPDX-License-Identifier: Apache-2.0
"""Publication: what predictors get of a run, its network and the news of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.train.checkpoint.arguments import check_builder

__all__ = ["Publication"]


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Network and messages that a `RecCheckpoint` gives to predictors of its run.

    Args:
        announce: function that worker 0 calls from another thread when a checkpoint is written,
            with a dict of `run`, `kind`, `step`, `state`, `parent`, `path`, `watermark` and
            `saved_at`, such as an `Announcer`. Its exceptions are logged. Default: nobody is told.
        builder: function that makes the network for `serving.Predictor`, as
            'package.module:function'. Another process calls it once when training begins, and
            writes the network as ONNX, for predictors without MindSpore (`docs/serving.md`).
            Default: predictors are given the network themselves.
        builder_arguments: keyword arguments of `builder`, JSON values. Default: none.
        builder_inputs: inputs of that network, as texts such as 'ids:INT64:-1,26', for predictors.
            Default: None, the inputs of the network's `set_inputs`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or of another form, or is given
            without a builder.

    Example:
        >>> Publication(builder="shop.net:build", builder_inputs=["ids:INT64:-1,26"]).network
        {'builder': 'shop.net:build', 'arguments': {}, 'inputs': ['ids:INT64:-1,26']}
        >>> Publication(builder="shop.net")
        Traceback (most recent call last):
        ...
        ValueError: builder must be 'package.module:function', got 'shop.net'
    """

    announce: Callable[[dict[str, Any]], Any] | None = None
    builder: str | None = None
    builder_arguments: Mapping[str, Any] | None = field(default=None, hash=False)
    builder_inputs: Sequence[str] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.announce is not None and not callable(self.announce):
            raise TypeError(f"announce must be callable, got {self.announce!r}")
        check_builder(self.builder, self.builder_arguments, self.builder_inputs)

    @property
    def network(self) -> dict[str, Any] | None:
        """The manifest's entry on the network; None without a builder."""
        return check_builder(self.builder, self.builder_arguments, self.builder_inputs)
