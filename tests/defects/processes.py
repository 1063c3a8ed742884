# SPDX-License-Identifier: Apache-2.0
"""Defects by which a process hung or died."""

from __future__ import annotations

from tests.defects.entry import Defect, Edit
from tests.defects.tools import GoogleTest, NativeFuzz, Program, Pytest, PythonFuzz

__all__ = ["PROCESSES"]

_CSRC = "mindspore_rec/csrc"
_BATCHER = "mindspore_rec/serve/server/batcher.py"

_INTERPRETER = Defect(
    11,
    "A call waits for a table with the interpreter's lock held, which a Python tier needs.",
    (
        Edit(
            f"{_CSRC}/util/interpreter_lock.cc",
            "    : state_(the_lock.release != nullptr ? the_lock.release() : nullptr) {}\n",
            "    : state_(nullptr) {}\n",
        ),
    ),
    Program(module="tests.cache.gil_script"),
    Pytest(names=("tests/cache/test_cache_gil.py",), limit=900),
    hangs=True,
)

_FORK = Defect(
    12,
    "A child forked while a thread is inside a table hangs at its first call on the table.",
    (
        Edit(
            f"{_CSRC}/table/core/table_mutex.cc",
            "  mutex->owner_.Require(mutex->subject_);\n",
            "",
        ),
    ),
    Pytest(names=("tests/cache/test_cache_fork_use.py", "-k", "python")),
    GoogleTest(names="Process.*"),
    hangs=True,
)

_THREADS = Defect(
    13,
    "A thread that the system does not give ends the process.",
    (
        Edit(
            f"{_CSRC}/util/thread_pool.cc",
            "workers_.size()) + 1, wanted, error.what());\n",
            "workers_.size()) + 1, wanted, error.what());\n    throw;\n",
        ),
    ),
    GoogleTest(names="Lives/TableFaults.*"),
    GoogleTest(names="ThreadStart.*"),
)

_CANCELLED = Defect(
    14,
    "A request that is given up ends the batcher's work on the requests beside it.",
    (
        Edit(
            _BATCHER,
            "            batch = [each for each in batch if _is_wanted(each.future)]\n",
            "",
        ),
        Edit(
            _BATCHER,
            """            if not future.done():
                future.set_exception(self.error)
        elif not future.done():
            assert""",
            """            future.set_exception(self.error)
        else:
            assert""",
        ),
    ),
    PythonFuzz(target="http"),
    Pytest(names=("tests/serving/server/test_serving_cancelled.py",)),
    hangs=True,
)

_MANIFEST = Defect(
    15,
    "An SSD directory's manifest of 2^64 - 1 records, checksum right: opening it never ends.",
    (
        Edit(
            f"{_CSRC}/tier/format.cc",
            """    if (entry.slots > kMaxSlots) {
      throw bad(name + " cannot have " + std::to_string(entry.slots) + " records");
    }
""",
            "",
        ),
    ),
    NativeFuzz(target="ssd"),
    GoogleTest(names="HostileDirectory.AManifestOfImpossibleNumbersIsRefused"),
    hangs=True,
)

PROCESSES = [_INTERPRETER, _FORK, _THREADS, _CANCELLED, _MANIFEST]
