# SPDX-License-Identifier: Apache-2.0
"""CheckpointError: the exception for checkpoints that cannot be read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError

__all__ = ["CheckpointError", "reading"]

_DAMAGE = (
    pa.ArrowException,
    SafetensorError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,
    AttributeError,
    struct.error,
)


class CheckpointError(ValueError):
    """Raised if a file of a checkpoint is damaged, forged or inconsistent with the other files.

    The error's text names the file and the damage. A CheckpointError is raised before anything is
    changed.
    """


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors in decoding a file into a CheckpointError that names the file.

    Raises:
        CheckpointError: the contents of the file are wrong.
        OSError: the file cannot be read.

    Example:
        >>> with reading(Path("states.json")):
        ...     {}["random"]
        Traceback (most recent call last):
        mindspore_rec.common.run.errors.CheckpointError: states.json is damaged: KeyError: 'random'
    """
    try:
        yield
    except CheckpointError:
        raise
    except _DAMAGE as error:
        raise CheckpointError(f"{path} is damaged: {_words(error)}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        # Arrow raises OSError without an errno if a file ends too early.
        raise CheckpointError(f"{path} is damaged: {_words(error)}") from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
