# SPDX-License-Identifier: Apache-2.0
"""Numbers of a server's command line."""

import argparse

import pytest

from mindspore_rec.serve.protection.options import counted
from mindspore_rec.serve.shared.supervisor import add_worker_arguments


@pytest.mark.parametrize("text", ["1", "7", "10", "007"])
def test_a_whole_number_in_range_is_taken(text: str) -> None:
    assert counted(1, 10)(text) == int(text)


@pytest.mark.parametrize(
    "text", ["", "0", "11", "-1", "+1", " 1", "1_0", "1.0", "1e1", "١", "x", "1" * 5000]
)
def test_all_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number from 1 to 10, "):
        counted(1, 10)(text)


def test_workers_are_counted_alike(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_worker_arguments(parser)
    assert parser.parse_args([]).workers == 1
    assert parser.parse_args(["--workers", "128"]).workers == 128
    for wrong in ("0", "129", "two"):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(["--workers", wrong])
        assert ended.value.code == 2
        said = f"argument --workers: must be a whole number from 1 to 128, got '{wrong}'"
        assert said in capsys.readouterr().err
