# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command `mindspore-rec`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # MindSpore's log, before MindSpore is imported

from mindspore_rec.command.json_file import write_json
from mindspore_rec.command.options import add_commands
from mindspore_rec.command.remedies import in_words_of_the_command

__all__ = ["main"]

_DESCRIPTION = """\
Trains a recommendation model on your table, and evaluates, explains, tunes and serves the model.
One YAML file describes the data, the model and the training; `init` proposes it."""
_EPILOG = """\
example:
  mindspore-rec init clicks.parquet --label clicked --time ts > clicks.yaml
  mindspore-rec train clicks.yaml
  mindspore-rec predict clicks.yaml new.parquet -o scores.parquet
  mindspore-rec serve clicks.yaml --port 8000"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code.

    The exit code is 0 after success, 1 after wrong input, 2 after wrong options, 130 after Ctrl-C,
    and 141 if the output's reader has ended.
    """
    parser = argparse.ArgumentParser(
        prog="mindspore-rec",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_commands(parser)
    options, further = parser.parse_known_args(arguments)
    if further and not options.takes_further:
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    options.further = further
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            _check_json(options.json)
            result = options.run(options)
        if options.json is not None and result is not None:
            write_json(options.json, result.figures)
        return 0 if result is None else result.code
    except BrokenPipeError:  # the reader has ended, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ArithmeticError, ImportError, LookupError, OSError, TypeError, ValueError) as error:
        if options.traceback:
            raise
        full = _full_disk(error)
        text = _sentence(error) if full is None else _of_full_disk(full, options)
        sentence = in_words_of_the_command(text, options.command)
        print(f"error: {sentence}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _show_warning(message: Warning | str, *_place: Any, **_more: Any) -> None:
    """Print a warning as one line."""
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def _check_json(path: Path | None) -> None:
    """Check, before the training, that the folder of the `--json` file exists."""
    if path is not None and not path.absolute().parent.is_dir():
        raise ValueError(f"--json {path}: there is no folder {path.parent}")


def _full_disk(error: BaseException | None) -> OSError | None:
    """Return the error itself or its cause, if one of them reports a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return error
        error = error.__cause__
    return None


def _of_full_disk(error: OSError, options: argparse.Namespace) -> str:
    """Return an error message that names the path on the full disk, and a remedy."""
    place = error.filename2 or error.filename or getattr(options, "output", None)
    if place is None and hasattr(options, "run_dir"):
        # The module of run folders needs the native core, but `doctor` must run without the core.
        from mindspore_rec.command.run_folder import RunFolder

        place = RunFolder(options.yaml, options.run_dir).path
    other = "-o" if options.command == "predict" else "--run"
    return (
        f"{place or 'the disk'} cannot be written, since the disk is full: make room, or name a "
        f"path on another disk by {other}"
    )


def _sentence(error: BaseException) -> str:
    """Return an error as one line."""
    text = " ".join(str(error.args[0] if isinstance(error, KeyError) else error).split())
    return text or type(error).__name__
