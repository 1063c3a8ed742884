// SPDX-License-Identifier: Apache-2.0
#include "table/cache/settings.h"

#include <stdexcept>

namespace msrec {

void CheckCacheSettings(const CacheSettings& settings, const std::string& subject) {
  const auto refuse = [&](const char* what) { throw std::invalid_argument(subject + what); };
  if (settings.levels.empty()) refuse("a cache needs a tier below host memory");
  if ((settings.host_rows >= 0) == (settings.host_bytes >= 0)) {
    refuse("a cache needs one of host_rows and host_bytes");
  }
  if (settings.host_rows == 0 || settings.host_bytes == 0) {
    refuse("host_rows and host_bytes must be >= 1");
  }
  if (settings.levels.back().max_rows >= 0) {
    refuse("the last tier cannot have a row limit: nothing is below it");
  }
}

}  // namespace msrec
