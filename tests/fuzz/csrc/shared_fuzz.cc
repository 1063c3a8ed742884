// SPDX-License-Identifier: Apache-2.0
//
// The memory that a server's processes share, with numbers that somebody changed. An input is
// changes of good memory with two tables: one of float32, whose last change is an overlay, and one
// of int4 over a vocabulary.
//
//   | flags 1 | change... |   flags: 1 read, 2 write, 4 changed while it is open
//   change: | part 1 | place 2 | number 8 |
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "fuzzer.h"
#include "readers/shared_memory.h"
#include "readers/shared_reader.h"
#include "readers/shared_writer.h"
#include "rows/row_layout.h"

namespace msrec {
namespace {

constexpr uint64_t kMost = 4 << 20;   // address space of each part
constexpr uint64_t kKept = 96 << 10;  // bytes of a part that anything is in
constexpr int64_t kKeys = 40;

IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

std::vector<int64_t> Keys(int64_t first, int64_t last) {
  std::vector<int64_t> keys;
  for (int64_t key = first; key < last; ++key) keys.push_back(key);
  return keys;
}

void Write(SharedWriter* writer, int64_t first, int64_t last) {
  const std::vector<int64_t> keys = Keys(first, last);
  const std::vector<uint32_t> ages(keys.size(), 1);
  // A damaged dim may be larger than the table's.
  const std::vector<float> values(keys.size() * kMaxDim, 1.0f);
  for (const size_t table : {0, 1}) {
    writer->Upsert(table, View(keys), values.data(), ages.data(), ages.data());
  }
}

// The memory, and what a part of it holds where nothing is damaged.
struct Good {
  Good() : fd(memfd_create("shared_fuzz", MFD_CLOEXEC)) {
    SharedMemory::Create(fd, {{3, 32, 0, 5, -1, 0, 0, 0, 0}, {5, 4, kKeys, -1, -1, 0, 0, 1, 0}},
                         kMost);
    const auto memory = std::make_shared<SharedMemory>(fd, SharedMemory::Access::kWrite);
    SharedWriter writer(memory);
    Write(&writer, 0, kKeys);
    writer.Publish("one", "fine");
    Write(&writer, kKeys / 2, kKeys);
    writer.Publish("two", "fine");
    const uint64_t root = memory->control().roots[memory->control().sequence % kSharedRoots];
    for (const uint64_t at :
         {uint64_t{0}, memory->arena_offset(), root, memory->At<SharedRoot>(root)->table()->overlay,
          memory->spec(0).rows_offset, memory->spec(1).rows_offset}) {
      parts.push_back({at, std::string(memory->At<char>(at), kKept)});
    }
  }

  void Restore() const {
    for (const auto& [at, bytes] : parts) Put(at, bytes.data(), bytes.size());
  }
  void Put(uint64_t at, const void* bytes, size_t n) const {
    if (pwrite(fd, bytes, n, static_cast<off_t>(at)) != static_cast<ssize_t>(n)) {
      throw std::logic_error("cannot write the memory's file");
    }
  }

  const int fd;
  std::vector<std::pair<uint64_t, std::string>> parts;
};

void Change(const Good& good, FuzzInput* input) {
  const auto& [begin, bytes] = good.parts[input->Take<uint8_t>() % good.parts.size()];
  const uint64_t at = begin + input->Take<uint16_t>() % (kKept / 8) * 8;
  const auto number = input->Take<uint64_t>();
  good.Put(at, &number, sizeof number);
}

template <typename Fn>
void Guarded(const Fn& fn) {
  try {
    fn();
  } catch (const SharedDamaged&) {
  } catch (const SharedReaderStuck&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::invalid_argument&) {  // a table that is not there, an id out of range
  }
}

void Read(const std::shared_ptr<SharedMemory>& memory) {
  SharedReader reader(memory, 0, 1);
  if (!reader.Ready()) return;
  const int place = reader.Enter();
  const std::vector<int64_t> ids = Keys(-3, kKeys + 3);
  const std::vector<float> unknown(kMaxDim, -1.0f);
  for (size_t table = 0; table < memory->tables(); ++table) {
    Guarded([&] {
      std::vector<float> out(ids.size() * static_cast<size_t>(memory->spec(table).dim));
      reader.Lookup(place, table, View(ids), {}, unknown.data(), "t", out.data());
      for (size_t part = 0; part < kSharedParts; ++part) {
        reader.Digests(place, table, part, [](int64_t, uint64_t) {});
      }
    });
  }
  Guarded([&] { static_cast<void>(reader.Blob(place) + reader.Status(place)); });
  reader.Leave(place);
}

void FuzzSharedMemory(const uint8_t* data, size_t size) {
  static const Good good;
  good.Restore();
  FuzzInput input(data, size);
  const auto flags = input.Take<uint8_t>();
  const auto change_all = [&] {
    for (int changes = 0; !input.empty() && changes < 40; ++changes) Change(good, &input);
  };
  if ((flags & 4) == 0) change_all();
  if ((flags & 1) != 0) {
    Guarded([&] {
      const auto memory = std::make_shared<SharedMemory>(good.fd, SharedMemory::Access::kRead);
      change_all();
      Read(memory);
    });
  }
  if ((flags & 2) != 0) {
    Guarded([&] {
      const auto memory = std::make_shared<SharedMemory>(good.fd, SharedMemory::Access::kWrite);
      SharedWriter writer(memory, 0.0);
      Write(&writer, 0, 8);
      writer.Publish("three", "fine");
      writer.Settle();
    });
  }
}

const AddFuzzTarget kSharedMemory("shared_memory", FuzzSharedMemory);

}  // namespace
}  // namespace msrec
