// SPDX-License-Identifier: Apache-2.0
//
// OwnedPart: a unique_ptr to a part of a table that its owner knows by name only: how it is deleted
// is noted where it is made, so that what is below a part need not include it.
#pragma once

#include <memory>

namespace msrec {

template <typename Part>
class PartDeleter {
 public:
  PartDeleter() = default;
  // Implicit: what std::make_unique returns becomes an OwnedPart.
  PartDeleter(std::default_delete<Part>)  // NOLINT
      : delete_([](Part* part) { delete part; }) {}
  void operator()(Part* part) const { delete_(part); }

 private:
  void (*delete_)(Part*) = nullptr;  // null: there was no part yet
};

template <typename Part>
using OwnedPart = std::unique_ptr<Part, PartDeleter<Part>>;

}  // namespace msrec
