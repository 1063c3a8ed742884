// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "readers/shared_memory.h"
#include "readers/shared_reader.h"
#include "readers/shared_writer.h"
#include "util/float16.h"

namespace msrec {
namespace {

constexpr uint64_t kMost = 64 << 20;

struct File {
  File() : fd(memfd_create("shared_rows_test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {}
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

SharedTableSpec Spec(int32_t dim, int32_t bits = 32, int64_t vocabulary = 0, int64_t steps = -1,
                     int64_t seconds = -1) {
  return {dim, bits, vocabulary, steps, seconds, 0, 0, 0, 0};
}

std::shared_ptr<SharedMemory> NewMemory(const File& file,
                                        const std::vector<SharedTableSpec>& specs) {
  SharedMemory::Create(file.fd, specs, kMost);
  return std::make_shared<SharedMemory>(file.fd, SharedMemory::Access::kWrite);
}

IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

struct Row {
  float value;  // of every number
  uint32_t step, time;
};
using Model = std::map<int64_t, Row>;

// Rows of one value are kept exactly by every type.
std::vector<float> Values(const std::vector<Row>& rows, int32_t dim) {
  std::vector<float> out;
  for (const Row& row : rows) out.insert(out.end(), dim, row.value);
  return out;
}

// Change of a table as the writer gets it; `Apply` makes it in the expected contents.
struct Change {
  bool clear = false;
  std::vector<int64_t> upserted, erased;
  std::vector<Row> rows;
  int64_t step = 0, time = 0;

  void Apply(Model* model) const {
    if (clear) model->clear();
    for (const int64_t key : erased) model->erase(key);
    for (size_t i = 0; i < upserted.size(); ++i) (*model)[upserted[i]] = rows[i];
  }
  void Give(SharedWriter* writer, size_t table, int32_t dim) const {
    if (clear) writer->Clear(table);
    if (!erased.empty()) writer->Erase(table, View(erased));
    std::vector<uint32_t> steps, times;
    for (const Row& row : rows) steps.push_back(row.step), times.push_back(row.time);
    const std::vector<float> values = Values(rows, dim);
    writer->Upsert(table, View(upserted), values.data(), steps.data(), times.data());
    writer->SetAgesAt(table, step, time);
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  // Of few keys, some of them at the ends of what there is.
  int64_t Key(int64_t most) {
    const int64_t key = Below(most);
    if (key == 0) return std::numeric_limits<int64_t>::min();
    return key == 1 ? std::numeric_limits<int64_t>::max() : key - most / 2;
  }
  Change Next(const SharedTableSpec& spec, int round, int64_t most) {
    Change change;
    change.clear = spec.vocabulary == 0 && Below(12) == 0;
    const int64_t n = Below(round % 7 == 0 ? most : most / 8);
    for (int64_t i = 0; i < n; ++i) {
      change.upserted.push_back(spec.vocabulary > 0 ? Below(spec.vocabulary) : Key(most));
      change.rows.push_back({static_cast<float>(Below(1000)),
                             static_cast<uint32_t>(round + Below(2)),
                             static_cast<uint32_t>(Below(3) == 0 ? 0 : round)});
      if (spec.vocabulary == 0 && Below(4) == 0) change.erased.push_back(Key(most));
    }
    change.step = change.time = round;
    return change;
  }

 private:
  std::mt19937_64 engine_;
};

// All keys that there may be, as a reader reads them.
void ExpectReads(const SharedMemory& memory, const SharedReader& reader, int place, size_t table,
                 const Model& model, const Change& last, uint32_t first_time, int64_t most) {
  const SharedTableSpec& spec = memory.spec(table);
  std::vector<int64_t> ids = {std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()};
  for (int64_t key = -most / 2; key < most; ++key) ids.push_back(key);
  const std::vector<float> unknown(spec.dim, -5.0f);
  std::vector<float> out(ids.size() * spec.dim);
  IdFilter filter;
  filter.has_padding = true;
  filter.padding_key = 3;
  if (spec.vocabulary > 0) {
    ids.resize(2);
    ids[0] = 0, ids[1] = spec.vocabulary - 1;
    for (int64_t key = 0; key < spec.vocabulary; ++key) ids.push_back(key);
    out.resize(ids.size() * spec.dim);
  }
  reader.Lookup(place, table, View(ids), filter, unknown.data(), "t", out.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    float expected = -5.0f;
    const auto found = model.find(ids[i]);
    if (found != model.end()) {
      const uint32_t time = found->second.time == 0 ? first_time : found->second.time;
      const bool old =
          (spec.max_idle_steps >= 0 && last.step - 1 - found->second.step >= spec.max_idle_steps) ||
          (spec.max_idle_seconds >= 0 && last.time - time >= spec.max_idle_seconds);
      if (!old) expected = found->second.value;
    }
    if (ids[i] == 3) expected = 0.0f;
    for (int32_t j = 0; j < spec.dim; ++j) {
      ASSERT_EQ(out[i * spec.dim + j], expected) << "key " << ids[i] << " of table " << table;
    }
  }
}

std::vector<SharedTableSpec> Specs() {
  return {Spec(3),          Spec(16, 8),        Spec(5, 4),
          Spec(2, 32, 500), Spec(1, 32, 0, 20), Spec(4, 8, 0, -1, 9)};
}

void FillVocabulary(SharedWriter* writer, size_t table, const SharedTableSpec& spec, Model* model) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < spec.vocabulary; ++key) {
    keys.push_back(key);
    (*model)[key] = {0.0f, 0, 0};
  }
  const std::vector<float> zeros(keys.size() * spec.dim);
  writer->Upsert(table, View(keys), zeros.data(), nullptr, nullptr);
}

TEST(SharedRowsTest, TablesAreWhatAModelOfThemIs) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const File file;
    const auto specs = Specs();
    const auto memory = NewMemory(file, specs);
    const int64_t most = 2000;
    auto writer = std::make_unique<SharedWriter>(memory);
    SharedReader reader(memory, 8, 2);
    EXPECT_THROW(reader.Enter(), std::runtime_error);
    std::vector<Model> models(specs.size());
    Random random(seed);
    for (int round = 1; round <= 40; ++round) {
      std::vector<Change> changes(specs.size());
      if (round == 5) {  // one that is forgotten
        changes[0] = random.Next(specs[0], round, most);
        changes[0].Give(writer.get(), 0, specs[0].dim);
        writer->Abort();
      }
      for (size_t t = 0; t < specs.size(); ++t) {
        if (round == 1) {
          writer->Clear(t);
          writer->Reserve(t, 1000);
          FillVocabulary(writer.get(), t, specs[t], &models[t]);
          writer->SetFirstTime(t, 3);
        }
        changes[t] = random.Next(specs[t], round, most);
        changes[t].Give(writer.get(), t, specs[t].dim);
        changes[t].Apply(&models[t]);
        if (round % 10 == 0) writer->EraseOld(t);
      }
      const std::string blob(round * 100, static_cast<char>('a' + round % 26));
      writer->Publish(blob, "s" + std::to_string(round));
      if (round % 3 == 0) writer->Settle();
      if (round % 4 == 0) writer->PublishStatus("t" + std::to_string(round));
      if (round % 5 == 0) {  // another writer, before or after it settled
        if (round % 2 == 0) {
          writer = nullptr;
        } else {
          writer->Settle();
        }
        writer = std::make_unique<SharedWriter>(memory);
      }
      const int place = reader.Enter();
      EXPECT_EQ(reader.Blob(place), blob);
      EXPECT_EQ(reader.Status(place), (round % 4 == 0 ? "t" : "s") + std::to_string(round));
      for (size_t t = 0; t < specs.size(); ++t) {
        ExpectReads(*memory, reader, place, t, models[t], changes[t], 3, most);
        if (HasFatalFailure()) return;
      }
      reader.Leave(place);
    }
    writer->Settle();
    for (size_t t = 0; t < specs.size(); ++t) {
      if (!specs[t].aged()) EXPECT_EQ(writer->Rows(t), models[t].size());
    }
  }
}

// Memory that was given back stays given back: as many rows again and again take no more.
TEST(SharedRowsTest, TakesRowsThatAreQuantisedAlready) {
  for (const int32_t bits : {8, 4}) {
    const File file;
    const auto memory = NewMemory(file, {Spec(3, bits), Spec(3, bits), Spec(3)});
    const std::vector<int64_t> keys = {5, -1, 5};
    const std::vector<float> values = {0.1f, 0.7f, -2.0f, 3.0f, 3.1f, 3.3f, 1.0f, 0.0f, 7.0f};
    const size_t width = 4 + memory->layout(0).code_bytes();
    std::vector<uint8_t> codes(keys.size() * width);
    for (size_t i = 0; i < keys.size(); ++i) {
      QuantiseNumbers(&values[3 * i], 3, bits, reinterpret_cast<char*>(&codes[i * width]));
    }
    SharedWriter writer(memory, 1);
    SharedReader reader(memory, 0, 1);
    const std::vector<float> unknown(3);
    for (const bool whole : {true, false}) {
      if (whole) {
        writer.Clear(0);
        writer.Clear(1);
      }
      writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
      writer.UpsertCodes(1, View(keys), codes.data(), width, nullptr, nullptr);
      EXPECT_THROW(writer.UpsertCodes(1, View(keys), codes.data(), width - 1, nullptr, nullptr),
                   std::invalid_argument);
      EXPECT_THROW(writer.UpsertCodes(2, View(keys), codes.data(), width, nullptr, nullptr),
                   std::invalid_argument);
      writer.Publish("state", "status");
      const int place = reader.Enter();
      std::vector<float> one(9), other(9);
      reader.Lookup(place, 0, View(keys), {}, unknown.data(), "t", one.data());
      reader.Lookup(place, 1, View(keys), {}, unknown.data(), "t", other.data());
      EXPECT_EQ(one, other);
      EXPECT_NE(one, std::vector<float>(9));
      reader.Leave(place);
    }
  }
}

TEST(SharedRowsTest, ReplacedAndErasedRowsAreFree) {
  const File file;
  const auto memory = NewMemory(file, {Spec(16)});
  SharedWriter writer(memory);
  std::vector<int64_t> keys(50000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i) * 977;
  const std::vector<float> values(keys.size() * 16, 1.0f);
  uint64_t first = 0;
  for (int round = 0; round < 8; ++round) {
    if (round % 2 == 0) writer.Clear(0);
    writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
    writer.Publish("blob", "");
    writer.Settle();
    if (round == 1) first = memory->BytesHeld();
    EXPECT_EQ(writer.Rows(0), keys.size());
    if (round > 1) EXPECT_LE(memory->BytesHeld(), first + (1 << 20));
  }
  writer.Erase(0, View(keys));
  writer.Publish("blob", "");
  writer.Settle();
  EXPECT_EQ(writer.Rows(0), 0u);
  SharedWriter(memory).Settle();  // which gives memory of rows back
  EXPECT_LT(memory->BytesHeld(), uint64_t{4} << 20);
}

TEST(SharedRowsTest, EachReaderReadsOneWholeVersionWhileOthersArePublished) {
  const File file;
  const auto memory = NewMemory(file, {Spec(4), Spec(8, 8)});
  SharedWriter writer(memory);
  const int64_t most = 4000;
  const auto publish = [&](int version) {
    for (size_t t = 0; t < 2; ++t) {
      const int32_t dim = memory->spec(t).dim;
      std::vector<int64_t> kept, gone;
      for (int64_t key = 0; key < most; ++key) {
        // Keys come and go, more of them the later it is: parts grow.
        ((key + version) % 5 == 0 || key > 400 + version * 50 ? gone : kept).push_back(key);
      }
      if (version % 16 == 9) writer.Clear(t);
      if (version % 16 != 9) writer.Erase(t, View(gone));
      const std::vector<float> values(kept.size() * dim, static_cast<float>(version));
      writer.Upsert(t, View(kept), values.data(), nullptr, nullptr);
    }
    writer.Publish(std::to_string(version), "");
  };
  publish(1);
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0}, wrong{0};
  std::vector<std::thread> threads;
  SharedReader reader(memory, 0, 2);  // fewer places than threads
  for (int n = 0; n < 3; ++n) {
    threads.emplace_back([&, n] {
      std::mt19937_64 random(n);
      std::vector<int64_t> ids(300);
      std::vector<float> out(ids.size() * 8);
      while (!stop.load()) {
        const int place = reader.Enter();
        const int version = std::stoi(reader.Blob(place));
        for (const size_t t : {0, 1}) {
          for (int64_t& id : ids) id = static_cast<int64_t>(random() % most);
          const int32_t dim = memory->spec(t).dim;
          const std::vector<float> unknown(dim, -1.0f);
          reader.Lookup(place, t, View(ids), {}, unknown.data(), "t", out.data());
          for (size_t i = 0; i < ids.size(); ++i) {
            const bool gone = (ids[i] + version) % 5 == 0 || ids[i] > 400 + version * 50;
            const float expected = gone ? -1.0f : static_cast<float>(version);
            for (int32_t j = 0; j < dim; ++j) wrong += out[i * dim + j] != expected;
          }
        }
        reader.Leave(place);
        ++reads;
      }
    });
  }
  for (int version = 2; version <= 60; ++version) {
    publish(version);
    if (version % 2 == 0) writer.Settle();
  }
  while (reads.load() < 50) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(SharedRowsTest, AReaderThatStaysIsNamedAndMayBeForgotten) {
  const File file;
  const auto memory = NewMemory(file, {Spec(2)});
  SharedWriter writer(memory, 0.05);
  SharedReader reader(memory, 40, 1);
  const std::vector<int64_t> keys = {1, 2};
  const std::vector<float> values(4, 1.0f), unknown(2, 0.0f);
  writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
  writer.Publish("one", "");
  writer.Settle();
  const int place = reader.Enter();
  const std::vector<float> others(4, 2.0f);
  writer.Upsert(0, View(keys), others.data(), nullptr, nullptr);
  writer.Publish("two", "");
  for (int tries = 0; tries < 2; ++tries) {
    try {
      writer.Settle();
      FAIL();
    } catch (const SharedReaderStuck& error) {
      EXPECT_EQ(error.reader, 40);
    }
  }
  std::vector<float> out(4);
  reader.Lookup(place, 0, View(keys), {}, unknown.data(), "t", out.data());
  EXPECT_EQ(out, values);  // it reads on as if nothing had happened
  memory->ClearReaders(40, 1);
  writer.Settle();
  EXPECT_EQ(writer.Blob(), "two");
}

// Memory that is mapped raises SIGBUS where its file has got shorter.
TEST(SharedRowsTest, TheFileKeepsItsLength) {
  const File file;
  const auto memory = NewMemory(file, {Spec(2)});
  for (const off_t bytes : {off_t{0}, off_t{1} << 40}) {
    EXPECT_EQ(ftruncate(file.fd, bytes), -1);
    EXPECT_EQ(errno, EPERM);
  }
  SharedWriter writer(memory);
  const std::vector<int64_t> keys = {7};
  const std::vector<float> values(2, 0.5f);
  writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
  writer.Publish("", "");  // memory is taken, and given back, all the same
  writer.Clear(0);
  writer.Publish("", "");
  writer.Settle();
}

TEST(SharedRowsTest, BadArgumentsAreRefused) {
  const File file;
  EXPECT_FALSE(SharedMemory::IsCreated(file.fd));
  EXPECT_THROW(SharedMemory(file.fd, SharedMemory::Access::kRead), SharedDamaged);
  EXPECT_THROW(SharedMemory::Create(file.fd, {Spec(0)}, kMost), std::invalid_argument);
  EXPECT_THROW(SharedMemory::Create(file.fd, {Spec(1, 16)}, kMost), std::invalid_argument);
  EXPECT_THROW(SharedMemory::Create(file.fd, {Spec(1, 8, -1)}, kMost), std::invalid_argument);
  const auto memory = NewMemory(file, {Spec(2, 32, 10)});
  SharedWriter writer(memory);
  const std::vector<int64_t> keys = {9, 10};
  const std::vector<float> values(4);
  EXPECT_THROW(writer.Upsert(0, View(keys), values.data(), nullptr, nullptr),
               std::invalid_argument);
  EXPECT_THROW(writer.Erase(0, View(keys)), std::invalid_argument);
  EXPECT_THROW(writer.Clear(1), std::invalid_argument);
  EXPECT_THROW(writer.PublishStatus(""), std::invalid_argument);
  writer.Publish("", "");
  SharedReader reader(memory, 0, 1);
  EXPECT_THROW(reader.State(0), std::invalid_argument);
  const int place = reader.Enter();
  std::vector<float> out(4);
  EXPECT_THROW(reader.Lookup(place, 0, View(keys), {}, values.data(), "t", out.data()),
               std::invalid_argument);
  EXPECT_THROW(reader.Lookup(place, 1, View(keys), {}, values.data(), "t", out.data()),
               std::invalid_argument);
  reader.Leave(place);
  EXPECT_THROW(reader.Leave(place), std::invalid_argument);
  EXPECT_THROW(SharedReader(memory, kSharedReaders, 1), std::invalid_argument);
}

// More rows than a table may ever have: the change is refused, the state stays.
TEST(SharedRowsTest, AChangeThatHasNoRoomChangesNothing) {
  const File file;
  const auto memory = NewMemory(file, {Spec(1024)});
  SharedWriter writer(memory);
  std::vector<int64_t> keys = {5};
  std::vector<float> values(1024, 3.0f);
  writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
  writer.Publish("small", "");
  keys.resize(20000);
  values.resize(keys.size() * 1024);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  EXPECT_THROW(writer.Upsert(0, View(keys), values.data(), nullptr, nullptr), std::bad_alloc);
  writer.Abort();
  writer.Settle();
  EXPECT_EQ(writer.Rows(0), 1u);
  SharedReader reader(memory, 0, 1);
  const int place = reader.Enter();
  std::vector<float> out(1024), unknown(1024);
  const std::vector<int64_t> five = {5};
  reader.Lookup(place, 0, View(five), {}, unknown.data(), "t", out.data());
  EXPECT_EQ(out[1023], 3.0f);
}

TEST(SharedRowsTest, ADamagedRootIsRefused) {
  const File file;
  const auto memory = NewMemory(file, {Spec(2)});
  {
    SharedWriter writer(memory);
    const std::vector<int64_t> keys = {1, 2};
    const std::vector<float> values(4, 1.0f);
    writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
    writer.Publish("one", "");
    writer.Settle();
  }
  SharedControl& control = memory->control();
  auto* root = memory->At<SharedRoot>(control.roots[control.sequence % kSharedRoots].load());
  const auto damaged = [&](uint64_t* number, uint64_t value) {
    const uint64_t before = *number;
    *number = value;
    EXPECT_THROW(SharedWriter{memory}, SharedDamaged);
    SharedReader reader(memory, 0, 1);
    EXPECT_THROW(reader.Enter(), SharedDamaged);
    *number = before;
  };
  damaged(&root->magic, 0);
  damaged(&root->blob.bytes, uint64_t{1} << 60);
  damaged(&root->table()->parts[7].buckets, uint64_t{1} << 50);
  damaged(&root->table()->end, uint64_t{1} << 40);
  damaged(&root->table()->overlay_entries, 3);
  const uint64_t end = root->table()->end;
  root->table()->end = 1;
  EXPECT_THROW(SharedWriter{memory}, SharedDamaged);  // a slot behind it
  root->table()->end = end;
  SharedWriter{memory};
}

#if !defined(MSREC_SANITIZED)
// A writer that is killed anywhere leaves the state before or the one after, and the next writer
// goes on from there.
TEST(SharedRowsTest, AKilledWriterLeavesAWholeState) {
  const File file;
  const auto specs = Specs();
  const auto memory = NewMemory(file, specs);
  const int64_t most = 4000;
  std::vector<Model> models(specs.size());
  std::vector<Change> last(specs.size());
  Random random(11);
  {
    SharedWriter writer(memory);
    for (size_t t = 0; t < specs.size(); ++t) {
      writer.Clear(t);
      FillVocabulary(&writer, t, specs[t], &models[t]);
    }
    writer.Publish("0", "");
  }
  int before = 0, after = 0;
  double longest = 4000;  // microseconds until the kill; follows the machine's speed
  for (int round = 1; round <= 80; ++round) {
    std::vector<Change> changes;
    for (const SharedTableSpec& spec : specs) changes.push_back(random.Next(spec, round, most));
    const int64_t pause = random.Below(static_cast<int64_t>(longest));
    const pid_t child = fork();
    if (child == 0) {
      SharedWriter writer(memory);
      for (size_t t = 0; t < specs.size(); ++t) changes[t].Give(&writer, t, specs[t].dim);
      writer.Publish(std::to_string(round), "");
      writer.Settle();
      for (;;) ::pause();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const bool early = random.Below(2) == 0;  // readers before another writer came
    std::optional<SharedWriter> writer;
    if (!early) writer.emplace(memory);
    SharedReader reader(memory, 0, 1);
    const int place = reader.Enter();
    if (reader.Blob(place) == std::to_string(round)) {
      for (size_t t = 0; t < specs.size(); ++t) changes[t].Apply(&models[t]);
      last = changes;
      ++after;
      longest = std::max(longest * 0.8, 100.0);
    } else {
      ++before;
      longest = std::min(longest * 1.25, 1e6);
    }
    for (size_t t = 0; t < specs.size(); ++t) {
      ExpectReads(*memory, reader, place, t, models[t], last[t], 0, most);
      if (HasFatalFailure()) return;
    }
    reader.Leave(place);
  }
  EXPECT_GT(before, 5);
  EXPECT_GT(after, 5);
}
#endif

}  // namespace
}  // namespace msrec
