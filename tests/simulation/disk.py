# SPDX-License-Identifier: Apache-2.0
"""A directory as a disk that fails, and that forgets in a power loss what was not synced.

Files are real ones in a directory in memory, so that Arrow and others read them as ever. Functions
of `os`, `open` and `pyarrow.OSFile` are wrapped for simulated threads: each is a yield point before
which the process may be killed or at which the operation may fail, and a model keeps what the disk
has for certain: a file's contents as of its last fsync, a directory's names as of its own. Of the
rest a power loss keeps what the seed says:

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.simulation.scheduler import Died, Scheduler, current_task

__all__ = ["Disk", "FileLock", "make_directories"]

_real_open = builtins.open
_real = {
    name: getattr(os, name)
    for name in (
        "open", "close", "fsync", "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link",
        "chmod", "stat", "lstat", "scandir", "listdir", "truncate",
    )
}  # fmt: skip
_RealFile = pa.OSFile
_memory_map = pa.memory_map

_NEED_SPACE = ("open to write", "write", "mkdir", "link", "fsync")
_NEVER_FAIL = ("stat", "lstat", "chmod", "close")


class _File:
    """Synced contents of a file, and whether it has changed since."""

    def __init__(self) -> None:
        self.synced: bytes | None = None  # contents as of the last fsync
        self.changed = True  # since then
        self.last: bytes | None = None  # contents when its last name was removed


class _Directory:
    """Names in a directory, now and as of its last sync."""

    def __init__(self) -> None:
        self.names: dict[str, _File | _Directory] = {}
        self.synced: dict[str, _File | _Directory] = {}
        self.changes: list[dict[str, _File | _Directory | None]] = []  # since then

    def set(self, changes: dict[str, _File | _Directory | None]) -> None:
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
        root: an empty directory, in memory.
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
        self._descriptors: dict[int, str] = {}
        self.locks: dict[str, FileLock] = {}
        self.fails: Callable[[str, str], int] = lambda operation, path: 0
        self.operations = 0
        self._off = False
        self.forgets_order = False

    # ---- operations

    def step(self, operation: str, path: str) -> None:
        """Yield point of an operation, which may fail."""
        self.operations += 1
        shown = path[len(self._prefix) :] or "."
        self._scheduler.step(f"{operation} {shown}")
        if operation in _NEVER_FAIL:
            return
        number = self.fails(operation, path)
        if number:
            task = current_task()
            assert task is not None
            error = OSError(number, os.strerror(number), path)
            task.process.faults.append(error)
            self._scheduler.note(f"FAILS: {operation} {shown}: {os.strerror(number)}")
            raise error

    def holds(self, path: Any) -> str | None:
        """Return a path on this disk as a text; None for one elsewhere, or in a real thread."""
        if isinstance(path, int) or self._off or current_task() is None:
            return None
        text = os.fspath(path)
        if isinstance(text, str) and (text.startswith(self._prefix) or text == self.root):
            return text
        return None

    def node(self, path: str) -> Any:
        """Return the file or directory at a path, or None."""
        node: Any = self._top
        for name in path[len(self._prefix) :].split("/"):
            if name:
                node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        node = self._top if above == self.root else self.node(above)
        assert isinstance(node, _Directory)
        return node, name

    def synced(self, path: str) -> None:
        """Note that a file or directory is on the disk as it is."""
        node = self._top if path == self.root else self.node(path)
        if isinstance(node, _Directory):
            node.synced, node.changes = dict(node.names), []
        elif isinstance(node, _File) and node.changed:
            with _real_open(path, "rb") as file:
                node.synced = file.read()
            node.changed = False

    def written(self, path: str) -> None:
        """Note that a file was made or changed."""
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if isinstance(node, _File):
            node.changed = True
        else:
            parent.set({name: _File()})

    # ---- power

    def lose_power(self, chance: random.Random) -> None:
        """Forget what is not on the disk, as chance has it."""
        contents: dict[_File, bytes] = {}
        self._read(self._top, self.root, contents)
        kept: dict[Any, Any] = {}
        new = self._after(self._top, contents, chance, kept)
        self._off = True
        shutil.rmtree(self.root)
        _real["mkdir"](self.root)
        self._write(new, self.root, {})
        self._off = False
        self._top = new

    def _read(self, node: _Directory, path: str, contents: dict[_File, bytes]) -> None:
        for name, each in node.names.items():
            if isinstance(each, _Directory):
                self._read(each, f"{path}/{name}", contents)
            elif each not in contents:
                with _real_open(f"{path}/{name}", "rb") as file:
                    contents[each] = file.read()

    def _after(
        self, node: Any, contents: dict[_File, bytes], chance: random.Random, kept: dict[Any, Any]
    ) -> Any:
        if node in kept:
            return kept[node]
        if isinstance(node, _File):
            new = kept[node] = _File()
            now = contents.get(node, node.last if node.last is not None else b"")
            new.synced, new.changed = _torn(node, now, chance), False
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
        seen: set[int] = set()
        for name, child in names.items():
            if isinstance(child, _Directory):
                if id(child) in seen:
                    continue
                seen.add(id(child))
            made.names[name] = self._after(child, contents, chance, kept)
        made.synced = dict(made.names)
        return made

    def _write(self, node: _Directory, path: str, made: dict[_File, str]) -> None:
        for name, each in node.names.items():
            target = f"{path}/{name}"
            if isinstance(each, _Directory):
                _real["mkdir"](target)
                self._write(each, target, made)
            elif each in made:
                _real["link"](made[each], target)
            else:
                made[each] = target
                with _real_open(target, "wb") as file:
                    file.write(each.synced or b"")

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
            pa.OSFile, pa.memory_map = self._arrow_file, self._mapped
            yield
        finally:
            for name, function in _real.items():
                setattr(os, name, function)
            shutil._use_fd_functions = before_rmtree  # type: ignore[attr-defined]
            builtins.open = io.open = _real_open
            pa.OSFile, pa.memory_map = _RealFile, _memory_map
            for descriptor in self._descriptors:
                _real["close"](descriptor)
            self._descriptors.clear()

    def _open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        text = self.holds(path)
        if text is None:
            return int(_real["open"](path, flags, mode, **options))
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), "use open()"
        self.step("open", text)
        descriptor = int(_real["open"](path, flags, mode, **options))
        self._descriptors[descriptor] = text
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        _real["close"](descriptor)

    def _fsync(self, file: Any) -> None:
        if current_task() is None:
            _real["fsync"](file)
            return
        descriptor = file if isinstance(file, int) else file.fileno()
        path = self._descriptors.get(descriptor)
        if path is None:
            _real["fsync"](descriptor)
            return
        self.step("fsync", path)
        self.synced(path)

    def _mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        text = self.holds(path)
        if text is not None:
            self.step("mkdir", text)
        _real["mkdir"](path, mode, **options)
        if text is not None:
            parent, name = self._parent(text)
            parent.set({name: _Directory()})

    def _rmdir(self, path: Any, **options: Any) -> None:
        text = self.holds(path)
        if text is not None:
            self.step("rmdir", text)
        _real["rmdir"](path, **options)
        if text is not None:
            parent, name = self._parent(text)
            parent.set({name: None})

    def _unlink(self, path: Any, **options: Any) -> None:
        text = self.holds(path)
        if text is None:
            _real["unlink"](path, **options)
            return
        self.step("unlink", text)
        node = self.node(text)
        if isinstance(node, _File) and node.changed:
            with _real_open(text, "rb") as file:
                node.last = file.read()
        _real["unlink"](path, **options)
        parent, name = self._parent(text)
        parent.set({name: None})

    _remove = _unlink

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        texts = self.holds(source), self.holds(target)
        if texts[0] is None or texts[1] is None:
            _real["rename"](source, target, **options)
            return
        self.step("rename", f"{texts[0]} {os.path.basename(texts[1])}")
        _real["rename"](source, target, **options)
        node = self.node(texts[0])
        (before, old), (after, new) = self._parent(texts[0]), self._parent(texts[1])
        if before is after:
            before.set({old: None, new: node})
        else:
            before.set({old: None})
            after.set({new: node})

    _replace = _rename

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        text = self.holds(target)
        if text is not None:
            self.step("link", text)
        _real["link"](source, target, **options)
        if text is not None:
            parent, name = self._parent(text)
            parent.set({name: self.node(os.fspath(source))})

    def _truncate(self, path: Any, length: int) -> None:
        text = self.holds(path)
        if text is not None:
            self.step("write", text)
        _real["truncate"](path, length)
        if text is not None:
            self.written(text)

    def _chmod(self, path: Any, *arguments: Any, **options: Any) -> None:
        if (text := self.holds(path)) is not None:
            self.step("chmod", text)
        _real["chmod"](path, *arguments, **options)

    def _stat(self, path: Any, **options: Any) -> Any:
        if (text := self.holds(path)) is not None:
            self.step("stat", text)
        return _real["stat"](path, **options)

    def _lstat(self, path: Any, **options: Any) -> Any:
        if (text := self.holds(path)) is not None:
            self.step("lstat", text)
        return _real["lstat"](path, **options)

    def _listdir(self, path: Any = ".") -> list[str]:
        text = self.holds(path)
        if text is not None:
            self.step("list", text)
        names: list[str] = _real["listdir"](path)
        if text is not None:
            names.sort()
            self._scheduler.random.shuffle(names)
        return names

    def _scandir(self, path: Any = ".") -> Any:
        text = self.holds(path)
        if text is None:
            return _real["scandir"](path)
        self.step("list", text)
        with _real["scandir"](path) as found:
            entries = sorted(found, key=lambda each: each.name)
        self._scheduler.random.shuffle(entries)
        return _Scanned(entries)

    def _open_file(self, path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        text = self.holds(path)
        if text is None:
            return _real_open(path, mode, *arguments, **options)
        if not set(mode) & set("wax+"):
            self.step("open", text)
            return _real_open(path, mode, *arguments, **options)
        self.step("open to write", text)
        file = _real_open(path, mode, *arguments, **options)
        self.written(text)
        self._descriptors[file.fileno()] = text
        return _Writing(self, text, file)

    def closed(self, descriptor: int) -> None:
        """Forget a descriptor."""
        self._descriptors.pop(descriptor, None)

    @contextmanager
    def _arrow_written(self, path: str) -> Iterator[Any]:
        self.step("open to write", path)
        with _RealFile(path, "wb") as file:
            self.written(path)
            yield file
        try:
            self.step("write", path)
        except OSError:
            _real["truncate"](path, _real["stat"](path).st_size // 2)
            raise

    def _arrow_file(self, path: Any, mode: str = "r", **options: Any) -> Any:
        text = self.holds(path)
        if text is None or "w" not in mode:
            return _RealFile(path, mode, **options)
        return self._arrow_written(text)

    def _mapped(self, path: Any, mode: str = "r") -> Any:
        if (text := self.holds(path)) is not None:
            self.step("open", text)
        return _memory_map(path, mode)


class _Scanned(list[Any]):
    """Entries of a directory, as `os.scandir` returns them."""

    def __enter__(self) -> _Scanned:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        """Do nothing."""


class _Writing:
    """File that is written to; each write is a step, which may fail halfway."""

    def __init__(self, disk: Disk, path: str, file: Any) -> None:
        self._disk, self._path, self._file = disk, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Write data, or the first half of it."""
        try:
            self._disk.step("write", self._path)
        except (OSError, Died):
            self._file.write(data[: len(data) // 2])
            raise
        return int(self._file.write(data))

    def close(self) -> None:
        """Close it."""
        if not self._file.closed:
            self._disk.closed(self._file.fileno())
            self._file.close()

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


def _torn(node: _File, now: bytes, chance: random.Random) -> bytes:
    """Return contents of a file after a power loss."""
    if not node.changed:
        return node.synced or b""
    before = node.synced or b""
    return chance.choice((before, now, now[: chance.randint(0, len(now))], bytes(len(now))))
