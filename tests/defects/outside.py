# SPDX-License-Identifier: Apache-2.0
"""Defects by which somebody outside did harm: requests, messages, files and chosen keys."""

from __future__ import annotations

from tests.defects.entry import Defect, Edit
from tests.defects.tools import GoogleTest, NativeFuzz, Pytest, PythonFuzz

__all__ = ["OUTSIDE"]

_CSRC = "mindspore_rec/csrc"
_FORMATS = "mindspore_rec/common/stream/formats.py"
_FIELDS = "mindspore_rec/common/run/manifest_fields.py"

_BODIES = Defect(
    16,
    "A text among the numbers of a request takes memory by the square of the body.",
    (
        Edit(
            "mindspore_rec/serve/protocol/json_tensor.py",
            "    data = _flat(where, data)\n",
            """    try:
        data = np.array(data).ravel().tolist()
    except ValueError as error:
        raise RequestError(str(error)) from None
""",
        ),
    ),
    PythonFuzz(target="http"),
    Pytest(names=("tests/serving/protocol/test_serving_bad_bodies.py",)),
)

_FLOOD = Defect(
    17,
    "The hash that chooses a key's bucket is public: keys can be chosen that share one.",
    (
        Edit(
            f"{_CSRC}/util/bucket_hash.cc",
            "  uint64_t seed = 0;\n#ifdef SYS_getrandom\n",
            "  uint64_t seed = 0;\n  if (seed == 0) return kStride;\n#ifdef SYS_getrandom\n",
        ),
    ),
    None,
    GoogleTest(names="HashSeed.*:HashFlood.*"),
)

_BOMB = Defect(
    18,
    "A small compressed message is decoded to any size.",
    (
        Edit(
            _FORMATS,
            "            return decoded_bytes(value, self._most(value), self._known)\n",
            "            return len(value)\n",
        ),
    ),
    PythonFuzz(target="arrow"),
    Pytest(names=("tests/stream/test_stream_bounds.py",)),
)

_UTF8 = Defect(
    19,
    "JSON messages with broken UTF-8 are accepted and raise later.",
    (
        Edit(
            _FORMATS,
            "        if not value.isascii():  # the parser takes any bytes",
            "        if not value:  # the parser takes any bytes",
        ),
    ),
    PythonFuzz(target="json"),
    Pytest(names=("tests/stream/test_stream_bounds.py",)),
)

_PATHS = Defect(
    20,
    "A manifest names files outside its directory.",
    (
        Edit(
            _FIELDS,
            """        legal = _FILE.fullmatch(name) is not None and name != "manifest.json"\n""",
            "        legal = True\n",
        ),
        Edit(
            _FIELDS,
            "    fits = isinstance(file, str) and pattern.fullmatch(file) is not None\n",
            "    fits = isinstance(file, str)\n",
        ),
    ),
    PythonFuzz(target="manifest"),
    Pytest(names=("tests/checkpoint/test_checkpoint_hostile.py",)),
)

_FOOTER = Defect(
    21,
    "The sizes in a segment's footer are not compared with the file.",
    (
        Edit(
            f"{_CSRC}/tier/segment.cc",
            """ || trailer.slots != slots ||
      slots > MostSlots() || slots > kMaxSlots || trailer.tombstone_slots > slots) {
""",
            """ || trailer.slots != slots) {
""",
        ),
        Edit(
            f"{_CSRC}/tier/segment.cc",
            """  if (trailer.footer_offset != RoundUp(OffsetOf(slots)) ||
      trailer.footer_offset + RoundUp(bytes) + kBlock != size) {
    return false;
  }
""",
            "",
        ),
    ),
    NativeFuzz(target="ssd"),
    GoogleTest(names="HostileDirectory.AFooterOfImpossibleNumbersIsMadeGoodFromTheRecords"),
)

_STARVED = Defect(
    22,
    "A column that vanishes sends every message to dead letters, and training starves quietly.",
    (
        Edit(
            "mindspore_rec/common/stream/dead_share.py",
            "        if bad.total() <= self._most * seen:\n",
            "        if bad.total() <= seen:\n",
        ),
    ),
    None,
    Pytest(names=("tests/stream/test_stream_dead_share.py",)),
)

OUTSIDE = [_BODIES, _FLOOD, _BOMB, _UTF8, _PATHS, _FOOTER, _STARVED]
