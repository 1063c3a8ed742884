# SPDX-License-Identifier: Apache-2.0
"""Instructions by function, of what callgrind has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["read_profile"]

_WRITTEN_BY_PROGRAM = "desc: Trigger: Client Request: "


def read_profile(lines: Iterable[str]) -> tuple[str, Counter[str]]:
    """Return the name that the program gave; and the instructions of each function itself, without
    those that it calls. Functions without names count as one of their library.

    Args:
        lines: of callgrind's file, written with ``--compress-strings=no --compress-pos=no``
            (https://valgrind.org/docs/manual/cl-format.html).

    Example:
        >>> text = "events: Ir\\nfn=main\\n3 10\\ncfn=f(int)\\ncalls=2 7\\n3 500\\n4 1\\n"
        >>> text += "fn=f(int)\\n7 500\\nob=/usr/lib/libx.so\\nfn=0x1f\\n0 5\\ntotals: 516"
        >>> read_profile(text.split("\\n"))
        ('', Counter({'f(int)': 500, 'main': 11, 'libx.so': 5}))
    """
    found: Counter[str] = Counter()
    name = function = library = ""
    of_call = False
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("fn="):
            function = line[3:]
            if function.startswith("0x"):
                function = library
        elif line.startswith("ob="):
            library = line.rpartition("/")[2]
        elif line.startswith("calls="):
            of_call = True  # the next line has the cost of what was called
        elif line.startswith(_WRITTEN_BY_PROGRAM):
            name = line[len(_WRITTEN_BY_PROGRAM) :]
        elif line[:1].isdigit() and function:
            if not of_call:
                found[function] += int(line.split()[1])
            of_call = False
    return name, found
