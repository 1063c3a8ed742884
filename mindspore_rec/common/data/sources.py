# SPDX-License-Identifier: Apache-2.0
"""Find the files of a source: paths, globs, folders with hive partitions, URIs, file systems."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

__all__ = [
    "DataFile",
    "find_files",
    "is_frame",
    "is_whole_number",
    "local_files",
    "partition_types",
]

_FORMATS = {
    "parquet": "parquet",
    "pq": "parquet",
    "parq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "arrow": "ipc",
    "arrows": "ipc",
    "feather": "ipc",
    "ipc": "ipc",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
}
_CODECS = {"gz": "gzip", "zst": "zstd", "zstd": "zstd", "bz2": "bz2", "lz4": "lz4"}
_MAGIC = {b"PAR1": "parquet", b"ARRO": "ipc"}
_URI = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+(://|::)")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class DataFile:
    """One file of a source.

    Args:
        name: name of the file in error messages.
        path: path of the file in `filesystem`.
        filesystem: the file system that contains the file.
        size: size of the file in bytes.
        format: "parquet", "csv", "ipc" or "jsonl".
        codec: name of the file's compression. Default: None.
        partition: dict from the name of a hive partition in the file's path to the partition's
            value, a text.
    """

    name: str
    path: str
    filesystem: pafs.FileSystem
    size: int
    format: str
    codec: str | None = None
    partition: dict[str, str | None] = field(default_factory=dict)

    def stamp(self) -> tuple[int, int]:
        """Return the file's present size in bytes and time of last change in nanoseconds."""
        info = self.filesystem.get_file_info(self.path)
        return info.size or 0, info.mtime_ns or 0

    def open(self) -> pa.NativeFile:
        """Open the file for random access."""
        return self.filesystem.open_input_file(self.path)

    def stream(self) -> pa.NativeFile:
        """Open the file's decompressed bytes from the beginning."""
        return self.filesystem.open_input_stream(self.path, compression=self.codec)


def is_frame(source: Any) -> bool:
    """Return True for rows in memory: a data frame, or an object of Arrow's C interface."""
    return hasattr(source, "__arrow_c_stream__") or type(source).__name__ == "DataFrame"


def find_files(source: Any, format: str | None, filesystem: Any) -> list[DataFile]:
    """Return the files of paths, globs, folders or URIs; files of one folder or glob are sorted.

    Args:
        source: a path, glob, folder or URI, or a sequence of them.
        format: name of the format. Default: None, which means that the suffix of each file's name
            determines the format.
        filesystem: file system of pyarrow or fsspec. Default: None, which means the file system of
            a URI, or local files for other paths.

    Raises:
        FileNotFoundError: no file matches `source`.
        TypeError, ValueError: the source is of another type, or a file's format is unknown.
    """
    each_source = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(each_source, Sequence) or not all(
        isinstance(each, (str, os.PathLike)) for each in each_source
    ):
        raise TypeError(
            "source must be a path, a list of paths, or a data frame with __arrow_c_stream__, got "
            f"{type(source).__name__}"
        )
    if not each_source:
        raise ValueError("source must have at least one path, got an empty list")
    files = []
    for each in each_source:
        files += _files_of(os.fspath(each), format, filesystem)
    kinds = {each.format: each.name for each in reversed(files)}
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise ValueError(
            f"all files must have one format, got {one} in {first} and {other} in {second}: name "
            "the files of one format, as in 'folder/*.parquet'"
        )
    names = {tuple(sorted(each.partition)) for each in files}
    if len(names) > 1:
        shown = " and ".join(str(list(each)) for each in sorted(names)[:2])
        raise ValueError(f"all files of {source} must have the same partitions, got {shown}")
    return files


def _files_of(text: str, format: str | None, filesystem: Any) -> list[DataFile]:
    system, path, prefix = _system_of(text, filesystem)
    # If a file has exactly this name, the name is not a glob, even if it contains wildcards.
    info = system.get_file_info([path])[0]
    if info.type == pafs.FileType.NotFound and _WILD.search(path):
        infos, base = _matches(system, path)
        if not re.search(r"(^|/)[._]", path[len(base) :]):
            infos = [each for each in infos if not _hidden(_plain(each.path), base)]
        if not infos:
            raise FileNotFoundError(f"no file matches {text}")
    elif info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(f"there is no file or folder {text}")
    elif info.type == pafs.FileType.Directory:
        infos = [each for each in _listed(system, path) if not _hidden(each.path, path)]
        if format is None:
            infos = [each for each in infos if _format_of(each.path)[0]] or infos
        if not infos:
            raise FileNotFoundError(f"there is no file in the folder {text}")
    else:
        infos = [info]
    made = []
    for each in sorted(infos, key=lambda one: one.path):
        name = prefix + each.path
        if each.size == 0:
            raise ValueError(f"{name} is empty: it has 0 bytes")
        kind, codec = _format_of(each.path)
        kind = format or kind or _sniffed(system, each.path, name)
        if codec and kind == "parquet":
            codec = None  # Parquet files compress their own pages
        made.append(
            DataFile(name, each.path, system, each.size or 0, kind, codec, _hive(each.path))
        )
    return made


def local_files(source: str) -> list[str]:
    """Return the local files (also hidden files) of a path, glob or folder; [] for a remote URI."""
    if _URI.match(source) and not source.startswith("file://"):
        return []
    system, path, _ = _system_of(source, None)
    info = system.get_file_info([path])[0]
    if info.type == pafs.FileType.Directory:
        return [each.path for each in _listed(system, path)]
    if info.type == pafs.FileType.NotFound and _WILD.search(path):
        return [each.path for each in _matches(system, path)[0]]
    return [path] if info.type == pafs.FileType.File else []


def _matches(system: pafs.FileSystem, path: str) -> tuple[list[pafs.FileInfo], str]:
    """Return the files that match a glob, and the folder in front of the first wildcard."""
    base = path[: _WILD.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
    listed = _listed(system, base or ("/" if path.startswith("/") else "."))
    wanted = _glob(path)
    return [each for each in listed if wanted.match(_plain(each.path))], base


def _system_of(text: str, filesystem: Any) -> tuple[pafs.FileSystem, str, str]:
    """Return a file system, the path in the file system, and the prefix for error messages."""
    if filesystem is not None:
        if isinstance(filesystem, pafs.FileSystem):
            return filesystem, _without_scheme(text), ""
        if not hasattr(filesystem, "_open"):
            raise TypeError(
                "filesystem must be a file system of pyarrow.fs or fsspec, got "
                f"{type(filesystem).__name__}"
            )
        system = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
        return system, filesystem._strip_protocol(text), ""
    if not _URI.match(text):
        return pafs.LocalFileSystem(), os.path.expanduser(text).rstrip("/") or "/", ""
    head, mark, options = text.partition("?")
    # A question mark may be part of a glob. Text after a question mark is a URI's options only if
    # it has the form name=value.
    if not re.fullmatch(r"[\w]+=[^/]*", options):
        head, mark, options = text, "", ""
    wild = _WILD.search(head)
    whole = head[: wild.start()].rpartition("/")[0] if wild else head
    scheme = text.partition("://")[0]
    try:
        system, path = pafs.FileSystem.from_uri(whole + mark + options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return _fsspec_of(text, scheme, error)
    if wild:
        path = f"{path.rstrip('/')}{head[len(whole) :]}"
    return system, path.rstrip("/"), "" if scheme == "file" else f"{scheme}://"


def _fsspec_of(text: str, scheme: str, error: Exception) -> tuple[pafs.FileSystem, str, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ValueError(
            f"{text}: pyarrow has no file system for {scheme}://, and fsspec is not installed: "
            "pip install fsspec"
        ) from error
    try:
        system, path = url_to_fs(text)
    except (ImportError, ValueError) as other:
        raise ValueError(f"{text} cannot be opened: {other}") from other
    return pafs.PyFileSystem(pafs.FSSpecHandler(system)), path, f"{scheme}://"


def _without_scheme(text: str) -> str:
    return text.partition("://")[2] if _URI.match(text) else text


def _listed(system: pafs.FileSystem, base: str) -> list[pafs.FileInfo]:
    infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    return [each for each in infos if each.type == pafs.FileType.File]


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _hidden(path: str, base: str) -> bool:
    inside = path[len(base) :].lstrip("/").split("/")
    return any(each.startswith(("_", ".")) for each in inside if "=" not in each)


def _glob(path: str) -> re.Pattern[str]:
    """Return a glob's pattern: * and ? match within a folder, ** also matches across folders."""
    made, at, path = "", 0, _plain(path)
    while at < len(path):
        if path.startswith("**/", at):
            made, at = made + "(?:.*/)?", at + 3
        elif path.startswith("**", at):
            made, at = made + ".*", at + 2
        elif path[at] == "[" and "]" in path[at + 1 :]:
            end = path.index("]", at + 1)
            inside = path[at + 1 : end].replace("\\", "\\\\")
            made += f"[{'^' + inside[1:] if inside.startswith('!') else inside}]"
            at = end + 1
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(path[at], re.escape(path[at]))
            at += 1
    return re.compile(made + r"\Z")


def _format_of(path: str) -> tuple[str | None, str | None]:
    endings = path.rpartition("/")[2].lower().split(".")[1:]
    codec = _CODECS.get(endings[-1]) if endings else None
    if codec:
        endings = endings[:-1]
    return (_FORMATS.get(endings[-1]) if endings else None), codec


def _sniffed(system: pafs.FileSystem, path: str, name: str) -> str:
    with system.open_input_stream(path) as file:
        kind = _MAGIC.get(file.read(4))
    if kind is None:
        raise ValueError(
            f"the format of {name} is not known by its name: say format='parquet', 'csv', 'jsonl' "
            "or 'ipc'"
        )
    return kind


def _hive(path: str) -> dict[str, str | None]:
    """Return the partitions in a path, such as ``logs/day=3/part.parquet``."""
    partition: dict[str, str | None] = {}
    for each in path.split("/")[:-1]:
        name, equals, value = each.partition("=")
        if equals:
            text = unquote(value)
            partition[unquote(name)] = None if text == "__HIVE_DEFAULT_PARTITION__" else text
    return partition


def is_whole_number(text: str) -> bool:
    """Return True for the text of an int64 number, such as a partition's value in a path.

    Example:
        >>> [is_whole_number(text) for text in ("-7", "07", "--1", "a")]
        [True, False, False, False]
    """
    return re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text) is not None


def partition_types(files: Sequence[DataFile]) -> dict[str, pa.DataType]:
    """Return the types of the partitions: int64 if all values are integers, otherwise string."""
    types: dict[str, pa.DataType] = {}
    for name in files[0].partition if files else ():
        values = [each.partition[name] for each in files if each.partition[name] is not None]
        whole = all(is_whole_number(str(value)) for value in values)
        types[name] = pa.int64() if whole and values else pa.string()
    return types
