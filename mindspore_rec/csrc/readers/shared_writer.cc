// SPDX-License-Identifier: Apache-2.0
#include "readers/shared_writer.h"

#include <cstring>
#include <utility>

#include "readers/shared_writer_parts.h"

namespace msrec {

using namespace shared_index;  // NOLINT: functions on the same memory

SharedWriter::SharedWriter(std::shared_ptr<SharedMemory> memory, double patience_seconds)
    : memory_(std::move(memory)),
      patience_(patience_seconds),
      hasher_(memory_->control().hash_seed),
      arena_(memory_.get()) {
  for (size_t t = 0; t < memory_->tables(); ++t) {
    tables_.push_back(std::make_unique<Table>(memory_.get(), t));
  }
  changes_.resize(memory_->tables());
  Recover();
}

SharedWriter::~SharedWriter() = default;

SharedRoot* SharedWriter::Root() const {
  const uint64_t now = sequence();
  return memory_->At<SharedRoot>(memory_->control().roots[now % kSharedRoots].load());
}

std::string SharedWriter::Copy(const SharedBlob& blob) const {
  return {memory_->At<char>(blob.offset), blob.bytes};
}
std::string SharedWriter::Blob() const { return published() ? Copy(Root()->blob) : ""; }
std::string SharedWriter::Status() const { return published() ? Copy(Root()->status) : ""; }

SharedBlob SharedWriter::NewBlob(const std::string& contents) {
  const SharedBlob blob{arena_.Allocate(contents.size()), contents.size()};
  std::memcpy(memory_->At<char>(blob.offset), contents.data(), contents.size());
  return blob;
}

uint64_t SharedWriter::Rows(size_t table) const {
  return published() ? Root()->table()[table].rows : 0;
}
uint64_t SharedWriter::FirstTime(size_t table) const {
  return published() ? Root()->table()[table].first_time : 0;
}

std::unique_ptr<char[]> SharedWriter::NextRoot() const {
  const size_t bytes = SharedRoot::Bytes(memory_->tables());
  std::unique_ptr<char[]> made(new char[bytes]);
  auto* root = new (made.get()) SharedRoot;
  for (size_t t = 0; t < memory_->tables(); ++t) new (root->table() + t) SharedTableRoot;
  if (published()) std::memcpy(made.get(), Root(), bytes);
  root->sequence = sequence() + 1;
  root->tables = memory_->tables();
  return made;
}

// Allocate memory for a root. Also reserve memory in `retired_`, the list of the memory ranges that
// only older roots reach.
uint64_t SharedWriter::RootPlace() {
  retired_.reserve(retired_.size() + memory_->tables() + 1);
  return arena_.Allocate(SharedRoot::Bytes(memory_->tables()));
}

// Publish a root; all later calls of Enter use this root. `retired` contains the memory ranges that
// can be reached only from older roots, and must have capacity for one more range.
void SharedWriter::PublishRoot(const char* root, uint64_t offset, std::vector<SharedBlob> retired) {
  const size_t bytes = SharedRoot::Bytes(memory_->tables());
  SharedControl& control = memory_->control();
  const uint64_t before = control.sequence.load();
  std::memcpy(memory_->At<char>(offset), root, bytes);
  if (before != 0) retired.push_back({control.roots[before % kSharedRoots].load(), bytes});
  retired_.emplace_back();
  retired_.back().ranges = std::move(retired);
  control.roots[(before + 1) % kSharedRoots].store(offset);
  control.sequence.store(before + 1);
}

void SharedWriter::Publish(const std::string& blob, const std::string& status) {
  Settle();
  auto made = NextRoot();
  auto* root = reinterpret_cast<SharedRoot*>(made.get());
  std::vector<SharedBlob> fresh, old;
  std::vector<Retired> retired;
  uint64_t place = 0;
  try {
    fresh.reserve(memory_->tables() + 2);
    if (root->blob.bytes != 0 || root->blob.offset != 0) old = {root->blob, root->status};
    root->blob = NewBlob(blob);
    fresh.push_back(root->blob);
    root->status = NewBlob(status);
    fresh.push_back(root->status);
    root->state = root->sequence;
    for (size_t t = 0; t < changes_.size(); ++t) {
      if (changes_[t] == nullptr) continue;
      const Change& change = *changes_[t];
      SharedTableRoot& table = root->table()[t];
      table.ages_at_step = change.ages_at.step;
      table.ages_at_time = change.ages_at.time;
      table.first_time = change.first_time;
      table.end = tables_[t]->slots.end();
      if (change.replaces) {
        Retired gone;
        gone.table = t;
        table.rows = 0;
        for (int p = 0; p < kSharedParts; ++p) {
          gone.whole.push_back(table.parts[p]);
          table.parts[p] = change.parts[p];
          table.rows += change.rows[p];
        }
        retired.push_back(std::move(gone));
      } else if (!change.staged.entries().empty()) {
        const uint64_t entries = change.staged.places();
        table.overlay = arena_.Allocate(entries * sizeof(SharedChange));
        table.overlay_entries = entries;
        fresh.push_back({table.overlay, entries * sizeof(SharedChange)});
        auto* overlay = memory_->At<SharedChange>(table.overlay);
        std::memset(static_cast<void*>(overlay), 0, entries * sizeof(SharedChange));
        for (const SharedTableChange::Entry& each : change.staged.entries()) {
          const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(each.key));
          *FindChange(overlay, entries, hash, each.key) = {each.key, each.slot, each.kind};
        }
      }
    }
    old.reserve(old.size() + 1);
    place = RootPlace();
  } catch (...) {
    for (const SharedBlob& each : fresh) arena_.Free(each.offset, each.bytes);
    throw;
  }
  PublishRoot(made.get(), place, std::move(old));
  for (Retired& each : retired) retired_.push_back(std::move(each));
  for (size_t t = 0; t < changes_.size(); ++t) {
    if (changes_[t] != nullptr && changes_[t]->replaces) tables_[t]->rows = changes_[t]->rows;
    changes_[t].reset();
  }
}

void SharedWriter::PublishStatus(const std::string& status) {
  if (!published()) throw std::invalid_argument("a state must be published before a status");
  Settle();
  auto made = NextRoot();
  auto* root = reinterpret_cast<SharedRoot*>(made.get());
  std::vector<SharedBlob> old = {root->status, {}};
  old.pop_back();  // reserves memory for one more element
  const uint64_t place = RootPlace();
  try {
    root->status = NewBlob(status);
  } catch (...) {
    arena_.Free(place, SharedRoot::Bytes(memory_->tables()));
    throw;
  }
  PublishRoot(made.get(), place, std::move(old));
}

}  // namespace msrec
