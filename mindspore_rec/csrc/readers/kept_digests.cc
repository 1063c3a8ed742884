// SPDX-License-Identifier: Apache-2.0
#include "readers/kept_digests.h"

#include <algorithm>
#include <utility>

namespace msrec {
namespace {

constexpr size_t kFirstHomes = 16;

// Return the maximum number of keys in a part with `homes` home places.
size_t MostKeys(size_t homes) { return homes - homes / 5; }

}  // namespace

// The index of KeptDigests hashes keys with its own secrets. If two indexes used the same secrets,
// keys that are read in the order of one index would collide in the other index.
KeptDigests::KeptDigests() : hasher_(process_hashers.index.Hash(0x6b657074)) {}

uint64_t KeptDigests::FirstHash(size_t part, size_t home, size_t homes) {
  const unsigned __int128 scaled = (static_cast<unsigned __int128>(home) << 64) + homes - 1;
  const auto low = static_cast<uint64_t>(scaled / homes);  // fits, because home < homes
  const uint64_t within = (low >> 6) + ((low & 63) != 0 ? 1 : 0);
  return (static_cast<uint64_t>(part) << 58) + within;
}

size_t KeptDigests::Find(const Part& part, uint64_t hash, int64_t key) {
  size_t place = HomeOf(hash, part.homes);
  const size_t end = part.checks.size();
  while (place < end && part.checks[place] != 0 && part.keys[place] != key) ++place;
  return place;
}

void KeptDigests::Resize(Part* part, size_t homes) const {
  for (;; homes += homes / 2) {
    Part larger;
    larger.homes = std::max(homes, kFirstHomes);
    larger.keys.resize(larger.homes + kSlack);
    larger.checks.resize(larger.homes + kSlack);
    larger.size = part->size;
    bool fits = true;
    for (size_t i = 0; i < part->checks.size() && fits; ++i) {
      if (part->checks[i] == 0) continue;
      const size_t place = Find(larger, HashOf(part->keys[i]), part->keys[i]);
      fits = place < larger.checks.size();
      if (!fits) break;
      larger.keys[place] = part->keys[i];
      larger.checks[place] = part->checks[i];
    }
    if (!fits) continue;
    *part = std::move(larger);
    return;
  }
}

void KeptDigests::SetOne(int64_t key, uint32_t check) {
  const uint64_t hash = HashOf(key);
  Part& part = parts_[PartOf(hash)];
  if (part.homes == 0) Resize(&part, kFirstHomes);
  size_t place = Find(part, hash, key);
  if (place < part.checks.size() && part.checks[place] != 0) {
    part.checks[place] = check;
    return;
  }
  while (part.size >= MostKeys(part.homes) || place == part.checks.size()) {
    Resize(&part, part.homes + part.homes / 2);
    place = Find(part, hash, key);
  }
  part.keys[place] = key;
  part.checks[place] = check;
  ++part.size;
}

void KeptDigests::EraseOne(int64_t key) {
  const uint64_t hash = HashOf(key);
  Part& part = parts_[PartOf(hash)];
  size_t place = part.homes == 0 ? part.checks.size() : Find(part, hash, key);
  if (place == part.checks.size() || part.checks[place] == 0) return;
  // Close the gap: move later keys to lower places, but no key to a place below the key's home.
  for (size_t next = place + 1; next < part.checks.size() && part.checks[next] != 0; ++next) {
    if (HomeOf(HashOf(part.keys[next]), part.homes) > place) continue;
    part.keys[place] = part.keys[next];
    part.checks[place] = part.checks[next];
    place = next;
  }
  part.checks[place] = 0;
  --part.size;
}

void KeptDigests::Set(const int64_t* keys, const uint64_t* digests, size_t n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < n; ++i) SetOne(keys[i], CheckOf(digests[i]));
}

void KeptDigests::Erase(const int64_t* keys, size_t n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < n; ++i) EraseOne(keys[i]);
}

void KeptDigests::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Part& part : parts_) part = {};
}

void KeptDigests::Reserve(size_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t homes = (rows / kParts + 1) * 4 / 3;
  for (Part& part : parts_) {
    if (part.homes < homes) Resize(&part, homes);
  }
}

size_t KeptDigests::Size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t size = 0;
  for (const Part& part : parts_) size += part.size;
  return size;
}

size_t KeptDigests::Bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t places = 0;
  for (const Part& part : parts_) places += part.checks.size();
  return places * (sizeof(int64_t) + sizeof(uint32_t));
}

uint64_t KeptDigests::Next(uint64_t place, size_t least, std::vector<int64_t>* keys,
                           std::vector<uint32_t>* checks) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t enough = keys->size() + least;
  for (size_t p = PartOf(place); p < kParts; ++p) {
    const Part& part = parts_[p];
    size_t i = p == PartOf(place) && part.homes > 0 ? HomeOf(place, part.homes) : 0;
    for (; i < part.checks.size(); ++i) {
      if (part.checks[i] != 0) {
        keys->push_back(part.keys[i]);
        checks->push_back(part.checks[i]);
      } else if (keys->size() >= enough && i + 1 < part.homes) {
        // Place i is free. No place between a key's home and the key itself is free, so a key that
        // is stored after place i also has its home after place i.
        return FirstHash(p, i + 1, part.homes);
      }
    }
    if (keys->size() >= enough && p + 1 < kParts) return static_cast<uint64_t>(p + 1) << 58;
  }
  return 0;
}

}  // namespace msrec
