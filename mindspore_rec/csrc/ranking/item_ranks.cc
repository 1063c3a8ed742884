// SPDX-License-Identifier: Apache-2.0
#include "ranking/item_ranks.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ranking/score_tile.h"
#include "util/for_blocks.h"

namespace msrec {
namespace {

constexpr size_t kMostUsers = 64;                // users of a tile
constexpr size_t kTileItems = 16 * kBlockItems;  // items of a tile

// Returns the number of users in a tile: at most kMostUsers, and fewer if larger tiles would leave
// threads idle.
size_t UsersOfTile(size_t users) {
  const auto threads = static_cast<size_t>(ThreadPool::Global().num_threads());
  const size_t share = (users + threads - 1) / threads;
  return std::max<size_t>(8, std::min(kMostUsers, (share + 7) / 8 * 8));
}

// For the users from `begin` to `end`, calls fn(first_item, items, scores, stride) for each tile of
// items, in the order of the items. The score of user `begin` + u and item first_item + i is
// scores[u * stride + i].
template <typename Fn>
void ForScoreTiles(const ScoredVectors& vectors, size_t begin, size_t end, const Fn& fn) {
  const ScoreTileLoop loop = ActiveScoreTile();
  const size_t users = end - begin;
  const size_t dim = vectors.dim;
  std::vector<float> packed(kTileItems * dim);
  std::vector<float> scores(users * kTileItems);
  for (size_t first = 0; first < vectors.num_items; first += kTileItems) {
    const size_t some = std::min(kTileItems, vectors.num_items - first);
    const size_t blocks = (some + kBlockItems - 1) / kBlockItems;
    const size_t stride = blocks * kBlockItems;
    PackItems(vectors.items + first * dim, some, dim, packed.data());
    loop(vectors.users + begin * dim, users, packed.data(), blocks, dim, scores.data());
    if (vectors.bias != nullptr) {
      for (size_t u = 0; u < users; ++u) {
        float* row = scores.data() + u * stride;
        for (size_t i = 0; i < some; ++i) row[i] += vectors.bias[first + i];
      }
    }
    fn(first, some, scores.data(), stride);
  }
}

// The items of a list, sorted and without repetitions, and the position of the last read item.
struct SortedItems {
  std::vector<int64_t> items;
  size_t place = 0;

  void Add(const ItemLists& lists, size_t list) {
    items.insert(items.end(), lists.values + lists.offsets[list],
                 lists.values + lists.offsets[list + 1]);
  }
  void Sort() {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
  }
  // Calls fn(item - first) for each item from `first` to `first` + `some` - 1. The range of each
  // call must follow the range of the previous call.
  template <typename Fn>
  void Take(size_t first, size_t some, const Fn& fn) {
    for (; place < items.size() && static_cast<size_t>(items[place]) < first + some; ++place) {
      fn(static_cast<size_t>(items[place]) - first);
    }
  }
};

float ScoreOfItem(const ScoredVectors& vectors, size_t user, size_t item) {
  const float score =
      ScoreOf(vectors.users + user * vectors.dim, vectors.items + item * vectors.dim, vectors.dim);
  return vectors.bias == nullptr ? score : score + vectors.bias[item];
}

// The score of a target item, the number of items with a higher score (`above`), and the number of
// items with an equal score (`tied`).
struct Standing {
  float score;
  int64_t above = 0;
  int64_t tied = 0;

  void Count(const float* scores, size_t n) {
    int32_t higher = 0;
    int32_t equal = 0;
    for (size_t i = 0; i < n; ++i) {
      higher += !(scores[i] <= score);
      equal += scores[i] == score;
    }
    above += higher;
    tied += equal;
  }
  void Uncount(float other) {
    above -= !(other <= score);
    tied -= other == score;
  }
};

void RankTargetsOfUsers(const ScoredVectors& vectors, const ItemLists& targets,
                        const ItemLists& masked, size_t begin, size_t end, double* ranks) {
  const int64_t first_target = targets.offsets[begin];
  std::vector<SortedItems> left_out(end - begin);
  std::vector<Standing> standings;
  standings.reserve(static_cast<size_t>(targets.offsets[end] - first_target));
  for (size_t user = begin; user < end; ++user) {
    SortedItems& out = left_out[user - begin];
    out.Add(masked, user);
    out.Add(targets, user);
    out.Sort();
    for (int64_t n = targets.offsets[user]; n < targets.offsets[user + 1]; ++n) {
      standings.push_back({ScoreOfItem(vectors, user, static_cast<size_t>(targets.values[n]))});
    }
  }
  const auto of_tile = [&](size_t first, size_t some, const float* scores, size_t stride) {
    for (size_t user = begin; user < end; ++user) {
      const float* row = scores + (user - begin) * stride;
      Standing* const from = standings.data() + (targets.offsets[user] - first_target);
      Standing* const to = standings.data() + (targets.offsets[user + 1] - first_target);
      for (Standing* each = from; each != to; ++each) each->Count(row, some);
      left_out[user - begin].Take(first, some, [&](size_t item) {
        for (Standing* each = from; each != to; ++each) each->Uncount(row[item]);
      });
    }
  };
  ForScoreTiles(vectors, begin, end, of_tile);
  for (size_t n = 0; n < standings.size(); ++n) {
    ranks[static_cast<size_t>(first_target) + n] = 1.0 + static_cast<double>(standings[n].above) +
                                                   0.5 * static_cast<double>(standings[n].tied);
  }
}

struct Scored {
  float score;
  int64_t item;
};

bool IsBefore(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.item < b.item);
}

// The best k items so far. Items must be added in ascending order.
struct Best {
  std::vector<Scored> heap;  // the first item of the heap is the worst

  void Add(const float* scores, size_t first, size_t some, size_t k) {
    for (size_t i = 0; i < some; ++i) {
      const float score = scores[i];
      if (heap.size() == k) {
        if (!(score > heap.front().score)) continue;
        std::pop_heap(heap.begin(), heap.end(), IsBefore);
        heap.pop_back();
      } else if (score != score) {
        continue;
      }
      heap.push_back({score, static_cast<int64_t>(first + i)});
      std::push_heap(heap.begin(), heap.end(), IsBefore);
    }
  }
};

void TopItemsOfUsers(const ScoredVectors& vectors, const ItemLists& masked, size_t begin,
                     size_t end, size_t k, int64_t* items, float* scores) {
  std::vector<SortedItems> left_out(end - begin);
  std::vector<Best> best(end - begin);
  for (size_t user = begin; user < end; ++user) {
    left_out[user - begin].Add(masked, user);
    left_out[user - begin].Sort();
    best[user - begin].heap.reserve(std::min(k, vectors.num_items));
  }
  const auto of_tile = [&](size_t first, size_t some, float* tile, size_t stride) {
    for (size_t u = 0; u < end - begin; ++u) {
      float* row = tile + u * stride;
      left_out[u].Take(first, some, [&](size_t item) {
        row[item] = std::numeric_limits<float>::quiet_NaN();  // so that the item is never among the
                                                              // best items
      });
      best[u].Add(row, first, some, k);
    }
  };
  ForScoreTiles(vectors, begin, end, of_tile);
  for (size_t u = 0; u < end - begin; ++u) {
    std::vector<Scored>& found = best[u].heap;
    std::sort(found.begin(), found.end(), IsBefore);
    const size_t row = (begin + u) * k;
    for (size_t place = 0; place < k; ++place) {
      const bool has = place < found.size();
      items[row + place] = has ? found[place].item : -1;
      scores[row + place] = has ? found[place].score : -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

void RankTargets(const ScoredVectors& vectors, const ItemLists& targets, const ItemLists& masked,
                 double* ranks) {
  ForBlocks(vectors.num_users, UsersOfTile(vectors.num_users), [&](size_t begin, size_t end) {
    RankTargetsOfUsers(vectors, targets, masked, begin, end, ranks);
  });
}

void TopItems(const ScoredVectors& vectors, const ItemLists& masked, size_t k, int64_t* items,
              float* scores) {
  if (k == 0) return;
  ForBlocks(vectors.num_users, UsersOfTile(vectors.num_users), [&](size_t begin, size_t end) {
    TopItemsOfUsers(vectors, masked, begin, end, k, items, scores);
  });
}

}  // namespace msrec
