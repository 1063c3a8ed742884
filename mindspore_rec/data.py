# SPDX-License-Identifier: Apache-2.0
"""Readers: read Parquet, CSV, Arrow, JSON lines and data frames, and yield batches for training.

`read` returns the rows of files, folders, globs, S3 buckets or data frames. `Rows` can be split,
filtered and thinned without being read. `Rows.batches` yields batches; this method can shuffle the
rows, divide them among workers, and resume in the middle of a pass.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.data.bad_rows import (
        BadRow as BadRow,
        BadRowReport as BadRowReport,
    )
    from mindspore_rec.common.data.batches import ArrowBatches as ArrowBatches
    from mindspore_rec.common.data.example_clicks import example_clicks as example_clicks
    from mindspore_rec.common.data.file_rows import FileRows as FileRows, Part as Part
    from mindspore_rec.common.data.infer_schema import infer_schema as infer_schema
    from mindspore_rec.common.data.negatives import NegativeSampler as NegativeSampler
    from mindspore_rec.common.data.next_items import (
        NextItems as NextItems,
        next_items as next_items,
    )
    from mindspore_rec.common.data.order import Order as Order, PassOrder as PassOrder
    from mindspore_rec.common.data.read import read as read
    from mindspore_rec.common.data.rows import Rows as Rows
    from mindspore_rec.common.data.settings import (
        BadRows as BadRows,
        CsvFormat as CsvFormat,
        JsonLinesFormat as JsonLinesFormat,
        Sample as Sample,
    )
    from mindspore_rec.common.stream.worker_states import join_states as join_states
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
