# SPDX-License-Identifier: Apache-2.0
"""Sentences for a reader come from pages, docstrings and comments; a seed is one draw."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT
from tools.sentences import of_cpp, of_page, of_python

PAGE = """# A heading of a page, with a full stop.

Return the rows of [a table](tables.md#rows). They are
float32 numbers, in any order.

| a cell of a table | is no sentence at all. |

* An entry of a list has a sentence, too.

```python
print("A program is no sentence of the page.")
```
"""
PYTHON = '''"""Rows of a module, as a reader meets them."""


def lookup(keys):
    """Return the rows of some keys.

    Args:
        keys: int64 array of any shape and order.

    Example:
        >>> lookup([1, 2])  # Not a sentence that anybody reads.
        Traceback (most recent call last): this output is not read either.
    """
    # The order stays, since a caller counts on it.
    return keys + 1  # not at the start of a line
'''
CPP = """// The first line of a comment,
// and the end of its sentence.
int rows = 1;
// Another comment has a sentence of its own.
"""


def test_sentences_of_each_kind_of_file():
    assert list(of_page(PAGE)) == [
        "Return the rows of a table.",
        "They are float32 numbers, in any order.",
        "An entry of a list has a sentence, too.",
    ]
    assert list(of_python(PYTHON)) == [
        "Rows of a module, as a reader meets them.",
        "Return the rows of some keys.",
        "keys: int64 array of any shape and order.",
        "The order stays, since a caller counts on it.",
    ]
    assert list(of_cpp(CPP)) == [
        "The first line of a comment, and the end of its sentence.",
        "Another comment has a sentence of its own.",
    ]


def test_a_seed_is_one_draw():
    def drawn(seed: str) -> list[str]:
        command = [sys.executable, "tools/sentences.py", "--count", "9", "--seed", seed]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert drawn("a") == drawn("a") != drawn("b")
    assert len(drawn("a")) == 10
