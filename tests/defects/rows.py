# SPDX-License-Identifier: Apache-2.0
"""Defects by which rows were lost or wrong."""

from __future__ import annotations

from tests.defects.entry import Defect, Edit
from tests.defects.tools import GoogleTest, Pytest

__all__ = ["ROWS"]

_CSRC = "mindspore_rec/csrc"
_LIVES = GoogleTest(names="Lives/TableFaults.*")

_BIND = Defect(
    1,
    "A bind that fails leaves the tier with the new size of rows and the table with the old one.",
    (
        Edit(
            f"{_CSRC}/table/cache/lower_tiers.cc",
            """    DropStale(std::move(relaid.queue));
    throw;
  }
  return relaid;
""",
            """    DropStale(std::move(relaid.queue));
    throw;
  }
  queue_.swap(relaid.queue);
  chain_.swap(relaid.chain);
  ++generation_;
  OnTier([&] {
    relaid.queue->Clear();
    relaid.queue->Drain();
  });
  queue_.swap(relaid.queue);
  chain_.swap(relaid.chain);
  --generation_;
  return relaid;
""",
        ),
    ),
    _LIVES,
    GoogleTest(names="*BindFails*"),
)

_ERASED = Defect(
    2,
    "An erased row comes back: the keys to erase below are forgotten before the queue takes them.",
    (
        Edit(
            f"{_CSRC}/table/cache/lower_tiers.cc",
            """  OnTier([&] { Queue().Erase(keys); });
  // Forget the keys only after the queue has accepted the keys. If the queue is full and the tier
  // fails, the copies must still be erased.
  upper_.ForgetDeparted();
""",
            """  upper_.ForgetDeparted();
  OnTier([&] { Queue().Erase(keys); });
""",
        ),
    ),
    _LIVES,
    GoogleTest(names="TierFaults.AnErasedRowStaysErasedWhateverFails"),
)

_CLEAR = Defect(
    3,
    "A failed clear loses rows: the queue is dropped before the tier's clear, which may throw.",
    (
        Edit(
            f"{_CSRC}/tier/write_behind.cc",
            """  auto part = std::make_shared<Part>();
  part->clears = true;
  std::lock_guard<std::mutex> lock(mutex_);
  parts_.push_back(std::move(part));
  // The part that is being written stays in the queue until its write is done or has failed. When
  // the write of this part has ended, the background thread clears the tier. Writes that were
  // queued before a clear are dropped.
  parts_.erase(parts_.begin() + busy_, parts_.end() - 1);
  bytes_ = busy_ ? parts_.front()->bytes() : 0;
  moot_ = busy_;
  hurry_ = true;
  wake_.notify_all();
""",
            """  {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return !busy_; });
    parts_.clear();
    bytes_ = 0;
  }
  tier_->Clear();
""",
        ),
    ),
    _LIVES,
    GoogleTest(names="*ClearFails*:TierFaults.RowsAfterAClearThatWaits"),
)

_STEP = Defect(
    4,
    "A step that throws, for its eviction fails, has already updated.",
    (
        Edit(
            f"{_CSRC}/table/evictor.cc",
            "    if (core_.cache != nullptr) core_.cache->eviction.NoteFailure();\n",
            "    throw;\n",
        ),
    ),
    _LIVES,
    GoogleTest(names="TierFaults.AStepDoesNotFailForItsEviction"),
)

_MEMORY = Defect(
    5,
    "A bind that runs out of memory forgets the lookups that wait for their gradients.",
    (
        Edit(
            f"{_CSRC}/table/table.cc",
            """    RowOptimizer::Relaid relaid = engine_.optimizer.Relay(rule);
    // From here to the end of Adopt, nothing can fail.
    engine_.ForgetStep();
""",
            """    engine_.ForgetStep();
    RowOptimizer::Relaid relaid = engine_.optimizer.Relay(rule);
""",
        ),
    ),
    # What mended it came with these lives; the tests of failing tiers are the others.
    _LIVES,
    GoogleTest(names="*BindFails*"),
)

_GROUP = Defect(
    6,
    "A grouped lookup that is refused for one table has inserted rows into another.",
    (Edit(f"{_CSRC}/ops/group_ops.cc", "  group.CheckLookups(true);\n", ""),),
    GoogleTest(names="OperatorSizesTest.*"),
    Pytest(names=("tests/nn/test_nn_grouped_atomic.py",)),
)

_PLACE = Defect(
    7,
    "FeatureBatches around a stream saves no offsets, in silence.",
    (
        Edit(
            "mindspore_rec/train/data/feature_batches.py",
            "    def change(self, batch: Batch) -> Batch | None:\n",
            """    @property
    def has_state(self) -> bool:
        return False

    @property
    def cannot_resume(self) -> str | None:
        return None

    def change(self, batch: Batch) -> Batch | None:
""",
        ),
    ),
    Pytest(names=("tests/online/test_online_combination.py",), limit=900),
    Pytest(names=("tests/stream/test_stream_place.py",), limit=900),
)

_HANDLES = Defect(
    8,
    "A forged handle that names another live row trains that row.",
    (
        Edit(
            f"{_CSRC}/table/row_handles.cc",
            """  hash.Add(place);
  hash.Add(static_cast<uint64_t>(key));
""",
            """  static_cast<void>(place);
  static_cast<void>(key);
""",
        ),
    ),
    GoogleTest(names="Threads/TableLife.*"),
    GoogleTest(names="HandlesTest.*"),
)

_CANDIDATES = Defect(
    9,
    "max_candidates near 2^63 overflows to a bound of one counter a shard.",
    (
        Edit(
            f"{_CSRC}/table/core/candidates.cc",
            "  return total / kNumShards + (shard < total % kNumShards ? 1 : 0);\n",
            """  static_cast<void>(shard);
  return static_cast<int64_t>(static_cast<uint64_t>(total) + kNumShards - 1) / kNumShards;
""",
        ),
    ),
    GoogleTest(names="Threads/TableLife.*"),
    GoogleTest(names="Limits.*"),
)

_FLOATS = Defect(
    10,
    "The floating-point mode of the calling thread changes bits of rows.",
    (
        Edit(f"{_CSRC}/table/table_guard.h", "  const DefaultFloatMode float_mode_;\n", ""),
        Edit(
            f"{_CSRC}/util/thread_pool.cc",
            "  if (num_tasks <= 0) return;\n  const DefaultFloatMode float_mode;\n",
            "  if (num_tasks <= 0) return;\n",
        ),
    ),
    _LIVES,
    GoogleTest(names="FloatMode.*"),
)

ROWS = [
    _BIND, _ERASED, _CLEAR, _STEP, _MEMORY, _GROUP, _PLACE, _HANDLES, _CANDIDATES, _FLOATS,
]  # fmt: skip
