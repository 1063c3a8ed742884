// SPDX-License-Identifier: Apache-2.0
//
// Messages between workers about rows: consecutive values in the machine's native format. All
// workers run the same build on machines of one kind.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "rows/batch.h"
#include "rows/exported_rows.h"
#include "table/explanation.h"
#include "util/bytes.h"

namespace msrec {

// Requests to the worker that owns the rows. The comment of each request shows the request's
// arguments and the reply.
enum class RowRequest : uint32_t {
  kFind,        // ids, filter -> values, as an evaluation lookup reads them
  kInsert,      // ids, filter -> values, after keys without a row got one
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

// The outcome of a request, which is the first number of the reply. After this number, the reply
// contains the text of an error or the result of the request.
enum class RowReply : uint32_t { kDone, kInvalid, kFailed };

// Reads values from a message. Every method that reads throws std::runtime_error if the message is
// too short. TakeBool also throws if the value is neither true nor false.
class MessageReader {
 public:
  // Requires: the message outlives this object.
  explicit MessageReader(const std::string& message) : message_(message) {}

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, TakeBytes(sizeof value), sizeof value);
    return value;
  }
  bool TakeBool();
  std::string TakeString();
  // Reads n values into the caller's memory (TakeTo) or into a new array.
  template <typename T>
  void TakeTo(T* to, size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    CheckLeft(n, sizeof(T));
    CopyBytes(to, TakeBytes(n * sizeof(T)), n * sizeof(T));
  }
  template <typename T>
  std::unique_ptr<T[]> TakeArray(size_t n) {
    CheckLeft(n, sizeof(T));
    std::unique_ptr<T[]> array(new T[n]);
    TakeTo(array.get(), n);
    return array;
  }
  const char* TakeBytes(size_t n);
  size_t left() const { return message_.size() - at_; }
  // Throws if fewer than n values of `width` bytes remain.
  void CheckLeft(size_t n, size_t width) const;

 private:
  const std::string& message_;
  size_t at_ = 0;
};

// Writes consecutive values to a message.
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

// Requires: ids are int64 and contiguous.
void WriteIds(const IdView& ids, MessageWriter* out);
std::vector<int64_t> ReadIds(MessageReader* in);

// For a filter, a message contains only the padding key and the coefficient, because the owner of
// the rows has the table's vocabulary size.
void WriteFilter(const IdFilter& filter, MessageWriter* out);
IdFilter ReadFilter(MessageReader* in);

void WriteRows(const ExportedRows& rows, MessageWriter* out);
ExportedRows ReadRows(MessageReader* in);

// Writes the result of Table::Explain without the table's admission and eviction settings, which
// are the same on all workers.
void WriteExplanation(const Explanation& explanation, MessageWriter* out);
// Reads the fields that WriteExplanation writes. Leaves the admission and eviction settings in
// `explanation` unchanged.
void ReadExplanation(MessageReader* in, Explanation* explanation);

}  // namespace msrec
