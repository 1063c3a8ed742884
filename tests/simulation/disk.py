# SPDX-License-Identifier: Apache-2.0
"""A directory as a disk that fails, and that forgets in a power loss what was not synced.

Files are bytes in memory: no call of the system is made, which would be most of the time of a
schedule. Functions of `os`, `open` and `pyarrow.OSFile` are wrapped for paths
of the disk. In a simulated thread each is a yield point before which the process may be killed or
at which the operation may fail. The disk keeps what it has for certain: a file's contents as of its
last fsync, a directory's names as of its own. Of the rest a power loss keeps what the seed says:

* of a file that changed since its fsync the old contents, the new ones, the beginning of the new
  ones, or as many zeros;
* of a directory the first so many changes of names, or, as some file systems do, any of them.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.simulation.contents import ArrowFile
from tests.simulation.scheduler import Died, Scheduler, current_task

__all__ = ["Disk", "FileLock", "make_directories"]

_real_open = builtins.open
_real = {
    name: getattr(os, name)
    for name in (
        "open", "close", "fsync", "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link",
        "chmod", "stat", "lstat", "fstat", "scandir", "listdir", "truncate",
    )
}  # fmt: skip
_RealFile = pa.OSFile

_NEVER_FAIL = frozenset(("stat", "lstat", "chmod", "close"))
_FIRST_DESCRIPTOR = 1 << 20  # of files on the disk, beyond those of the system


class _Node:
    """A file or folder: its number, its kind and permissions, the time of its last change."""

    mode = 0
    number = changed_at = 0

    def size(self) -> int:
        """Return the number of bytes."""
        return 0


class _File(_Node):
    """Contents now and as of the last fsync, and whether they have changed since."""

    mode = stat.S_IFREG | 0o644

    def __init__(self) -> None:
        self.data = b""
        self.synced: bytes | None = None  # contents as of the last fsync
        self.changed = True  # since then

    def size(self) -> int:
        return len(self.data)


class _Directory(_Node):
    """Names in a directory, now and as of its last sync."""

    mode = stat.S_IFDIR | 0o755

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.synced: dict[str, _Node] = {}
        self.changes: list[dict[str, _Node | None]] = []  # since then

    def set(self, changes: dict[str, _Node | None]) -> None:
        """Change several names at once; None removes one."""
        self.changes.append(changes)
        for name, node in changes.items():
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node


class Disk:
    """Disk of a simulation.

    Args:
        root: its path, which is not looked at.
        scheduler: whose yield points operations are.

    Attributes:
        fails: function of an operation and a path that returns an error number, or 0; called at
            each operation that can fail.
        operations: how many there were.
        forgets_order: whether a power loss may keep later changes of names without earlier ones.
    """

    def __init__(self, root: Path, scheduler: Scheduler) -> None:
        self.root = str(root)
        self._prefix = self.root + "/"
        self._scheduler = scheduler
        self._top = _Directory()
        self._descriptors: dict[int, tuple[str, _Node]] = {}
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._changes = 0
        self.locks: dict[str, FileLock] = {}
        self.fails: Callable[[str, str], int] = lambda operation, path: 0
        self.operations = 0
        self.forgets_order = False
        self._paths: dict[str, tuple[str, ...]] = {}
        self._touch(self._top)

    # ---- operations

    def step(self, operation: str, path: str) -> None:
        """Yield point of an operation, which may fail; nothing outside of simulated threads."""
        task = current_task()
        if task is None:
            return
        self.operations += 1
        scheduler = self._scheduler
        if scheduler.keep_trace:
            scheduler.step(f"{operation} {self._shown(path)}")
        else:
            scheduler.step(operation)
        if operation in _NEVER_FAIL:
            return
        number = self.fails(operation, path)
        if number:
            error = OSError(number, os.strerror(number), path)
            task.process.faults.append(error)
            scheduler.note(f"FAILS: {operation} {self._shown(path)}: {os.strerror(number)}")
            raise error

    def _shown(self, path: str) -> str:
        return path[len(self._prefix) :] or "."

    def holds(self, path: Any) -> str | None:
        """Return a path on this disk as a text; None for one elsewhere."""
        if type(path) is not str:
            if isinstance(path, int):
                return None
            path = os.fspath(path)
        if isinstance(path, str) and (path.startswith(self._prefix) or path == self.root):
            return path
        return None

    def node(self, path: str) -> Any:
        """Return the file or directory at a path, or None."""
        node: Any = self._top
        names = self._paths.get(path)
        if names is None:
            names = tuple(name for name in path[len(self._prefix) :].split("/") if name)
            self._paths[path] = names
        for name in names:
            if type(node) is not _Directory:
                return None
            node = node.names.get(name)
        return node

    def _found(self, path: str) -> Any:
        node = self.node(path)
        if node is None:
            raise self._error(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        node = self._top if above == self.root else self._found(above)
        if not isinstance(node, _Directory):
            raise self._error(errno.ENOTDIR, path)
        return node, name

    @staticmethod
    def _error(number: int, path: str) -> OSError:
        return OSError(number, os.strerror(number), path)

    def _touch(self, node: _Node) -> None:
        """Give a node its time of change, and a number if it is new: none is used twice."""
        self._changes += 1
        node.changed_at = self._changes
        if not node.number:
            node.number = self._changes

    def _name(self, path: str, node: _Node | None) -> None:
        """Give a name to a node, or remove the name."""
        parent, name = self._parent(path)
        parent.set({name: node})
        self._touch(parent)

    def files(self) -> dict[str, bytes]:
        """Return the contents of all files by their paths on the disk."""
        found: dict[str, bytes] = {}

        def look(directory: _Directory, above: str) -> None:
            for name, node in directory.names.items():
                if isinstance(node, _Directory):
                    look(node, f"{above}{name}/")
                elif isinstance(node, _File):
                    found[f"{above}{name}"] = node.data

        look(self._top, "")
        return found

    # ---- power

    def lose_power(self, chance: random.Random) -> None:
        """Forget what is not on the disk, as chance has it."""
        self._top = self._after(self._top, chance, {})

    def _after(self, node: Any, chance: random.Random, kept: dict[Any, Any]) -> Any:
        if node in kept:
            return kept[node]
        if isinstance(node, _File):
            new = kept[node] = _File()
            new.data = new.synced = _torn(node, chance)
            new.changed = False
            self._touch(new)
            return new
        names = dict(node.synced)
        changes = node.changes
        if self.forgets_order:
            changes = [each for each in changes if chance.random() < 0.5]
        else:
            changes = changes[: chance.randint(0, len(changes))]
        for each in changes:
            for name, child in each.items():
                if child is None:
                    names.pop(name, None)
                else:
                    names[name] = child
        # A directory may be renamed without its old name having gone, where order is forgotten.
        made = kept[node] = _Directory()
        self._touch(made)
        seen: set[int] = set()
        for name, child in names.items():
            if isinstance(child, _Directory):
                if id(child) in seen:
                    continue
                seen.add(id(child))
            made.names[name] = self._after(child, chance, kept)
        made.synced = dict(made.names)
        return made

    def process_died(self) -> None:
        """Close what a process that was killed had open, of which there is only one that writes."""
        for lock in list(self.locks.values()):
            if lock.process.dying:
                lock.drop()

    # ---- wrapping

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Wrap the functions."""
        before_rmtree = shutil._use_fd_functions  # type: ignore[attr-defined]
        try:
            for name in _real:
                setattr(os, name, getattr(self, f"_{name}"))
            shutil._use_fd_functions = False  # type: ignore[attr-defined]
            builtins.open = io.open = self._open_file  # type: ignore[assignment]
            pa.OSFile = self._arrow_file
            yield
        finally:
            for name, function in _real.items():
                setattr(os, name, function)
            shutil._use_fd_functions = before_rmtree  # type: ignore[attr-defined]
            builtins.open = io.open = _real_open
            pa.OSFile = _RealFile
            self._descriptors.clear()

    def descriptor(self, path: str, node: _Node) -> int:
        """Return a new descriptor of a file or directory."""
        self._next_descriptor += 1
        self._descriptors[self._next_descriptor] = path, node
        return self._next_descriptor

    def closed(self, descriptor: int) -> None:
        """Forget a descriptor."""
        self._descriptors.pop(descriptor, None)

    def _open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        text = self.holds(path)
        if text is None:
            return int(_real["open"](path, flags, mode, **options))
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), "use open()"
        self.step("open", text)
        return self.descriptor(text, self._found(text))

    def _close(self, descriptor: int) -> None:
        if self._descriptors.pop(descriptor, None) is None:
            _real["close"](descriptor)

    def _fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        opened = self._descriptors.get(descriptor)
        if opened is None:
            _real["fsync"](descriptor)
            return
        path, node = opened
        self.step("fsync", path)
        if isinstance(node, _Directory):
            node.synced, node.changes = dict(node.names), []
        elif isinstance(node, _File):
            node.synced, node.changed = node.data, False

    def _mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        text = self.holds(path)
        if text is None:
            _real["mkdir"](path, mode, **options)
            return
        self.step("mkdir", text)
        if self.node(text) is not None:
            raise self._error(errno.EEXIST, text)
        made = _Directory()
        self._touch(made)
        self._name(text, made)

    def _rmdir(self, path: Any, **options: Any) -> None:
        text = self.holds(path)
        if text is None:
            _real["rmdir"](path, **options)
            return
        self.step("rmdir", text)
        node = self._found(text)
        if not isinstance(node, _Directory):
            raise self._error(errno.ENOTDIR, text)
        if node.names:
            raise self._error(errno.ENOTEMPTY, text)
        self._name(text, None)

    def _unlink(self, path: Any, **options: Any) -> None:
        text = self.holds(path)
        if text is None:
            _real["unlink"](path, **options)
            return
        self.step("unlink", text)
        if isinstance(self._found(text), _Directory):
            raise self._error(errno.EISDIR, text)
        self._name(text, None)

    _remove = _unlink

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        texts = self.holds(source), self.holds(target)
        if texts[0] is None or texts[1] is None:
            _real["rename"](source, target, **options)
            return
        self.step("rename", f"{texts[0]} {os.path.basename(texts[1])}")
        node = self._found(texts[0])
        (before, old), (after, new) = self._parent(texts[0]), self._parent(texts[1])
        there = after.names.get(new)
        if isinstance(node, _Directory):
            if there is not None and not isinstance(there, _Directory):
                raise self._error(errno.ENOTDIR, texts[1])
            if isinstance(there, _Directory) and there.names and there is not node:
                raise self._error(errno.ENOTEMPTY, texts[1])
        elif isinstance(there, _Directory):
            raise self._error(errno.EISDIR, texts[1])
        if there is node:
            return
        if before is after:
            before.set({old: None, new: node})
        else:
            before.set({old: None})
            after.set({new: node})
            self._touch(after)
        self._touch(before)
        self._touch(node)

    _replace = _rename

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        texts = self.holds(source), self.holds(target)
        if texts[0] is None or texts[1] is None:
            _real["link"](source, target, **options)
            return
        self.step("link", texts[1])
        node = self._found(texts[0])
        if self.node(texts[1]) is not None:
            raise self._error(errno.EEXIST, texts[1])
        self._name(texts[1], node)
        self._touch(node)

    def change(self, node: _File, data: bytes) -> None:
        """Give a file other contents."""
        node.data, node.changed = data, True
        self._touch(node)

    def _truncate(self, path: Any, length: int) -> None:
        text = self.holds(path)
        if text is None:
            _real["truncate"](path, length)
            return
        self.step("write", text)
        node = self._found(text)
        self.change(node, node.data[:length].ljust(length, b"\0"))

    def _chmod(self, path: Any, mode: int, **options: Any) -> None:
        text = self.holds(path)
        if text is None:
            _real["chmod"](path, mode, **options)
            return
        self.step("chmod", text)
        node = self._found(text)
        node.mode = stat.S_IFMT(node.mode) | mode
        self._touch(node)

    def _stat(self, path: Any, **options: Any) -> Any:
        text = self.holds(path)
        if text is None:
            return _real["stat"](path, **options)
        self.step("stat", text)
        return self.status(text)

    def _lstat(self, path: Any, **options: Any) -> Any:
        text = self.holds(path)
        if text is None:
            return _real["lstat"](path, **options)
        self.step("lstat", text)
        return self.status(text)

    def _fstat(self, descriptor: int) -> Any:
        opened = self._descriptors.get(descriptor)
        return _real["fstat"](descriptor) if opened is None else self._status(opened[1])

    def status(self, path: str) -> os.stat_result:
        """Return what `os.stat` says of a path."""
        return self._status(self._found(path))

    @staticmethod
    def _status(node: Any) -> os.stat_result:
        at = node.changed_at
        return os.stat_result(
            (node.mode, node.number, 1, 1, 0, 0, node.size(), 0, 0, 0),
            {"st_mtime_ns": at, "st_ctime_ns": at, "st_mtime": at * 1e-9, "st_ctime": at * 1e-9},
        )

    def _names(self, path: str) -> list[tuple[str, _Node]]:
        self.step("list", path)
        node = self._found(path)
        if not isinstance(node, _Directory):
            raise self._error(errno.ENOTDIR, path)
        names = sorted(node.names.items(), key=lambda each: each[0])
        self._scheduler.random.shuffle(names)
        return names

    def _listdir(self, path: Any = ".") -> list[str]:
        text = self.holds(path)
        if text is None:
            found: list[str] = _real["listdir"](path)
            return found
        return [name for name, _ in self._names(text)]

    def _scandir(self, path: Any = ".") -> Any:
        text = self.holds(path)
        if text is None:
            return _real["scandir"](path)
        return _Scanned(_Entry(self, text, name, node) for name, node in self._names(text))

    def _open_file(self, path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        text = self.holds(path)
        if text is None:
            return _real_open(path, mode, *arguments, **options)
        if not set(mode) & set("wax+"):
            self.step("open", text)
            file = io.BytesIO(self._data(text))
            return file if "b" in mode else io.TextIOWrapper(file, encoding="utf-8")
        assert "+" not in mode
        self.step("open to write", text)
        return _Writing(self, text, self._file_to_write(text, mode), "b" in mode)

    def _data(self, path: str) -> bytes:
        node = self._found(path)
        if not isinstance(node, _File):
            raise self._error(errno.EISDIR, path)
        return node.data

    def _file_to_write(self, path: str, mode: str) -> _File:
        node = self.node(path)
        if isinstance(node, _Directory):
            raise self._error(errno.EISDIR, path)
        if node is not None and "x" in mode:
            raise self._error(errno.EEXIST, path)
        if node is None:
            node = _File()
            self._touch(node)
            self._name(path, node)
        elif "w" in mode:
            self.change(node, b"")
        return node

    @contextmanager
    def _arrow_written(self, path: str) -> Iterator[Any]:
        self.step("open to write", path)
        node, sink = self._file_to_write(path, "w"), pa.BufferOutputStream()
        try:
            yield sink
            self.step("write", path)
        except BaseException:
            data = sink.getvalue().to_pybytes()
            self.change(node, data[: len(data) // 2])
            raise
        self.change(node, sink.getvalue().to_pybytes())

    def _arrow_file(self, path: Any, mode: str = "r", **options: Any) -> Any:
        text = self.holds(path)
        if text is None:
            return _RealFile(path, mode, **options)
        if "w" in mode:
            return self._arrow_written(text)
        self.step("open", text)
        return ArrowFile(self._data(text))


class _Entry:
    """Entry of a directory, as `os.scandir` returns them: its kind is as of then."""

    def __init__(self, disk: Disk, above: str, name: str, node: _Node) -> None:
        self._disk, self.name, self.path, self._node = disk, name, f"{above}/{name}", node

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory."""
        return isinstance(self._node, _Directory)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return isinstance(self._node, _File)

    def is_symlink(self) -> bool:
        """Return that it is none: the disk has none."""
        return False

    def inode(self) -> int:
        """Return its number."""
        return self._node.number

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return what `os.stat` says now, which is no yield point."""
        return self._disk.status(self.path)


class _Scanned(list[Any]):
    """Entries of a directory, as `os.scandir` returns them."""

    def __enter__(self) -> _Scanned:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        """Do nothing."""


class _Writing:
    """File that is written to, at its end; each write is a step, which may fail halfway."""

    def __init__(self, disk: Disk, path: str, node: _File, binary: bool) -> None:
        self._disk, self._path, self._node, self._binary = disk, path, node, binary
        self._descriptor = disk.descriptor(path, node)

    def write(self, data: Any) -> int:
        """Write data, or the first half of it."""
        written = bytes(data) if self._binary else data.encode("utf-8")
        try:
            self._disk.step("write", self._path)
        except (OSError, Died):
            self._disk.change(self._node, self._node.data + written[: len(written) // 2])
            raise
        self._disk.change(self._node, self._node.data + written)
        return len(data)

    def truncate(self, length: int) -> None:
        """Cut it off."""
        self._disk.change(self._node, self._node.data[:length].ljust(length, b"\0"))

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close it."""
        self._disk.closed(self._descriptor)

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FileLock:
    """Stands for the native lock of a directory, which ends with its process."""

    def __init__(self, disk: Disk, path: Any) -> None:
        self._disk, self._path = disk, os.fspath(path)
        task = current_task()
        assert task is not None
        self.process = task.process
        disk.step("lock", self._path)
        if self._path in disk.locks:
            raise OSError(errno.EBUSY, "the lock is taken", self._path)
        disk.locks[self._path] = self

    def close(self) -> None:
        """Give it back."""
        self._disk.step("close", self._path)
        self.drop()

    def drop(self) -> None:
        """Give it back, which is no yield point."""
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


def make_directories(path: Any) -> None:
    """Stand for the native function: make a directory, and sync the one above if it is new."""
    text = os.fspath(path)
    if not Path(text).is_dir():
        os.mkdir(text)
        above = os.path.dirname(text)
        descriptor = os.open(above, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _torn(node: _File, chance: random.Random) -> bytes:
    """Return contents of a file after a power loss."""
    if not node.changed:
        return node.synced or b""
    before, now = node.synced or b"", node.data
    # What was synced stays where more was appended.
    kept = before if now.startswith(before) else b""
    added = now[len(kept) :]
    torn = added[: chance.randint(0, len(added))]
    return chance.choice((before, now, kept + torn, kept + bytes(len(added))))
