# SPDX-License-Identifier: Apache-2.0
"""Writes libraries for the linker, so that a wheel runs on systems older than the build system.

A program that is linked with this system's C library requires the newest version of each symbol, so
the program does not start on an older system. This module writes libraries without code, which
define only the symbols and versions of an older glibc and libstdc++. Later releases of a library
add no symbols to an old release's versions, so this system's libraries show which symbols the old
release contains. Two groups of functions are linked into the wheel's core as hidden symbols:
functions of glibc from `old_glibc.c`, and functions of libstdc++ from the compiler's static
library.

The wheel's core is compiled with the compiler and the headers of this machine, so it has the same
instructions as a core that is compiled in the source tree.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMITS", "Symbol", "old_symbols", "symbols_of", "write_libraries"]

# For each series of versions, the newest version that manylinux_2_28 allows.
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
_LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libstdc++.so.6")
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_LINE = re.compile(
    r"^\s*\d+: [0-9a-f]+ +(?P<size>\S+) (?P<type>\w+) +(?P<bind>GLOBAL|WEAK|UNIQUE) +\w+ +"
    r"(?P<section>\w+) (?P<name>[^@\s]+)(?:@@?(?P<version>[\w.]+))?"
)


@dataclass(frozen=True)
class Symbol:
    """A symbol in a library's dynamic symbol table.

    Attributes:
        name: the symbol's name.
        version: the symbol's version, such as "GLIBC_2.2.5"; "" for a symbol without a version.
        defined: False for a symbol that another library must define.
        is_object: True for data, False for a function.
        size: size of the symbol's data, in bytes.
        is_thread_local: True for thread-local data.
        is_weak: True for a weak symbol, for which a program needs no definition.
    """

    name: str
    version: str
    defined: bool
    is_object: bool
    size: int
    is_thread_local: bool
    is_weak: bool = False


def symbols_of(path: Path, readelf: str = "readelf") -> list[Symbol]:
    """Return the dynamic symbols of a library."""
    text = subprocess.check_output([readelf, "-W", "--dyn-syms", str(path)], text=True)
    symbols = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        symbols.append(
            Symbol(
                match["name"],
                match["version"] or "",
                match["section"] != "UND",
                match["type"] == "OBJECT",
                int(match["size"], 0),
                match["type"] == "TLS",
                match["bind"] == "WEAK",
            )
        )
    return symbols


def _numbers(version: str) -> tuple[str, tuple[int, ...]] | None:
    """Split a version into name and numbers; None if there are no numbers (GLIBC_PRIVATE)."""
    match = re.fullmatch(r"([A-Z]+)_(\d+(?:\.\d+)*)", version)
    return None if match is None else (match[1], tuple(map(int, match[2].split("."))))


def old_symbols(symbols: list[Symbol]) -> list[Symbol]:
    """Return each defined symbol in its newest version within `LIMITS`; omit thread-local symbols.

    Example:
        >>> kinds = (True, False, 0, False)
        >>> versions = ("GLIBC_2.2.5", "GLIBC_2.29", "GLIBC_PRIVATE")
        >>> old = old_symbols([Symbol("pow", version, *kinds) for version in versions])
        >>> [(symbol.name, symbol.version) for symbol in old]
        [('pow', 'GLIBC_2.2.5')]
    """
    best: dict[str, tuple[tuple[int, ...], Symbol]] = {}
    for symbol in symbols:
        version = _numbers(symbol.version)
        if not symbol.defined or symbol.is_thread_local or version is None:
            continue
        name, numbers = version
        if numbers > LIMITS.get(name, (0,)):
            continue
        if symbol.name not in best or numbers > best[symbol.name][0]:
            best[symbol.name] = (numbers, symbol)
    return [symbol for _, symbol in sorted(best.values(), key=lambda each: each[1].name)]


def _assembly(symbols: list[Symbol]) -> str:
    lines = [".data"]
    for i, symbol in enumerate(symbols):
        kind = "object" if symbol.is_object else "function"
        lines += [
            f".globl stub_{i}",
            f".type stub_{i}, %{kind}",
            f".size stub_{i}, {symbol.size if symbol.is_object else 0}",
            f"stub_{i}:",
            f".symver stub_{i}, {symbol.name}@@{symbol.version}, remove",
            f".skip {max(symbol.size, 1) if symbol.is_object else 1}",
        ]
    return "\n".join([*lines, '.section .note.GNU-stack, "", %progbits', ""])


def _write_library(compiler: list[str], file: Path, symbols: list[Symbol]) -> None:
    """Write a library that defines `symbols` but contains no code."""
    source, versions = file.with_suffix(".s"), file.with_suffix(".map")
    source.write_text(_assembly(symbols))
    names = sorted({symbol.version for symbol in symbols})
    versions.write_text("".join(f"{name} {{ }};\n" for name in names))
    soname = [f"-Wl,-soname,{file.name}", f"-Wl,--version-script={versions}"]
    subprocess.check_call(
        [*compiler, "-shared", "-nostdlib", *soname, str(source), "-o", str(file)]
    )


def write_libraries(compiler: list[str], machine: str, folder: Path) -> None:
    """Write the libraries of an older system; `-L folder` makes the compiler link with them.

    Args:
        compiler: the C++ compiler's command.
        machine: "x86_64" or "aarch64".
        folder: the folder to write to; made if it is missing.
    """

    def here(name: str) -> str:
        return subprocess.check_output([*compiler, f"-print-file-name={name}"], text=True).strip()

    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    for name in (*_LIBRARIES, _LOADERS[machine]):
        _write_library(compiler, folder / name, old_symbols(symbols_of(Path(here(name)))))
    added = folder / "old_glibc.o"
    source = Path(__file__).with_name("old_glibc.c")
    subprocess.check_call(
        [*compiler, "-x", "c", "-O2", "-fPIC", "-c", str(source), "-o", str(added)]
    )
    archive = folder / "libold_glibc.a"
    archive.unlink(missing_ok=True)
    subprocess.check_call(["ar", "rcsD", str(archive), str(added)])
    # The linker finds the libraries under names without versions, such as libc.so.
    libraries = [folder / name for name in ("libc.so.6", "libpthread.so.0", "libdl.so.2")]
    scripts = {
        # The archive comes first: the current libc.so.6 also defines some functions of the archive,
        # but an older libc.so.6 may lack these functions.
        "libc.so": f"GROUP({here('libc_nonshared.a')} {' '.join(map(str, libraries))} {archive} "
        f"AS_NEEDED({folder / _LOADERS[machine]}))",
        "libm.so": f"INPUT({folder / 'libm.so.6'})",
        "libpthread.so": f"INPUT({folder / 'libpthread.so.0'})",
        "libdl.so": f"INPUT({folder / 'libdl.so.2'})",
        "libstdc++.so": f"INPUT({folder / 'libstdc++.so.6'} {here('libstdc++.a')})",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"{text}\n")
