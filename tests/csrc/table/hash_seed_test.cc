// SPDX-License-Identifier: Apache-2.0
//
// Where in memory a key is looked for is another place in every process. Nothing that can be seen
// may tell: two processes with different secrets do the same lives and say the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "digest.h"
#include "map_tier.h"
#include "statistics.h"
#include "table/table.h"
#include "testing.h"
#include "tier_testing.h"
#include "util/bucket_hash.h"
#include "util/hash.h"

namespace msrec {
namespace {

constexpr int kDim = 4;

// Memory of indexes depends on how keys fall into their pieces. On time depend the waits, and which
// of the queue and the tiers has a row at the moment: their own counters.
bool IsUnlike(const std::string& statistic) {
  static const std::set<std::string> names = {"index_bytes",
                                              "candidate_bytes",
                                              "load_factor",
                                              "queued_rows",
                                              "lookup_wait_seconds",
                                              "prefetch_wait_seconds",
                                              "evaluation_wait_seconds"};
  return names.count(statistic) != 0 || statistic.rfind("remote_", 0) == 0 ||
         statistic.rfind("ssd_", 0) == 0;
}

class Log {
 public:
  void Add(const std::string& what, const void* data, size_t bytes) {
    char line[200];
    std::snprintf(line, sizeof line, "%s %s %016llx\n", life_.c_str(), what.c_str(),
                  static_cast<unsigned long long>(HashBytes(data, bytes)));
    text_ += line;
  }
  template <typename T>
  void Add(const std::string& what, const std::vector<T>& data) {
    Add(what + " " + std::to_string(data.size()), data.data(), data.size() * sizeof(T));
  }
  void Add(const std::string& what, const ExportedRows& rows) {
    Add(what + " keys " + std::to_string(rows.n), rows.keys.get(), rows.n * sizeof(int64_t));
    Add(what + " values", rows.values.get(), rows.n * rows.dim * sizeof(float));
    Add(what + " states", rows.states.get(), rows.n * rows.state_width * sizeof(float));
    Add(what + " counts", rows.counts.get(), rows.n * sizeof(uint32_t));
    Add(what + " last steps", rows.last_steps.get(), rows.n * sizeof(uint32_t));
    Add(what + " last times", rows.last_times.get(), rows.n * sizeof(uint32_t));
  }
  void AddState(Table* table) {
    std::vector<int64_t> evicted;
    for (const EvictedKey& each : table->eviction().Take()) {
      evicted.insert(evicted.end(), {each.key, each.step, static_cast<int64_t>(each.reason)});
    }
    Add("evicted", evicted);
    for (const auto& [name, value] : Named(table->Stats())) {
      if (IsUnlike(name)) continue;
      text_ += life_ + " " + name + " " + std::to_string(value) + "\n";
    }
  }
  void Begin(const std::string& life) { life_ = life; }
  const std::string& text() const { return text_; }

 private:
  std::string life_, text_;
};

// Below host memory: a tier in memory, and under it another one, or files in a directory.
struct Tiers {
  std::shared_ptr<MapTier> remote;
  const TestDirectory* directory = nullptr;
};

// `tiers`: also below host memory.
void Live(const TableConfig& config, Tiers* tiers, int steps, uint64_t distinct, Log* log) {
  log->Begin(config.name);
  Table table(config);
  if (tiers != nullptr) {
    CacheSettings settings;
    settings.host_rows = 6000;
    settings.levels.push_back({"remote",
                               [tiers](size_t row_bytes, int) {
                                 tiers->remote = std::make_shared<MapTier>(row_bytes);
                                 return tiers->remote;
                               },
                               4000});
    settings.levels.push_back({"ssd",
                               [tiers](size_t row_bytes, int generation) -> std::shared_ptr<Tier> {
                                 if (tiers->directory == nullptr) {
                                   return std::make_shared<MapTier>(row_bytes);
                                 }
                                 SsdOptions options = SmallOptions(tiers->directory->path() + "/" +
                                                                   std::to_string(generation));
                                 options.row_bytes = row_bytes;
                                 options.io_uring = false;
                                 options.background_gc = false;
                                 return std::make_shared<SsdTier>(options);
                               },
                               -1});
    table.tiers().SetCache(settings);
  }
  Rule rule;
  rule.kind = RuleKind::kAdagrad;
  rule.initial_accumulator = 0.1f;
  table.BindOptimizer(rule);
  table.eviction().Collect(true);
  const uint64_t mark = table.changes().Mark();
  Rng rng(HashBytes(config.name.data(), config.name.size()));
  for (int step = 1; step <= steps; ++step) {
    table.clock().SetEventTime(1000 + 10 * step);
    std::vector<int64_t> tickets;
    for (int lookup = 0; lookup < 2; ++lookup) {
      std::vector<int64_t> ids = rng.Keys(2500, distinct);
      for (int64_t& id : ids) {
        if (config.vocabulary > 0) id = static_cast<int64_t>(HashKey(id) % config.vocabulary);
      }
      std::vector<float> out(ids.size() * kDim);
      tickets.push_back(table.LookupTrain({ids.data(), ids.size(), true}, {}, out.data()));
      log->Add("rows", out);
    }
    for (const int64_t ticket : tickets) {
      const auto grad = rng.Floats(2500 * kDim);
      table.Accumulate(ticket, grad.data(), 2500);
    }
    const double norm = table.GradientSquaredNorm();
    log->Add("norm", &norm, sizeof norm);
    if (config.eviction.order == EvictionOrder::kScore) {
      const auto keys = rng.Keys(1000, distinct);
      const auto scores = rng.Floats(1000);
      table.eviction().SetScores({keys.data(), keys.size(), true}, scores.data());
    }
    // What is on its way down depends on time, and so does which of it a walk meets.
    if (tiers != nullptr) table.tiers().Flush();
    table.Step({0.05f, 0, 1, step, 0});
    if (tiers != nullptr) table.tiers().Flush();
    if (step % 3 == 0) {
      const auto keys = rng.Keys(400, distinct);
      if (config.vocabulary == 0) {
        const size_t erased = table.Erase({keys.data(), keys.size(), true});
        log->Add("erased", &erased, sizeof erased);
      }
      std::vector<int64_t> others = rng.Keys(400, distinct);
      for (int64_t& key : others) {
        if (config.vocabulary > 0) key = static_cast<int64_t>(HashKey(key) % config.vocabulary);
      }
      const auto values = rng.Floats(400 * kDim);
      table.Put({others.data(), others.size(), true}, values.data(), others.size());
    }
    if (step % 7 == 0) {
      const ExportedRows rows = table.Export(true);
      log->Add("export", rows);
      RowArrays arrays;
      arrays.keys = rows.keys.get();
      arrays.values = rows.values.get();
      arrays.states = rows.states.get();
      arrays.counts = rows.counts.get();
      table.Import(rows.n / 3, arrays, rows.state_width);
      const std::vector<RowMeta> counters = table.admission().ExportCounters();
      log->Add("counters", counters);
      if (!counters.empty()) table.admission().ImportCounters(counters);
      log->Add("sketch", table.admission().ExportSketch());
      log->Add("delta", table.changes().ExportSince(mark, true, true));
      log->Add("keys", table.Keys());
    }
    if (step % 11 == 0 && config.eviction.on_trigger) table.eviction().Evict(step % 2 == 0);
    if (tiers != nullptr) table.tiers().Flush();
    log->AddState(&table);
  }
  if (tiers != nullptr && tiers->remote != nullptr) {
    // What waits for a tier that takes nothing is walked over where it is.
    tiers->remote->FailWith([](const char* call) { return std::string(call) == "write"; });
    const auto ids = rng.Keys(5000, distinct);
    std::vector<float> out(ids.size() * kDim);
    table.LookupTrain({ids.data(), ids.size(), true}, {}, out.data());
    log->Add("waiting", table.Export(true));
    tiers->remote->FailWith(nullptr);
  }
  if (tiers != nullptr) table.tiers().Flush();
  table.Clear();
  log->AddState(&table);
}

std::vector<TableConfig> Configs() {
  TableConfig base;
  base.dim = kDim;
  base.initializer.kind = InitKind::kNormal;
  base.initializer.b = 0.1f;
  std::vector<TableConfig> configs;
  const auto add = [&](const std::string& name, auto change) {
    TableConfig config = base;
    config.name = name;
    change(&config);
    configs.push_back(config);
  };
  add("counts", [](TableConfig* c) {
    c->admission.threshold = 3;
    c->admission.max_candidates = 3000;
    c->eviction.max_idle_steps = 12;
  });
  add("sketch", [](TableConfig* c) {
    c->admission.kind = AdmissionKind::kSketch;
    c->admission.threshold = 3;
    c->admission.sketch_bytes = 16 << 10;
    c->eviction.max_rows = 2500;
  });
  add("dice", [](TableConfig* c) {
    c->admission.kind = AdmissionKind::kProbability;
    c->admission.probability = 0.3;
    c->eviction.max_idle_seconds = 60;
  });
  for (const auto& [name, order] : {std::pair{"lru", EvictionOrder::kLru},
                                    {"lfu", EvictionOrder::kLfu},
                                    {"decay", EvictionOrder::kLfuDecay},
                                    {"score", EvictionOrder::kScore}}) {
    add(name, [order = order](TableConfig* c) {
      c->eviction.order = order;
      c->eviction.half_life_steps = 5.0;
      c->eviction.max_rows = 15000;
    });
  }
  add("norm", [](TableConfig* c) { c->eviction.min_norm = 0.15f; });
  add("trigger", [](TableConfig* c) {
    c->eviction.on_trigger = true;
    c->eviction.max_idle_steps = 8;
    c->eviction.max_rows = 15000;
  });
  add("static", [](TableConfig* c) {
    c->vocabulary = 60000;
    c->outside_zeros = true;
  });
  return configs;
}

// A walk through the log that writers keep from its end, so that the index is asked for the rest.
void WalkBehindWriters(Log* log) {
  log->Begin("walk");
  const TestDirectory directory;
  SsdOptions options = SmallOptions(directory.path());
  options.background_gc = false;
  SsdTier tier(options);
  Rng rng(3);
  const auto write = [&](size_t n) {
    const auto keys = rng.Keys(n, 30000);
    std::vector<char> rows(n * options.row_bytes);
    for (size_t i = 0; i < n; ++i) rows[i * options.row_bytes] = static_cast<char>(rng.Bits());
    tier.Write(keys.data(), n, rows.data());
  };
  write(40000);
  const auto scan = tier.Scan(false);
  std::vector<int64_t> keys;
  std::vector<char> rows;
  while (scan->Next(500, &keys, &rows)) {
    log->Add("scanned", keys);
    log->Add("with", rows);
    write(800);
  }
}

#ifndef MSREC_SANITIZED  // which would take a third of its time for lives that other tests have too
std::string LivesWith(const char* seed) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) <= 0) return "no /proc";
  const std::string command =
      std::string(seed) + " MINDSPORE_REC_NUM_THREADS=2 '" + self.data() + "' --lives";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe)) {
    text.append(part.data(), n);
  }
  return pclose(pipe) == 0 ? text : "failed: " + text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(HashSeed, ProcessesWithDifferentSecretsDoTheSame) {
  const std::vector<const char*> seeds = {"MINDSPORE_REC_HASH_SEED=one",
                                          "env -u MINDSPORE_REC_HASH_SEED",
                                          "MINDSPORE_REC_HASH_SEED=two"};
  // Side by side: each takes longer than most tests.
  std::vector<std::future<std::string>> lives;
  for (const char* seed : seeds) lives.push_back(std::async(std::launch::async, LivesWith, seed));
  const auto first = Lines(lives[0].get());
  ASSERT_GT(first.size(), 1000u) << first.back();
  for (size_t life = 1; life < lives.size(); ++life) {
    const auto other = Lines(lives[life].get());
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      ASSERT_EQ(other[i], first[i]) << "line " << i << " with " << seeds[life];
    }
    ASSERT_EQ(other.size(), first.size());
  }
}
#endif

// Or the test above would say nothing.
TEST(HashSeed, SecretsAreThoseOfTheSeedOrRandom) {
  std::set<std::string> secrets;
  std::array<char, 4096> self{};
  ASSERT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  const auto ask = [&](const std::string& environment) {
    const std::string command = environment + " '" + self.data() + "' --secrets";
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 200> line{};
    EXPECT_NE(std::fgets(line.data(), line.size(), pipe), nullptr);
    EXPECT_EQ(pclose(pipe), 0);
    return std::string(line.data());
  };
  const std::string one = ask("MINDSPORE_REC_HASH_SEED=one");
  EXPECT_EQ(ask("MINDSPORE_REC_HASH_SEED=one"), one);
  secrets.insert(one);
  secrets.insert(ask("MINDSPORE_REC_HASH_SEED=two"));
  secrets.insert(ask("env -u MINDSPORE_REC_HASH_SEED"));
  secrets.insert(ask("env -u MINDSPORE_REC_HASH_SEED"));
  EXPECT_EQ(secrets.size(), 4u);
}

}  // namespace

std::string TableSecrets() {
  char line[100];
  std::snprintf(line, sizeof line, "%016llx %016llx %016llx\n",
                static_cast<unsigned long long>(BatchHash(0)),
                static_cast<unsigned long long>(IndexHash(0)),
                static_cast<unsigned long long>(process_hashers.tier.Hash(0)));
  return line;
}

std::string TableLives() {
  Log log;
  for (const TableConfig& config : Configs()) Live(config, nullptr, 22, 40000, &log);
  for (TableConfig config : Configs()) {
    if (config.vocabulary > 0) config.vocabulary = 20000;
    const TestDirectory directory;
    Tiers tiers;
    if (config.name == "lru") tiers.directory = &directory;
    config.name += " over tiers";
    Live(config, &tiers, tiers.directory == nullptr ? 12 : 8, 25000, &log);
  }
  WalkBehindWriters(&log);
  return log.text();
}

}  // namespace msrec
