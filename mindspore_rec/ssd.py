# SPDX-License-Identifier: Apache-2.0
"""Use the SSD tier without a table: store rows of one size, with int64 keys, in a directory.

    python -m mindspore_rec.ssd inspect|verify|compact PATH

`SsdStore` is a C++ class; csrc/tier/ssd_tier.h documents its guarantees.

Example:
    >>> import tempfile
    >>> import numpy as np
    >>> from mindspore_rec.ssd import SsdStore
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with SsdStore(path, row_bytes=16, direct=False) as store:
    ...         store.write(np.array([7, -1]), np.ones((2, 4), np.float32))
    ...         store.flush()  # the rows now survive kill -9 and power loss
    ...         rows, found = store.read(np.array([-1, 5]))
    >>> rows.view(np.float32).tolist(), found.tolist()
    ([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]], [True, False])
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec._native import SsdCorruptionError as SsdCorruptionError, SsdStore as SsdStore
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

if __name__ == "__main__":
    import sys

    from mindspore_rec.common.tiers.ssd_command import main

    sys.exit(main())
