// SPDX-License-Identifier: Apache-2.0
#include "table/table_engine.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "table/cache/row_cache.h"

namespace msrec {

void TableEngine::ForgetStep() {
  core.lookups.Forget();
  if (device_cache != nullptr) device_cache->ForgetStep();
  core.context.pins.BeginStep();
}

void TableEngine::FinishStep() {
  ForgetStep();
  evictor.FinishStep();
}

void TableEngine::ForEachPart(const IdView& ids, const char* what, const char* done,
                              const std::function<void(const IdView&, size_t)>& fn) {
  const size_t part = core.cache == nullptr ? ids.size : core.cache->host.PartKeys();
  for (size_t first = 0; first < ids.size; first += part) {
    IdView some = ids;
    const size_t width = ids.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
    some.data = static_cast<const char*>(ids.data) + first * ids.stride * width;
    some.size = std::min(part, ids.size - first);
    const auto so_far = [&](const std::string& error) {
      return error + "; of the " + std::to_string(ids.size) + " " + what + ", the first " +
             std::to_string(first) + " were " + done + ", the others were not";
    };
    try {
      fn(some, first);
    } catch (const std::bad_alloc&) {
      if (first == 0) throw;
      throw OutOfMemory(so_far(core.Where("out of memory")));
    } catch (const std::invalid_argument& error) {
      if (first == 0) throw;
      throw std::invalid_argument(so_far(error.what()));
    } catch (const std::runtime_error& error) {
      if (first == 0) throw;
      throw std::runtime_error(so_far(error.what()));
    }
  }
}

}  // namespace msrec
