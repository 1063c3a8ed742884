# SPDX-License-Identifier: Apache-2.0
"""Code that all data sets share: batches, the packed format on disk, its reader, downloads."""

from datasets.common.blocks import Batch, rebatch
from datasets.common.packed import write_packed
from datasets.common.reader import as_dataset, batches

__all__ = ["Batch", "as_dataset", "batches", "rebatch", "write_packed"]
