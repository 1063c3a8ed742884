# SPDX-License-Identifier: Apache-2.0
"""Common mistakes of new users end in a last line that names column or argument and the remedy.

Each is a program in `programs/`, run in a terminal of 80 columns as Python prints its traceback.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
COLUMNS = 80
MOST_ROWS = 5  # of the terminal for the last line
END = "\x1c"  # of run_programs.py

# What the last line of each program must have, as a regular expression.
LAST_LINES = {
    "text_ids": r"column 0 \('ids'\) .*text such as 'u0': .*category_keys\(name, column\)",
    "text_ids_of_numpy": r"column 0 \('ids'\) .*text such as 'u0': .*category_keys\(name, column\)",
    "float_ids": (
        r"column 0 \('ids'\) is float32, and table 'clicks' .* ids: \.astype\(np\.int64\), or "
        r"mindspore_rec\.category_keys"
    ),
    "float64_numbers": r"column 1 \('numbers'\) is float64: .*\.astype\(np\.float32\)",
    "nan_in_numbers": (
        r"column 1 \('numbers'\) of batch 0 of train_dataset .*nan in row 3: fill it, or leave"
    ),
    "nan_in_labels": r"the label of batch 0 of train_dataset .*nan in row 3: fill it, or leave",
    "bool_labels": r"the label is bool: .*\.astype\(np\.float32\)",
    "text_labels": r"the label .*text such as 'no': \(label == 'no'\)\.astype\(np\.float32\) is 1",
    "labels_1_and_2": (
        r"the label of batch 0 of train_dataset must be in \[0, 1\] .*got 2\.0 in row 1: "
        r"\(label == 2\)\.astype\(np\.float32\)"
    ),
    "label_without_axis": r"the label has shape \[64\]: .*label\[:, None\]",
    "int64_labels": r"the label is int64: .*\.astype\(np\.float32\)",
    "classes_as_int64": r"the label is int64: .*numbers of classes, \.astype\(np\.int32\)",
    "class_without_output": (
        r"the label is 3 in row 5, and the network has 3 outputs, .*numbered from 0 to 2"
    ),
    "labels_of_two_outputs": (
        r"the label has shape \[64, 2\]: for predictions of shape \[64, 1\] it must be of that"
    ),
    "third_id_of_a_row": r"a layer takes 9 numbers a row and gets 13: column 0 \('ids'\) or ",
    "label_left_out": (
        r"the last column of a batch is the label, and this one looks like ids: \(ids, numbers, l"
    ),
    "label_first": (
        r"the last column of a batch is the label, and this one looks like ids: \(ids, numbers, l"
    ),
    "no_optimizer": r"table 'clicks' would not learn: the argument optimizer is None\. Use an opt",
    "batch_without_rows": (
        r"train_dataset for step 2 has no rows, .*leave it out, as in \[b for b in batches if len"
    ),
    "unequal_columns": r"column 1 \('numbers'\) has 63 rows, the others 64: give one row a sample",
    "too_few_weights": r"table 'bags': per_sample_weights must have the shape of ids, .*got \[2\]",
    "metrics_by_name": (
        r"metrics must be a dict for a network .*, got \['auc'\]: metrics=\{'auc': .*AUC\("
    ),
    "forgotten_column": r"takes 2 columns \('ids', 'numbers'\), and the label, not 1; a batch is",
    "arrays_as_batches": (
        r"train_dataset must be a list of batches, \[\(ids, numbers, label\)\], got a tuple of 3 "
        "arrays"
    ),
    "frame_as_data": (
        r"train_dataset must be a list of batches, \[\(ids, numbers, label\)\], got a DataFrame: "
        r"FeatureBatches\(\[train_dataset\], features\)"
    ),
    "empty_data": r"train_dataset gave no batch: its length is 0; .*take smaller batches",
    "used_up_generator": (
        r"train_dataset must be read once in each of 3 epochs, .*generator.*: list\(train_dataset\)"
    ),
    "no_metrics": r"metrics must be given .*: RecModel\(\.\.\., metrics=\{'auc': .*AUC\(",
    "too_few_rates": (
        r"learning_rate must have a rate for each of 24 steps, got 3 rates: "
        r"numpy\.repeat\(learning_rate, 8\)"
    ),
    "predict_one_row": r"column 0 \('ids'\) has shape \[2\].*: one row is ids\[None\]",
    "dates_as_text": r"column 'time' must be .*timestamps, .*: .*pandas\.to_datetime\(column\)",
    "list_column": r"column 'seen' must .*got list.*: pandas\.DataFrame\(column\.tolist\(\)\)",
    # Legal: True is read as 1.
    "bool_as_number": r"\[True, False, False, True\] \[1\. 0\. 0\. 1\.\]$",
    # Legal: MindSpore's other callbacks are too. A warning is printed before the summary.
    "stopping_without_evaluation": r"1$",
    # Legal, as in MindSpore: it trains, and evaluates nothing.
    "fit_without_validation": r"1$",
    # Legal: an evaluation must not end a training. A warning is printed before (see below).
    "one_class": r"\{'auc': nan\}$",
}


def in_terminal(folder: Path, *command: str) -> str:
    """Return what a command prints in a terminal of 80 columns; MindSpore leaves files there."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "GLOG_v"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(HERE)])
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, cwd=folder
    ) as process:
        os.close(its)
        printed = b""
        try:
            while part := os.read(mine, 1 << 16):
                printed += part
        except OSError:  # so Linux says that nobody has the terminal any more
            pass
        finally:
            os.close(mine)
        process.wait(120)
    return printed.decode().replace("\r\n", "\n")


def lines_of(printed: str) -> list[str]:
    """Return the lines that one sees, without those that a progress bar has written over."""
    return [line.rpartition("\r")[2] for line in printed.split("\n") if line.strip()]


@pytest.fixture(scope="module", params=["GRAPH_MODE", "PYNATIVE_MODE"])
def printed(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, list[str]]:
    """Return the lines of each program in a mode of MindSpore; PyNative is its default."""
    names = list(LAST_LINES)
    folder = tmp_path_factory.mktemp("mistakes")
    program = str(HERE / "run_programs.py")
    parts = in_terminal(folder, sys.executable, program, request.param, *names).split(END)
    assert len(parts) == len(names) + 1, parts[-1]
    return {name: lines_of(part) for name, part in zip(names, parts, strict=False)}


@pytest.mark.parametrize("name", LAST_LINES)
def test_the_last_line_names_column_or_argument_and_the_remedy(
    printed: dict[str, list[str]], name: str
) -> None:
    last = printed[name][-1]
    assert re.search(LAST_LINES[name], last)
    assert len(last) <= MOST_ROWS * COLUMNS


def test_a_metric_of_one_class_is_explained(printed: dict[str, list[str]]) -> None:
    (warning,) = [line for line in printed["one_class"] if "RuntimeWarning" in line]
    assert re.search(
        r"one_class\.py:9: RuntimeWarning: metric 'auc' is NaN, because all labels are of one "
        r"class in the 32 rows of valid_dataset: choose rows of both classes",
        warning,
    )


def test_callbacks_that_watch_no_evaluation_say_so(printed: dict[str, list[str]]) -> None:
    text = " ".join(printed["stopping_without_evaluation"])
    assert "EarlyStopping has done nothing, since the training had no evaluation: give" in text


def test_the_sentence_is_the_last_of_a_process_with_80_columns(tmp_path: Path) -> None:
    program = HERE / "programs" / "label_among_80_columns.py"
    last = lines_of(in_terminal(tmp_path, sys.executable, str(program)))[-1]
    assert re.search(r"the label, column 'clicked', has shape \[64\]: .*label\[:, None\]", last)
    assert len(last) <= MOST_ROWS * COLUMNS


def test_every_program_is_run() -> None:
    programs = {file.stem for file in (HERE / "programs").glob("*.py")}
    assert programs == {*LAST_LINES, "label_among_80_columns"}
