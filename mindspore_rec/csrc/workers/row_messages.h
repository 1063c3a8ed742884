// SPDX-License-Identifier: Apache-2.0
//
// Messages about rows between workers: values one after another in the machine's own form, since
// all workers run one build on machines of one kind.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "table/exported_rows.h"
#include "util/bytes.h"

namespace msrec {

// What a request asks of the worker that owns rows.
enum class RowRequest : uint32_t {
  kFind,        // ids -> values, as an evaluation lookup reads them
  kInsert,      // ids -> values, after keys without a row got one
  kPut,         // ids, values
  kErase,       // ids -> number of rows there were
  kContains,    // ids -> bool
  kSize,        // -> number of rows
  kKeys,        // -> keys
  kExport,      // with_state -> rows
  kExportKeys,  // with_state, ids -> rows
  kImport,      // ids, values: rows with fresh state
  kExplain,     // key -> Explanation
};

// How a reply begins; the text of an error follows, or what was asked for.
enum class RowReply : uint32_t { kDone, kInvalid, kFailed };

// Reads values off a message, and throws std::runtime_error where it is too short.
class MessageReader {
 public:
  // Requires: the message outlives it.
  explicit MessageReader(const std::string& message) : message_(message) {}

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, TakeBytes(sizeof value), sizeof value);
    return value;
  }
  std::string TakeString();
  template <typename T>
  std::unique_ptr<T[]> TakeArray(size_t n) {
    CheckLeft(n, sizeof(T));
    std::unique_ptr<T[]> array(new T[n]);
    CopyBytes(array.get(), TakeBytes(n * sizeof(T)), n * sizeof(T));
    return array;
  }
  const char* TakeBytes(size_t n);
  size_t left() const { return message_.size() - at_; }

 private:
  void CheckLeft(size_t n, size_t width) const;

  const std::string& message_;
  size_t at_ = 0;
};

// Writes values one after another.
class MessageWriter {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    PutBytes(&value, sizeof value);
  }
  void PutString(const std::string& text);
  void PutBytes(const void* data, size_t n) { message_.append(static_cast<const char*>(data), n); }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

void WriteRows(const ExportedRows& rows, MessageWriter* out);
ExportedRows ReadRows(MessageReader* in);

}  // namespace msrec
