# SPDX-License-Identifier: Apache-2.0
"""python -m mindspore_rec.checkpoint: list, verify, compare, merge, export, publish checkpoints."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mindspore_rec.common.rows.quantise import ROWS
from mindspore_rec.common.run.chain import Entry, chain_at, check_follows, entries, entry_at, verify
from mindspore_rec.common.run.diff import difference
from mindspore_rec.common.run.digests import check_digests
from mindspore_rec.common.run.export import ENDINGS, export_table
from mindspore_rec.common.run.live import compare_live, http_client
from mindspore_rec.common.run.manifest import MANIFEST
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.publish import PUBLISHED, Publisher
from mindspore_rec.common.run.share import total
from mindspore_rec.common.token_file import read_tokens

_MOST_NAMED = 20  # keys of rows that differ


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mindspore_rec.checkpoint", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    path_help = "a checkpoint, or the directory of a RecCheckpoint"

    ls = commands.add_parser("ls", help="list checkpoints")
    ls.add_argument("path", type=Path, help=path_help)

    check = commands.add_parser(
        "verify", help="check sizes, checksums, that deltas follow, and digests of tables"
    )
    check.add_argument("path", type=Path, help=path_help)
    check.add_argument(
        "--live",
        metavar="ADDRESS",
        help="compare the rows of the server at http://host:port with these checkpoints, instead",
    )
    check.add_argument("--model", help="its name at the server; default: the server's first")
    check.add_argument(
        "--token-file", type=Path, help="file of the server's tokens; the first is sent"
    )

    diff = commands.add_parser("diff", help="compare two states; ends with 1 if they differ")
    diff.add_argument("first", type=Path, help=path_help)
    diff.add_argument("second", type=Path, help=path_help)

    merge = commands.add_parser("merge", help="make a full checkpoint of the newest state")
    merge.add_argument("path", type=Path, help="the directory of a RecCheckpoint")
    merge.add_argument("--to", type=Path, required=True, help="directory to make")

    export = commands.add_parser("export", help="write a table as a file for other tools")
    export.add_argument("path", type=Path, help=path_help)
    export.add_argument("--table", help="its name; default: the only one")
    export.add_argument("--to", type=Path, required=True, help=f"file, {', '.join(ENDINGS)}")
    export.add_argument("--state", action="store_true", help="with the optimizer's state")
    export.add_argument(
        "--rows",
        choices=ROWS,
        default="float32",
        help="how numbers are written; int8 and int4: a scale, an offset and codes a row",
    )

    publish = commands.add_parser(
        "publish", help="copy a run for predictors elsewhere: rows without optimizer state"
    )
    publish.add_argument("path", type=Path, help="the directory of a RecCheckpoint")
    publish.add_argument("--to", type=Path, required=True, help="directory of the copy")
    publish.add_argument(
        "--rows",
        choices=PUBLISHED,
        default="same",
        help="values as the checkpoints have them, or as int8; default: %(default)s",
    )
    publish.add_argument("--follow", action="store_true", help="go on with what the run writes")
    publish.add_argument(
        "--poll-seconds",
        type=_seconds,
        default=0.1,
        help="between looks with --follow; default: %(default)s",
    )

    for command in (merge, export):
        command.add_argument("--step", type=int, help="of that step, not the newest")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Example:
        >>> main(["ls", "/nowhere"])
        Traceback (most recent call last):
        FileNotFoundError: there is no directory of checkpoints at /nowhere
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "verify" and options.live is None:
        if options.model is not None or options.token_file is not None:
            parser.error("--model and --token-file go with --live")
    if options.command == "ls":
        return _list(_all(options.path))
    if options.command == "verify":
        if options.live is not None:
            return _verify_live(options)
        return _verify(_all(options.path))
    if options.command == "diff":
        return _diff(options.first, options.second)
    if options.command == "publish":
        return _publish(options)
    chain = chain_at(options.path, options.step)
    if options.step not in (None, chain[-1].step):
        raise ValueError(f"--step must be {chain[-1].step}, the step of {options.path}")
    if options.command == "merge":
        merge_chain(chain, options.to, network_of=options.path)
        print(f"{options.to}: step {chain[-1].step}")
        return 0
    table = options.table or _only_table(chain[-1])
    rows = export_table(chain, table, options.to, options.state, options.rows)
    print(f"{options.to}: {rows:,} rows of step {chain[-1].step}")
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 86400, got {text!r}")
    return seconds


def _publish(options: argparse.Namespace) -> int:
    if not (options.follow or options.path.is_dir()):
        raise FileNotFoundError(f"there is no directory of checkpoints at {options.path}")
    if options.to.exists() and not options.to.is_dir():
        raise ValueError(f"--to must be a directory, {options.to} is a file")
    publisher = Publisher(options.path, options.to, options.rows)

    def say(path: Path) -> None:
        print(path, flush=True)

    def complain(error: Exception) -> None:
        words = _printable(f"{type(error).__name__}: {error}")
        print(f"mindspore_rec.checkpoint: {words}; it is tried again", file=sys.stderr, flush=True)

    try:
        if options.follow:
            publisher.follow(options.poll_seconds, say, complain)
        publisher.publish(say)
    except KeyboardInterrupt:
        return 0
    finally:
        publisher.close()
    return 0


def _all(path: Path) -> list[Entry]:
    return [entry_at(path)] if (path / MANIFEST).is_file() else entries(path)


def _list(checkpoints: list[Entry]) -> int:
    print(f"{'step':>12}  {'kind':5}  {'rows':>12}  {'deleted':>9}  {'MB':>9}  {'saved':19}  state")
    for entry in checkpoints:
        tables = entry.manifest["tables"].values()
        size = sum(file["size"] for file in entry.manifest["files"].values())
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.manifest["saved_at"]))
        rows = sum(total(table, "rows") for table in tables)
        deleted = sum(total(table, "deleted_rows") for table in tables)
        print(
            f"{entry.step:12}  {entry.kind:5}  {rows:12,}  {deleted:9,}  {size / 1e6:9.1f}  "
            f"{saved}  {entry.state} of run {entry.run}"
        )
    return 0


def _verify(checkpoints: list[Entry]) -> int:
    bad = 0
    before: Entry | None = None
    chain: list[Entry] = []  # from a full one to `before`; empty if one of them is bad
    for i, entry in enumerate(checkpoints):
        try:
            begun, chain = chain, []
            verify(entry)
            if entry.kind == "delta" and before is not None:
                check_follows(before, entry)
            if entry.kind == "full" or begun:
                chain = [entry] if entry.kind == "full" else [*begun, entry]
                if _is_digested(checkpoints, i):
                    check_digests(chain)
            print(f"ok   {entry.path}")
        except (ValueError, OSError) as error:
            if entry.path.exists():
                print(f"BAD  {entry.path}: {_printable(str(error))}")
                bad += 1
            else:  # a run that goes on removes old checkpoints
                print(f"gone {entry.path}")
        before = entry
    print(f"{len(checkpoints)} checkpoints, {bad} bad")
    return 1 if bad or not checkpoints else 0


def _is_digested(checkpoints: list[Entry], i: int) -> bool:
    """Return True if the command checks the digests of checkpoint `i`.

    The command checks the digests of each full checkpoint and of the last checkpoint. A check of
    digests reads all rows of the state. If a full checkpoint was merged from deltas, its digests
    also cover these deltas.
    """
    return checkpoints[i].kind == "full" or i + 1 == len(checkpoints)


def _verify_live(options: argparse.Namespace) -> int:
    token = None
    if options.token_file is not None:
        token = read_tokens(options.token_file)[0].decode("utf-8")
    ask = http_client(options.live, token)
    tables = compare_live(options.path, ask, options.model)
    for table in tables:
        name, saved, served = _printable(table.name), table.saved, table.served
        numbers = f"rows of {served.numbers}"
        if table.same:
            print(f"ok   table {name}: digest {saved.digest} of {saved.row_count:,} {numbers}")
            continue
        print(
            f"BAD  table {name}: digest {served.digest} of {served.row_count:,} {numbers} at the "
            f"server, {saved.digest} of {saved.row_count:,} by the files"
        )
        for key, what in list(table.wrong.items())[:_MOST_NAMED]:
            print(f"     key {key}: {what}")
        if len(table.wrong) > _MOST_NAMED:
            print(f"     and {len(table.wrong) - _MOST_NAMED:,} more")
    bad = sum(not table.same for table in tables)
    print(f"{len(tables)} tables, {bad} bad")
    return 1 if bad else 0


def _diff(first: Path, second: Path) -> int:
    differences = difference(chain_at(first), chain_at(second))
    for where, names in ((first, differences.only_first), (second, differences.only_second)):
        for name in names:
            print(f"only in {where}: {_printable(name)}")
    for name, table in differences.tables.items():
        print(
            f"table {_printable(name)}: {table.same:,} rows the same, {table.changed:,} changed "
            f"(largest difference {table.largest:.3g}), {table.only_first:,} only in the first, "
            f"{table.only_second:,} only in the second"
        )
    for name, largest in differences.dense.items():
        print(f"parameter {_printable(name)}: largest difference {largest:.3g}")
    print("the same" if differences.same else "different")
    return 0 if differences.same else 1


def _printable(text: str) -> str:
    """Escape control characters of a text, because names from files may contain such characters."""
    return text if text.isprintable() else ascii(text)


def _only_table(entry: Entry) -> str:
    names = list(entry.manifest["tables"])
    if len(names) != 1:
        raise ValueError(f"--table must be one of {names}")
    return str(names[0])


def run() -> NoReturn:
    """Run the command and exit. An OSError or ValueError is printed as one line."""
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        sys.exit(f"mindspore_rec.checkpoint: {_printable(str(error))}")
