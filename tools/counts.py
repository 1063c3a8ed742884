# SPDX-License-Identifier: Apache-2.0
"""Counts patterns that make code and text hard to read, such as variables with vague names.

    python tools/counts.py
    python tools/counts.py --places vague_variables

The tool parses the code and does not import it. `tests/tools/test_counts.py` sets an upper bound
for each count.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mindspore_rec"
READ = ("mindspore_rec", "models", "examples", "datasets", "benchmarks", "tools")
"""Folders whose Python is for readers."""

MOST_ARGUMENTS = 10
# Classes that may have more than `MOST_ARGUMENTS` arguments: `TableConfig`, which contains all
# settings of a table, and records that the library returns.
MAY_HAVE_MORE = ("TableConfig", "Explanation", "Outcome", "Status", "TrainSummary", "WorkerOutcome")
OTHER_WORDS = re.compile(r"^(embedding_size|dim)$|quantis", re.IGNORECASE)
VAGUE = ("found", "given", "held", "said")
# In a comment or a page, a line break may separate the words of a phrase.
PRONOUNS = re.compile(r"\b(?:those\s+(?://|#)?\s*of|the\s+(?://|#)?\s*one\s+(?://|#)?\s*that)\b")
ONE_WORKER = re.compile(r"peers is (?:not )?None|group\.size (?:==|>|!=) 1|\.size == 1")
TWINS = (
    ("ServedInProcess", "ServedInSharedMemory"),
    ("TableRows", "SharedTableRows"),
)
"""Classes that do one thing for rows of a process and for rows in shared memory."""


class Public(NamedTuple):
    """A public function, constructor or method, and the names of its arguments."""

    name: str
    module: str
    arguments: tuple[str, ...]


# ---- the source


def files(*patterns: str, folders: tuple[str, ...] = READ) -> list[Path]:
    """Return the files in `folders` whose names match one of the patterns."""
    return [
        file
        for folder in folders
        for pattern in patterns
        for file in sorted((ROOT / folder).rglob(pattern))
    ]


@functools.cache
def tree(file: Path) -> ast.Module:
    """Return the parsed source of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def place(file: Path, line: int) -> str:
    """Return a place as text: the file's path and the line number."""
    return f"{file.relative_to(ROOT)}:{line}"


def matches(pattern: re.Pattern[str], *sources: Path) -> list[str]:
    """Return the places in the files `sources` that `pattern` matches."""
    places = []
    for file in sources:
        text = file.read_text(encoding="utf-8")
        places += [
            place(file, text.count("\n", 0, match.start()) + 1) for match in pattern.finditer(text)
        ]
    return places


# ---- public names


def faces() -> list[Path]:
    """Return the modules with public names (docs/architecture.md)."""
    lazy = [
        file
        for file in files("*.py", folders=(PACKAGE.name,))
        if "lazily(__name__" in file.read_text()
    ]
    return [*lazy, PACKAGE / "plan" / "__init__.py"]


def definition(module: str, name: str) -> tuple[str, ast.stmt] | None:
    """Return (module, node) of the class or function with a name; None for other names."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    for node in tree(file).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return module, node
    for each in ast.walk(tree(file)):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith(PACKAGE.name):
            for alias in each.names:
                if (alias.asname or alias.name) == name and (each.module, alias.name) != (
                    module,
                    name,
                ):
                    return definition(str(each.module), alias.name)
    return None


def arguments(function: ast.FunctionDef) -> tuple[str, ...]:
    """Return the names of a function's arguments, without `self`."""
    every = function.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return tuple(each.arg for each in named if each is not None and each.arg not in ("self", "cls"))


def constructor(module: str, kind: ast.ClassDef) -> tuple[str, ...]:
    """Return the names of a constructor's arguments, or the names of a dataclass's fields."""
    for node in kind.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return arguments(node)
    bases = [ast.unparse(base).partition("[")[0] for base in kind.bases]
    inherited: tuple[str, ...] = ()
    for base in bases:
        definition_of_base = definition(module, base)
        if definition_of_base is not None and isinstance(definition_of_base[1], ast.ClassDef):
            inherited = constructor(definition_of_base[0], definition_of_base[1])
            break
    if "NamedTuple" in bases or any("dataclass" in ast.unparse(d) for d in kind.decorator_list):
        return inherited + tuple(
            node.target.id
            for node in kind.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and not re.search(r"ClassVar|KW_ONLY|init=False", ast.unparse(node))
        )
    return inherited


@functools.cache
def public() -> tuple[Public, ...]:
    """Return the functions, constructors and methods of public modules, without `compat`."""
    homes = {
        (node.module, alias.name)
        for face in faces()
        for node in ast.walk(tree(face))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name)
        for alias in node.names
        if alias.name != "lazily"
    }
    return tuple(
        each
        for home, name in sorted(homes, key=str)
        for each in called(str(home), name)
        if not each.module.startswith(f"{PACKAGE.name}.compat")
    )


def called(module: str, name: str) -> Iterator[Public]:
    """Yield a public function, or a public class's constructor and public methods."""
    there = definition(module, name)
    if there is None:
        return
    home, node = there
    if isinstance(node, ast.FunctionDef):
        yield Public(name, home, arguments(node))
    elif isinstance(node, ast.ClassDef):
        yield Public(name, home, constructor(home, node))
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                yield Public(f"{name}.{method.name}", home, arguments(method))


# ---- the counts


def one_worker_branches() -> list[str]:
    """Places where the code tests whether there is one worker or several."""
    return matches(ONE_WORKER, *files("*.py", folders=(PACKAGE.name,)))


def long_signatures() -> list[str]:
    """Public functions and methods with more than ten arguments, outside `compat`."""
    return [
        f"{each.name} ({len(each.arguments)})"
        for each in public()
        if len(each.arguments) > MOST_ARGUMENTS and each.name.partition(".")[0] not in MAY_HAVE_MORE
    ]


def other_words() -> list[str]:
    """Public names and arguments with an unusual term, such as `dim` for `embedding_dim`."""
    named = [
        f"{each.name}({argument}=)"
        for each in public()
        for argument in each.arguments
        if OTHER_WORDS.search(argument)
    ]
    return named + [each.name for each in public() if OTHER_WORDS.search(each.name.split(".")[-1])]


def twins() -> list[str]:
    """Pairs of classes that duplicate code, because both do the same work on rows."""
    classes = {
        node.name
        for file in files("*.py", folders=(PACKAGE.name,))
        for node in tree(file).body
        if isinstance(node, ast.ClassDef)
    }
    return [f"{first}, {second}" for first, second in TWINS if {first, second} <= classes]


def vague_variables() -> list[str]:
    """Variables and arguments whose names state a value's origin instead of its meaning."""
    places = []
    for file in files("*.py"):
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name, line = node.id, node.lineno
            elif isinstance(node, ast.arg):
                name, line = node.arg, node.lineno
            else:
                continue
            if name in VAGUE:
                places.append(f"{place(file, line)} {name}")
    return places


def pronouns() -> list[str]:
    """Pronouns that stand where a noun belongs, in pages, comments and docstrings."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    pages += files("*.md", folders=(*READ, "docs"))
    return matches(PRONOUNS, *pages, *files("*.py", "*.h", "*.cc", "*.inl"))


def readme_lines() -> list[str]:
    """Lines of README.md."""
    readme = ROOT / "README.md"
    return [place(readme, line) for line in range(1, readme.read_text().count("\n") + 1)]


COUNTS: dict[str, Callable[[], list[str]]] = {
    count.__name__: count
    for count in (
        one_worker_branches,
        long_signatures,
        other_words,
        twins,
        vague_variables,
        pronouns,
        readme_lines,
    )
}
"""Each count: the function that returns what is counted."""


def main(command: list[str] | None = None) -> int:
    """Print all counts; with `--places`, print each item that the chosen count includes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--places", choices=COUNTS, help="print what this count counts")
    options = parser.parse_args(command)
    if options.places is not None:
        print("\n".join(COUNTS[options.places]()))
        return 0
    for name, count in COUNTS.items():
        print(f"{len(count()):5} {name}: {(count.__doc__ or '').rstrip('.').lower()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
