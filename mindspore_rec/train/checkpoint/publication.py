# SPDX-License-Identifier: Apache-2.0
"""Publication: settings for publishing a run's network and announcing its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.train.checkpoint.arguments import check_builder

__all__ = ["Publication"]


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Settings by which a `RecCheckpoint` publishes its run's network and announces checkpoints.

    Args:
        announce: function, such as an `Announcer`, that worker 0 calls after each written
            checkpoint. The training's thread calls `announce` for the first checkpoint of a run;
            another thread calls `announce` for later checkpoints. The argument of `announce` is a
            dict with `run`, `kind`, `step`, `state`, `parent`, `path`, `watermark` and `saved_at`.
            Exceptions that `announce` raises are logged. Default: no function is called.
        builder: name of the function that makes the network for `serving.Predictor`, in the form
            'package.module:function'. When training begins, another process calls the builder once
            and writes the network as ONNX, for predictors without MindSpore (`docs/serving.md`).
            Default: None, which means that each predictor must be constructed with a network.
        builder_arguments: keyword arguments of `builder`. Each value must be a JSON value. Default:
            none.
        builder_inputs: strings such as 'ids:INT64:-1,26', one for each input of the builder's
            network. Default: None, which means the inputs that were passed to the network's
            `set_inputs`.

    Raises:
        TypeError, ValueError: an argument has the wrong type or form, or a builder's argument is
            set although `builder` is None.

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
        """The manifest's entry for the network; None without a builder."""
        return check_builder(self.builder, self.builder_arguments, self.builder_inputs)
