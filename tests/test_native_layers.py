# SPDX-License-Identifier: Apache-2.0
"""Layers of the native core: what its files include leads down, from folder to folder.

A folder counts with all that is in it, and each folder in it counts again; a unit is a header with
the `.cc` and `.inl` of its name. A circle is a set of folders, or of units, each of which includes
each other one, directly or through others; a forward declaration or a friend counts as an include
of the class. No circle of folders is left. The circles of units that
are left, none of which crosses a folder, are listed here: a circle that is not listed fails, and so
does one that is listed and is no longer there, so that the list gets shorter only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

import pytest

from tests.support.arrows import reached

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "mindspore_rec" / "csrc"
SUFFIXES = (".cc", ".h", ".inl")

CIRCLES_OF_UNITS = [
    # Layers, and the form that a program has on a device, are made of programs; a program's own
    # methods call both.
    {"dense/device_program", "dense/layer", "dense/program"},
    # The loops' source is compiled once per instruction set; its parts use their declarations.
    {"dense/elementwise", "dense/mixture_kernels", "dense/pair_kernels"},
    # Private headers of a class, for the several files that define its methods.
    {"readers/shared_writer", "readers/shared_writer_parts"},
    # A core has its step's lookups, whose messages name the core's table.
    {"table/core/step_lookups", "table/core/table_core"},
    # A scan reads what a tier keeps to itself.
    {"tier/ssd_scan", "tier/ssd_tier"},
    # Exchanges are parts of a sharded table, which they see all of.
    {"workers/gradient_exchange", "workers/lookup_exchange", "workers/sharded_table"},
    # A communicator asks the job whether to end, which ends through the communicator.
    {"workers/mpi_communicator", "workers/mpi_job"},
]

# Most public functions of a class that many callers see all of.
MOST_FUNCTIONS = {
    ("table/table.h", "Table"): 60,
    ("table/core/shard.h", "Shard"): 45,
    ("table/core/upper_tier.h", "UpperTier"): 27,
}

# What includes what: pairs of paths below csrc.
Include = tuple[str, str]


# ---- the graph


def includes_of(name: str, source: str, files: Collection[str]) -> list[Include]:
    """Return the includes of a file, given by its path below csrc, of other files of csrc."""
    found = re.findall(r'^\s*#\s*include\s+"([^"]+)"', source, re.MULTILINE)
    return [(name, other) for other in found if other in files]


def homes_of(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the file that defines each class, of those that only one file does."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for found in re.findall(
            r"^(?:class|struct) (\w+)(?: final)?[^;{]*\{", source, re.MULTILINE
        ):
            homes[found].append(name)
    return {name: files[0] for name, files in homes.items() if len(files) == 1}


def declarations_of(name: str, source: str, homes: Mapping[str, str]) -> list[Include]:
    """Return a file's forward declarations and friends as includes of the files with the classes:
    who names a class needs it, though the compiler does not."""
    pattern = r"^(?:class|struct) (\w+);|^ *friend (?:class|struct) (\w+);"
    found = (declared or friend for declared, friend in re.findall(pattern, source, re.MULTILINE))
    return [(name, homes[each]) for each in found if homes.get(each, name) != name]


def all_sources() -> dict[str, str]:
    """Return the texts of all files of the native core, by their paths below csrc."""
    return {
        path.relative_to(CSRC).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(CSRC.rglob("*"))
        if path.suffix in SUFFIXES
    }


def all_includes() -> list[Include]:
    """Return all includes of the native core, and what stands for one."""
    sources = all_sources()
    homes = homes_of(sources)
    return [
        include
        for name, source in sources.items()
        for include in (
            *includes_of(name, source, sources),
            *declarations_of(name, source, homes),
        )
    ]


def unit_of(name: str) -> str:
    """Return the unit of a file: its path without what it ends in."""
    return str(PurePosixPath(name).with_suffix(""))


def folder_of(name: str, depth: int) -> str:
    """Return the folder of a file, or if that lies deeper, the one of so many parts around it."""
    return "/".join(PurePosixPath(name).parent.parts[:depth])


def arrows_of(
    includes: Iterable[Include], node_of: Callable[[str], str]
) -> dict[str, dict[str, Include]]:
    """Return which nodes each node includes, with the first include that does it."""
    arrows: dict[str, dict[str, Include]] = defaultdict(dict)
    for include in includes:
        here, there = node_of(include[0]), node_of(include[1])
        if here != there:
            arrows[here].setdefault(there, include)
    return dict(arrows)


# ---- circles


def circles_in(arrows: dict[str, dict[str, Include]]) -> list[set[str]]:
    """Return the sets of nodes that reach each other, in the order of their names."""
    below = {node: reached(arrows, node) for node in arrows}
    circles = {
        frozenset(other for other in below[node] if node in below.get(other, ()))
        for node in arrows
        if node in below[node]
    }
    return [set(circle) for circle in sorted(circles, key=sorted)]


def shortest_way(arrows: dict[str, dict[str, Include]], start: str, end: str) -> list[Include]:
    """Return the includes of a shortest way between two nodes; requires that there is one."""
    came: dict[str, str] = {}
    ahead = [start]
    for node in ahead:
        for there in arrows.get(node, ()):
            if there not in came:
                came[there] = node
                ahead.append(there)
    way = [end]
    while len(way) == 1 or way[-1] != start:
        way.append(came[way[-1]])
    return [arrows[here][there] for there, here in zip(way, way[1:], strict=False)][::-1]


def said_of(arrows: dict[str, dict[str, Include]], circle: set[str], listed: list[set[str]]) -> str:
    """Return a sentence with the includes that close a circle which is not listed."""
    new = [
        (here, there)
        for here in sorted(circle)
        for there in arrows[here]
        if there in circle and not any({here, there} <= known for known in listed)
    ]
    ways = [[arrows[here][there], *shortest_way(arrows, there, here)] for here, there in new]
    shortest = min(ways, key=len)
    chain = ", ".join(f"{here} includes {there}" for here, there in shortest)
    return f"a new circle of {', '.join(sorted(circle))}: {chain}"


def changes(arrows: dict[str, dict[str, Include]], listed: list[set[str]]) -> list[str]:
    """Return a sentence for each circle that is not listed, and each that is and is not there."""
    found = circles_in(arrows)
    said = []
    for circle in found:
        if circle in listed or any(circle < known for known in listed):
            continue
        said.append(said_of(arrows, circle, listed))
    for known in listed:
        if known in found or any(known < circle for circle in found):
            continue
        left = [sorted(circle) for circle in found if circle < known]
        said.append(
            f"{', '.join(sorted(known))} are no longer a circle: list "
            f"{' and '.join(map(str, left)) or 'it no more'}"
        )
    return said


# ---- public functions


def body_of(source: str, name: str) -> str:
    """Return what stands between the braces of a class, without comments and nested braces."""
    code = re.sub(r"//[^\n]*", "", source)
    start = re.search(rf"^class {name}\b[^;{{]*\{{", code, re.MULTILINE)
    assert start is not None, f"there is no class {name}"
    kept, depth = [], 1
    for each in code[start.end() :]:
        depth += (each == "{") - (each == "}")
        if depth == 0:
            break
        if depth == 1:
            kept.append(";" if each == "}" else each)
    return "".join(kept)


def public_functions(source: str, name: str) -> list[str]:
    """Return the names of a class's public functions, one for each overload; those that make, copy
    or destroy it are left out."""
    public, found = False, []
    for part in re.split(r"\b(public|private|protected):", body_of(source, name)):
        if part in ("public", "private", "protected"):
            public = part == "public"
        elif public:
            for statement in part.split(";"):
                # The first brace after a name that no type or template argument is part of.
                called = re.match(r"[^(]*?(operator\s*[^\s(]+|~?\w+)\s*\(", statement)
                if called is None or re.match(r"\s*(using|struct|class|enum|friend)\b", statement):
                    continue
                if called[1].strip("~") != name and "= delete" not in statement:
                    found.append(called[1])
    return found


# ---- the native core


def test_only_bindings_of_the_table_include_it() -> None:
    # Other bindings are not compiled again when a header of the table changes (setup.py).
    sources = all_sources()
    includes = [pair for name in sources for pair in includes_of(name, sources[name], sources)]
    arrows = arrows_of(includes, str)
    users = {name for name in sources if "table/table.h" in reached(arrows, name)}
    bindings = {name for name in users if name.startswith("bindings/")}
    assert bindings and all(name.startswith("bindings/table_") for name in bindings), bindings


def test_the_tiers_see_one_header_of_the_core() -> None:
    seen = {there for here, there in all_includes() if folder_of(here, 2) == "table/cache"}
    assert {each for each in seen if folder_of(each, 2) == "table/core"} == {
        "table/core/upper_tier.h"
    }


@pytest.mark.parametrize(("file", "name"), MOST_FUNCTIONS)
def test_a_class_that_many_see_has_few_public_functions(file: str, name: str) -> None:
    found = public_functions((CSRC / file).read_text(encoding="utf-8"), name)
    assert len(found) <= MOST_FUNCTIONS[file, name], found


@pytest.mark.parametrize("depth", [1, 2])
def test_no_circle_crosses_a_folder(depth: int) -> None:
    assert changes(arrows_of(all_includes(), lambda name: folder_of(name, depth)), []) == []


def test_folders_are_no_deeper_than_the_test_looks() -> None:
    assert max(len(PurePosixPath(name).parent.parts) for name, _ in all_includes()) == 2


def test_circles_of_units_are_those_that_are_listed() -> None:
    assert changes(arrows_of(all_includes(), unit_of), CIRCLES_OF_UNITS) == []


def test_circles_that_are_listed_cross_no_folder() -> None:
    crossing = [
        circle for circle in CIRCLES_OF_UNITS if len({folder_of(unit, 2) for unit in circle}) > 1
    ]
    assert crossing == []


# ---- what the tests above would say

THREE = [("a/x.cc", "a/x.h"), ("a/x.h", "b/y.h"), ("b/y.cc", "c/z.h"), ("c/z.inl", "a/x.h")]


def test_a_new_circle_is_named_with_the_includes_that_close_it() -> None:
    assert changes(arrows_of(THREE, unit_of), []) == [
        "a new circle of a/x, b/y, c/z: a/x.h includes b/y.h, b/y.cc includes c/z.h, "
        "c/z.inl includes a/x.h"
    ]
    assert len(changes(arrows_of(THREE, lambda name: folder_of(name, 1)), [])) == 1


def test_a_circle_that_grows_is_named_by_what_is_new() -> None:
    more = [*THREE, ("c/z.h", "d/w.h"), ("d/w.h", "c/z.h")]
    assert changes(arrows_of(more, unit_of), [{"a/x", "b/y", "c/z"}]) == [
        "a new circle of a/x, b/y, c/z, d/w: c/z.h includes d/w.h, d/w.h includes c/z.h"
    ]


def test_a_circle_that_is_gone_or_smaller_must_leave_the_list() -> None:
    listed = [{"a/x", "b/y", "c/z"}]
    assert changes(arrows_of(THREE, unit_of), listed) == []
    assert changes(arrows_of(THREE[:3], unit_of), listed) == [
        "a/x, b/y, c/z are no longer a circle: list it no more"
    ]
    smaller = [("a/x.h", "b/y.h"), ("b/y.cc", "a/x.h")]
    assert changes(arrows_of(smaller, unit_of), listed) == [
        "a/x, b/y, c/z are no longer a circle: list ['a/x', 'b/y']"
    ]


def test_folders_count_with_what_is_in_them() -> None:
    through = [("a/x.h", "b/y.h"), ("b/y.h", "a/in/z.h")]
    assert changes(arrows_of(through, lambda name: folder_of(name, 2)), []) == []
    assert len(changes(arrows_of(through, lambda name: folder_of(name, 1)), [])) == 1


def test_includes_of_the_system_and_of_tests_are_left_out() -> None:
    source = '#include <vector>\n  # include "b/y.h"\n#include "other.h"\n// #include "c/z.h"\n'
    assert includes_of("a/x.cc", source, ["b/y.h", "c/z.h"]) == [("a/x.cc", "b/y.h")]


def test_a_forward_declaration_counts_as_an_include() -> None:
    sources = {
        "a/x.h": "namespace msrec {\nclass Y;\nclass X {\n  friend class Z;\n  struct Y;\n};\n",
        "b/y.h": "class Y : public Z {\n};\n",
        "c/z.h": "struct Z final {\n};\n",
    }
    homes = homes_of(sources)
    assert homes == {"X": "a/x.h", "Y": "b/y.h", "Z": "c/z.h"}
    assert declarations_of("a/x.h", sources["a/x.h"], homes) == [
        ("a/x.h", "b/y.h"),
        ("a/x.h", "c/z.h"),
    ]


def test_public_functions_are_counted() -> None:
    source = """class Other;
class X : public Y {
  int hidden();

 public:
  explicit X(int a) : a_(a) {}
  ~X();
  X(const X&) = delete;
  X& operator=(const X&) = delete;
  // Not one(int).
  using Take = std::function<void(int)>;
  struct Inner {
    int of_inner() const { return 1; }
  };
  static constexpr int kMost = 3;
  int kept = 0;
  Inner one(int a, std::function<void(int)> fn = {});
  int one() const { return Do([&] { return two(); }); }
  template <typename Fn>
  auto two(Fn fn) const;
  bool operator<(const X& other) const;

 private:
  void three();
  int a_{0};

 public:
  void four() noexcept;
};
class Z {
 public:
  void five();
};
"""
    assert public_functions(source, "X") == ["one", "one", "two", "operator<", "four"]
    assert public_functions(source, "Z") == ["five"]
