// SPDX-License-Identifier: Apache-2.0
//
// The class SsdStore of the Python module: an SsdTier that reads and writes NumPy arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "tier/ssd_tier.h"
#include "util/process.h"

namespace msrec {

// Owner of an SsdTier that Python uses. A forked child cannot use or destroy the tier of its
// parent.
class SsdStore {
 public:
  explicit SsdStore(const SsdOptions& options);

  // Throws ForkedProcess in a forked child.
  SsdTier& tier() const {
    owner_.Require(subject_);
    return *tier_;
  }
  bool in_owner() const { return owner_.here(); }
  const std::string& path() const { return path_; }

 private:
  const OwnerProcess owner_;
  const std::unique_ptr<SsdTier, DeleteInOwner> tier_;
  const std::string path_, subject_;
};

void BindSsdStore(pybind11::module_& m);

}  // namespace msrec
