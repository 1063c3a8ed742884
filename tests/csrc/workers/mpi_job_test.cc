// SPDX-License-Identifier: Apache-2.0
#include "workers/mpi_job.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace msrec {
namespace {

TEST(MpiJob, RefusesSizesOfMessagesThatMpiCannotCount) {
  MpiJobOptions options;
  options.shim = "/there/is/no/_mpi.so";
  for (const size_t bytes : {size_t{0}, size_t{1} << 31, size_t{1} << 40}) {
    options.most_bytes = bytes;
    EXPECT_THROW(MpiJob::Start(options), std::invalid_argument) << bytes;
  }
  options.most_bytes = (size_t{1} << 31) - 1;
  EXPECT_THROW(MpiJob::Start(options), WorkerError);
}

}  // namespace
}  // namespace msrec
