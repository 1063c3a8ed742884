# SPDX-License-Identifier: Apache-2.0
"""Explain in one sentence why MindSpore cannot compile or run a network for a batch.

MindSpore's message describes the failure of an inner operator, followed by a page of compiler
output or C++ file names. Whatever the cause is, MindSpore may raise a TypeError, a ValueError or a
RuntimeError. The exception's class does not show the cause, so this module, like `operator_errors`,
reads the exception's message. Apart from this module and `operator_errors`, only `fuse` searches
the text of an error.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.graph.batch_columns import BatchColumns, input_names
from mindspore_rec.train.graph.said import beside_text

__all__ = ["LABEL_HAS_FEWER_AXES", "LABEL_HAS_MORE_AXES", "explained_by_batch"]

# Error messages from the compilation of a network together with its loss.
LABEL_HAS_FEWER_AXES = "the shape of the label has fewer axes than that of the prediction"
LABEL_HAS_MORE_AXES = "the shape of the label has more axes than that of the prediction"

_SHOWN = 4  # columns of a batch in a message
# Messages of CrossEntropyLoss and of SoftmaxCrossEntropyWithLogits.
_OTHER_CLASS = re.compile(
    r"'GatherD\w*', the value of 'index' must be in \[-\d+, (\d+)\), but got: (-?\d+)"
    r"|label\[index\] = (-?\d+) and class_num = (\d+)"
)
_OTHER_WIDTH = re.compile(
    r"'MatMul' the input dimensions must be equal, but got 'x1_col': (\d+) and 'x2_row': (\d+)"
)
_SHAPE = re.compile(r"shape: \[const vector\]\{(\d+(?:, \d+)*)\}")
_STACK = re.compile(r"\s*\n-{20,}\n- C\+\+ Call Stack.*", re.DOTALL)
_OTHER_NUMBER = "arameters number of the function|positional arg|the length of input must be equal"


def explained_by_batch(
    error: Exception, columns: BatchColumns, batch: Sequence[Tensor]
) -> Exception | None:
    """Return an error with a sentence about the batch; None if no reason is found in the batch.

    The error's message is a single sentence, so a terminal shows the sentence in the last line. The
    error's attribute `mindspore_text` contains MindSpore's message.

    Args:
        error: the error that MindSpore raised.
        columns: names of the called network's columns in error messages.
        batch: columns with which the network was called.

    Example:
        >>> import numpy as np
        >>> error = TypeError("'x1' with type Tensor[Float64] and 'x2' with type Tensor[Float32]")
        >>> columns = BatchColumns(nn.Dense(3, 1), labelled=False)
        >>> explained = explained_by_batch(error, columns, [Tensor(np.ones((2, 3)))])
        >>> print(str(explained).partition(":")[0])
        the batch float64 [2, 3] does not fit
        >>> explained.mindspore_text == str(error)
        True
    """
    if type(error) not in (TypeError, ValueError, RuntimeError):
        return None
    reason = _Reason(str(error), columns, batch).found() or _own_sentence(str(error))
    if not reason:
        return None
    shown = [f"{_dtype(column)} {list(column.shape)}" for column in batch]
    if len(shown) > _SHOWN:
        shown[2:-1] = [f"... {len(shown) - 3} more ..."]
    sentence = f"the batch {', '.join(shown)} does not fit: {reason}"
    return beside_text(type(error)(sentence), error)


def _own_sentence(text: str) -> str:
    """Return MindSpore's message up to the list of C++ files, or '' for a compiler error.

    Compiler errors contain the position in the network's code. In PyNative mode, the traceback
    shows the position in the network's code.
    """
    stack = _STACK.search(text)
    if stack is None or "Net Construct Code" in text:
        return ""
    return f"MindSpore says, {' '.join(text[: stack.start()].split())}"


class _Reason:
    """Reason why a batch does not fit the network, derived from MindSpore's message."""

    def __init__(self, text: str, columns: BatchColumns, batch: Sequence[Tensor]) -> None:
        self._text = text
        self._columns = columns
        self._network = columns.network
        self._labelled = columns.labelled
        self._batch = batch

    def found(self) -> str:
        """Return why the batch does not fit the network, or an empty string."""
        if re.search(_OTHER_NUMBER, self._text):
            return self._wrong_number()
        return self._wrong_type() or self._wrong_class() or self._wrong_shape()

    def _title(self, place: int) -> str:
        return self._columns.title(place, len(self._batch))

    def _wrong_number(self) -> str:
        least, most = _columns(self._network)
        column_count = len(self._batch) - self._labelled
        if least <= column_count <= most:
            return ""
        arguments = ", ".join(map(repr, input_names(self._network)))
        takes = f"{most} column{'s' * (most != 1)} ({arguments})" + ", and the label" * (
            self._labelled
        )
        return f"the network takes {takes}, not {column_count}; a batch is a tuple of all columns"

    def _wrong_type(self) -> str:
        ids = re.search(r"(table '.*'): ids must be int32 or int64, got (\w+)", self._text)
        if ids is not None:
            return self._no_ids(*ids.groups())
        doubles = [i for i, column in enumerate(self._batch) if _dtype(column) == "float64"]
        # MindSpore's error may name only the failed kernel, and no dtype.
        if doubles and re.search("float64|KernelMod Init Failed", self._text, re.IGNORECASE):
            return (
                f"{self._title(doubles[0])} is float64: networks compute in float32, "
                ".astype(np.float32)"
            )
        other = re.search(r"the (\d+)th type should be Tensor\[(\w+)\], but got", self._text)
        if other is not None:  # error of the graph for batches of any size
            place, usual = int(other.group(1)) - 1, other.group(2).lower()
            return (
                f"{self._title(place)} is {_dtype(self._batch[place])}, and was {usual} in earlier "
                f"batches: .astype(np.{usual})"
            )
        if self._labelled:
            return self._wrong_label_type(_dtype(self._batch[-1]))
        return ""

    def _wrong_label_type(self, kind: str) -> str:
        title = self._title(len(self._batch) - 1)
        named = rf"Tensor\[{kind}\]|but got {kind}\b"  # texts in a graph and in PyNative mode
        if "float" not in kind and re.search(named, self._text, re.IGNORECASE):
            return f"{title} is {kind}: this loss needs a float32 one, .astype(np.float32)"
        if "'labels' should be Int32" in self._text:
            return f"{title} is {kind}: this loss needs numbers of classes, .astype(np.int32)"
        return ""

    def _wrong_class(self) -> str:
        """Return an explanation if a label is not a valid class number; otherwise ''."""
        match = _OTHER_CLASS.search(self._text)
        if match is None or not self._labelled or "int" not in _dtype(self._batch[-1]):
            return ""
        got, classes = map(int, match.groups()[2:] if match[3] else match.groups()[1::-1])
        rows = np.argwhere(self._batch[-1].asnumpy() == got)
        if not len(rows):
            return ""
        return (
            f"{self._title(len(self._batch) - 1)} is {got} in row {rows[0][0]}, and the network "
            f"has {classes} outputs, one a class: classes must be numbered from 0 to {classes - 1}"
        )

    def _no_ids(self, table: str, kind: str) -> str:
        places = [i for i in range(self._inputs()) if _dtype(self._batch[i]) == kind]
        # If several columns have the dtype `kind`, prefer columns of whole numbers, which may be
        # ids read as floats.
        places = [i for i in places if _all_whole(self._batch[i])] or places
        if not places:
            return ""
        return (
            f"{' or '.join(map(self._title, places))} is {kind}, and {table} looks it up as ids: "
            ".astype(np.int64), or mindspore_rec.category_keys(name, column)"
        )

    def _wrong_shape(self) -> str:
        names_a_table = self._text.startswith("table '")  # and the wrong argument of a lookup
        if names_a_table or not re.search("shape|rank|dim", self._text):
            return ""
        inputs = self._batch[: self._inputs()]
        if not self._labelled:
            if inputs and all(column.ndim < 2 for column in inputs):
                first = inputs[0]
                return (
                    f"{self._title(0)} has shape {list(first.shape)}, and the first dimension of a "
                    f"batch is its rows: one row is {(self._argument() or 'x')}[None]"
                )
            return self._wrong_width()
        rows = [column.shape[0] for column in self._batch if column.shape]
        if len(set(rows)) > 1 and len(rows) == len(self._batch):
            usual = Counter(rows).most_common(1)[0][0]
            odd = next(i for i, count in enumerate(rows) if count != usual)
            others = "the others" if len(rows) > 2 else self._title(0 if odd else 1)
            return (
                f"{self._title(odd)} has {rows[odd]} rows, {others} {usual}: give one row a sample "
                "in each column"
            )
        return self._wrong_width() or self._wrong_label_shape()

    def _wrong_width(self) -> str:
        """Return an explanation if a layer does not accept the width of a column; otherwise ''."""
        match = _OTHER_WIDTH.search(self._text)
        if match is None:
            return ""
        titles = " or ".join(map(self._title, range(min(self._inputs(), _SHOWN))))
        return (
            f"a layer takes {match[2]} numbers a row and gets {match[1]}: {titles} must have as "
            "many numbers or ids a row as the network was made for"
        )

    def _wrong_label_shape(self) -> str:
        label = self._batch[-1]
        has_shape = f"{self._title(len(self._batch) - 1)} has shape {list(label.shape)}: for"
        rows = list(label.shape[:1])
        if label.ndim == 1:
            return f"{has_shape} predictions of shape {[*rows, 1]} it is label[:, None]"
        if label.ndim == 2 and label.shape[1] == 1 and LABEL_HAS_MORE_AXES in self._text:
            return f"{has_shape} predictions of shape {rows} it is label[:, 0]"
        shapes = [text.replace(" ", "").split(",") for text in _SHAPE.findall(self._text)]
        if len(shapes) == 2 and shapes[1] == list(map(str, label.shape)):
            shape = list(map(int, shapes[0]))
            return f"{has_shape} predictions of shape {shape} it must be of that shape too"
        return ""

    def _inputs(self) -> int:
        return len(self._batch) - self._labelled

    def _argument(self) -> str:
        return next(iter(input_names(self._network)), "")


def _columns(network: nn.Cell) -> tuple[int, float]:
    """Return the minimum and the maximum number of inputs of the network."""
    parameters = list(inspect.signature(network.construct).parameters.values())
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 0, float("inf")
    return sum(each.default is each.empty for each in parameters), len(parameters)


def _all_whole(column: Tensor) -> bool:
    values = column.asnumpy()
    return bool(np.all(values == np.trunc(values)))


def _dtype(column: Tensor) -> str:
    return str(column.dtype).lower()
