# SPDX-License-Identifier: Apache-2.0
"""Compare the rows of a server with the rows of the checkpoints that the server loaded."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.common.digests.digest import MOST_PARTS, TableDigest, to_text
from mindspore_rec.common.digests.state import RowDigests
from mindspore_rec.common.run.chain import Entry, chain_at, verify_chain
from mindspore_rec.common.run.digests import row_digests_at, table_digest_at
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.share import total

__all__ = ["AskServer", "LiveTable", "ServerBusyError", "compare_live", "http_client"]

AskServer = Callable[[str, Mapping[str, Any]], Any]
"""Function that asks a server for `path` with a query, and returns the JSON of its answer."""

_ROWS_OF_A_PART = 4096
_MOST_NAMED_PARTS = 8  # whose rows are compared one by one
_MOST_ANSWER = 1 << 28  # bytes
_ATTEMPTS = 3
_PAUSE = 1.0  # seconds between them


@dataclass(frozen=True)
class LiveTable:
    """Comparison of one table.

    Attributes:
        name: name of the table.
        saved: digest of the rows in the checkpoint's files.
        served: digest of the rows in the server.
        wrong: dict from key to kind of difference, for the keys whose rows differ between the files
            and the server. If many rows differ, `wrong` contains only some keys.
    """

    name: str
    saved: TableDigest
    served: TableDigest
    wrong: Mapping[int, str]

    @property
    def same(self) -> bool:
        """True if the checkpoint and the server have the same rows."""
        return self.saved == self.served


class ServerBusyError(OSError):
    """Raised if a server is too busy to answer. The same request may succeed later."""


class _GoneOnError(CheckpointError):
    """Raised if a server's status and the server's answer describe different states."""


def compare_live(root: Path, ask: AskServer, model: str | None = None) -> list[LiveTable]:
    """Compare the tables of a server with the tables of the run that the server follows.

    The rows are compared with the full checkpoint and the deltas up to the version that the server
    reports. Before the comparison, all files of the compared checkpoints are verified. If the
    server is busy or loads a newer state meanwhile, the comparison starts again; three comparisons
    are tried at most.

    Args:
        root: directory of the run, or a full checkpoint.
        ask: function that sends a request to the server and returns the answer.
        model: name of the model at the server. Default: None, which means the first model of the
            server.

    Raises:
        CheckpointError: a file is damaged, or the run or the state differs between the server and
            the checkpoints.
        OSError: the server does not answer, or answers with an error.
        ValueError: the answer is malformed, or the checkpoints up to the server's version were
            deleted.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return _compare_once(root, ask, model)
        except (_GoneOnError, ServerBusyError):
            time.sleep(_PAUSE)
    return _compare_once(root, ask, model)


def _compare_once(root: Path, ask: AskServer, model: str | None) -> list[LiveTable]:
    query = {} if model is None else {"model": model}
    status = ask("/status", query)
    if not isinstance(status, dict) or type(status.get("version")) is not int:
        raise ValueError("the server's /status has no version")
    chain = chain_at(root, status["version"])
    verify_chain(chain)
    sizes = {name: _rows(chain, name) for name in chain[-1].manifest["tables"]}
    parts = min(MOST_PARTS, max([1, *(rows // _ROWS_OF_A_PART for rows in sizes.values())]))
    answer = ask("/digests", {**query, "parts": parts})
    served = _tables(answer, parts)
    missing = sizes.keys() - served.keys()
    if missing:
        raise CheckpointError(f"the server has no table {sorted(missing)[0]!r}, which {root} has")
    if answer.get("state") != chain[-1].state:
        raise _GoneOnError(
            f"the server answers from state {answer.get('state')!s:.100} of version "
            f"{answer.get('version')!s:.100}, {chain[-1].path} leads to state {chain[-1].state}: "
            "it follows another run, or has gone on meanwhile"
        )
    return [_compared(chain, name, of, parts, ask, query) for name, of in served.items()]


def _rows(chain: Sequence[Entry], name: str) -> int:
    """Return the approximate number of rows of a table."""
    return int(total(chain[0].manifest["tables"].get(name, {"rows": 0}), "rows"))


def _tables(answer: Any, parts: int) -> dict[str, TableDigest]:
    tables = answer.get("tables") if isinstance(answer, dict) else None
    if not isinstance(tables, dict):
        raise ValueError("the server's /digests has no tables")
    digests = {str(name): TableDigest.from_json(each) for name, each in tables.items()}
    if any(len(each.rows) != parts for each in digests.values()):
        raise ValueError(f"the server's /digests has not {parts} parts")
    return digests


def _compared(
    chain: Sequence[Entry],
    name: str,
    served: TableDigest,
    parts: int,
    ask: AskServer,
    query: Mapping[str, Any],
) -> LiveTable:
    saved = table_digest_at(chain, name, served.numbers, parts)
    differ = saved.differing_parts(served)[:_MOST_NAMED_PARTS]
    wrong: dict[int, str] = {}
    if differ:
        expected = row_digests_at(chain, name, served.numbers, differ, parts)
        actual: dict[int, int] = {}
        for part in differ:
            answer = ask("/digests", {**query, "table": name, "part": part, "parts": parts})
            if not isinstance(answer, dict) or answer.get("state") != chain[-1].state:
                return LiveTable(name, saved, served, {})  # it has gone on: no row can be named
            actual.update(_pairs(answer))
        for key in sorted(expected.keys() | actual.keys()):
            if key not in actual:
                wrong[key] = "the server has no such row"
            elif key not in expected:
                wrong[key] = "only the server has such a row"
            elif expected[key] != actual[key]:
                at_server, by_file = to_text(actual[key]), to_text(expected[key])
                wrong[key] = f"digest {at_server} at the server, {by_file} by file"
    return LiveTable(name, saved, served, wrong)


def _pairs(answer: dict[str, Any]) -> dict[int, int]:
    try:
        return RowDigests.rows_of_json(answer)
    except ValueError:
        raise ValueError("the server's /digests has no rows") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects, because the token must not be sent to another server."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, so that urllib raises an error for a redirect."""


def http_client(address: str, token: str | None = None, seconds: float = 600.0) -> AskServer:
    """Return a function that sends a request to a server by HTTP and returns the answer.

    Args:
        address: 'http://host:port' or 'https://host:port'.
        token: bearer token. Default: None.
        seconds: seconds to wait for an answer. Default: 600.

    Raises:
        ValueError: `address` is not an HTTP address.

    Example:
        >>> http_client("localhost")
        Traceback (most recent call last):
        ValueError: address must begin with http:// or https://, got 'localhost'
    """
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address must begin with http:// or https://, got {address!r}")
    opener = urllib.request.build_opener(_NoRedirect)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(path: str, query: Mapping[str, Any]) -> Any:
        url = f"{address.rstrip('/')}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers=headers)
        try:
            with opener.open(request, timeout=seconds) as answer:
                text = answer.read(_MOST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            reason = error.read(1000).decode(errors="replace")
            kind = ServerBusyError if error.code in (429, 503) else OSError
            raise kind(f"{url} answers {error.code}: {reason}") from None
        except urllib.error.URLError as error:
            raise OSError(f"{url} does not answer: {error.reason}") from None
        except http.client.HTTPException as error:
            raise OSError(f"{url} does not answer in whole: {error!r}") from None
        if len(text) > _MOST_ANSWER:
            raise ValueError(f"the answer of {url} has over {_MOST_ANSWER} bytes")
        return json.loads(text)

    return ask
