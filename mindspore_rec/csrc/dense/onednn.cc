// SPDX-License-Identifier: Apache-2.0
#include "dense/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "dense/onednn_api.h"
#include "util/aligned.h"

namespace msrec {
namespace {

using namespace onednn;  // NOLINT: names of one small header

constexpr size_t kMostProducts = 4096;
constexpr size_t kMostOperands = 4;         // operands of a primitive, including its scratchpad
constexpr size_t kMostBoundByThread = 256;  // primitives

Functions dnn;
Engine* engine = nullptr;
std::string version_text;
bool bfloat16_is_fast = false;
std::mutex load_mutex;
bool is_loaded = false;

void Check(Status status, const char* what) {
  if (status == kSuccess) return;
  if (status == kOutOfMemory) throw std::bad_alloc();
  throw std::runtime_error(std::string("oneDNN ") + version_text + ": " + what +
                           " failed with status " + std::to_string(status));
}

// Owns an object of oneDNN. The destructor calls oneDNN's function to destroy the object.
template <typename T, Status (*Functions::*Destroy)(T*)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (object_ != nullptr) (dnn.*Destroy)(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T** out() { return &object_; }
  T* get() const { return object_; }

 private:
  T* object_ = nullptr;
};

using OwnedDesc = Owned<MemoryDesc, &Functions::memory_desc_destroy>;
using OwnedMemory = Owned<Memory, &Functions::memory_destroy>;
using OwnedAttr = Owned<PrimitiveAttr, &Functions::primitive_attr_destroy>;
using OwnedPostOps = Owned<PostOps, &Functions::post_ops_destroy>;
using OwnedPrimitiveDesc = Owned<PrimitiveDesc, &Functions::primitive_desc_destroy>;
using OwnedPrimitive = Owned<Primitive, &Functions::primitive_destroy>;
using OwnedStream = Owned<Stream, &Functions::stream_destroy>;

Stream* ThreadStream() {
  thread_local OwnedStream stream;
  if (stream.get() == nullptr) {
    Check(dnn.stream_create(stream.out(), engine, kInOrder), "dnnl_stream_create");
  }
  return stream.get();
}

void* ThreadScratchpad(size_t bytes) {
  thread_local AlignedMemory memory;
  return bytes == 0 ? nullptr : memory.AtLeast(bytes);
}

// Returns the memory objects of the operands of primitive `id`. Each thread keeps its own objects
// between runs, because creating the objects takes almost as long as a small product.
std::array<OwnedMemory, kMostOperands>& ThreadOperands(uint64_t id) {
  thread_local std::unordered_map<uint64_t, std::array<OwnedMemory, kMostOperands>> bound;
  const auto found = bound.find(id);
  if (found != bound.end()) return found->second;
  if (bound.size() >= kMostBoundByThread) bound.clear();
  return bound[id];
}

void Matrix(OwnedDesc* desc, int64_t rows, int64_t columns, int64_t ld, bool transposed, int type) {
  const Dims dims = {rows, columns};
  const Dims strides = {transposed ? 1 : ld, transposed ? ld : 1};
  Check(dnn.memory_desc_create_with_strides(desc->out(), 2, dims, type, strides),
        "dnnl_memory_desc_create_with_strides");
}

// A oneDNN primitive and its scratchpad. Any memory that matches the descriptors can be passed to
// the primitive.
class Runnable {
 public:
  void Create(const OwnedPrimitiveDesc& desc) {
    Check(dnn.primitive_create(primitive_.out(), desc.get()), "dnnl_primitive_create");
    static std::atomic<uint64_t> created{0};
    id_ = ++created;
    const MemoryDesc* scratchpad = dnn.primitive_desc_query_md(desc.get(), kQueryScratchpad, 0);
    if (scratchpad == nullptr) return;
    scratchpad_bytes_ = dnn.memory_desc_get_size(scratchpad);
    if (scratchpad_bytes_ == 0) return;
    Check(dnn.memory_desc_clone(scratchpad_.out(), scratchpad), "dnnl_memory_desc_clone");
  }

  struct Operand {
    int arg;
    const OwnedDesc* desc;
    const void* data;
  };

  template <size_t N>
  void Run(const Operand (&operands)[N]) const {
    static_assert(N < kMostOperands);
    std::array<OwnedMemory, kMostOperands>& memory = ThreadOperands(id_);
    ExecArg args[N + 1];
    int count = 0;
    const auto bind = [&](int arg, const OwnedDesc& desc, void* data) {
      OwnedMemory& bound = memory[static_cast<size_t>(count)];
      Bind(desc.get(), data, &bound);
      args[count++] = {arg, bound.get()};
    };
    for (const Operand& operand : operands) {
      bind(operand.arg, *operand.desc, const_cast<void*>(operand.data));
    }
    if (scratchpad_bytes_ != 0) {
      bind(kArgScratchpad, scratchpad_, ThreadScratchpad(scratchpad_bytes_));
    }
    Check(dnn.primitive_execute(primitive_.get(), ThreadStream(), count, args),
          "dnnl_primitive_execute");
  }

 private:
  static void Bind(const MemoryDesc* desc, void* data, OwnedMemory* memory) {
    if (memory->get() == nullptr) {
      Check(dnn.memory_create(memory->out(), desc, engine, data), "dnnl_memory_create");
    } else {
      Check(dnn.memory_set_data_handle(memory->get(), data), "dnnl_memory_set_data_handle");
    }
  }

  OwnedPrimitive primitive_;
  OwnedDesc scratchpad_;
  size_t scratchpad_bytes_ = 0;
  uint64_t id_ = 0;
};

class OneDnnProduct : public Product {
 public:
  explicit OneDnnProduct(const ProductShape& s) : reads_gaps_(MayReadGaps(s)) {
    const int type = s.type == FactorType::kFloat32 ? kF32 : kBf16;
    Matrix(&a_, s.m, s.k, s.lda, s.transposed_a, type);
    Matrix(&c_, s.m, s.n, s.ldc, false, kF32);
    OwnedAttr attr;
    Check(dnn.primitive_attr_create(attr.out()), "dnnl_primitive_attr_create");
    Check(dnn.primitive_attr_set_scratchpad_mode(attr.get(), kScratchpadUser),
          "dnnl_primitive_attr_set_scratchpad_mode");
    if (s.accumulates) {
      OwnedPostOps sum;
      Check(dnn.post_ops_create(sum.out()), "dnnl_post_ops_create");
      Check(dnn.post_ops_append_sum(sum.get(), 1.0f, 0, kUndefined), "dnnl_post_ops_append_sum");
      Check(dnn.primitive_attr_set_post_ops(attr.get(), sum.get()),
            "dnnl_primitive_attr_set_post_ops");
    }
    // A primitive runs on the calling thread, so the primitive is created for one thread.
    if (dnn.threadpool_interop_set_max_concurrency != nullptr) {
      Check(dnn.threadpool_interop_set_max_concurrency(1),
            "dnnl_threadpool_interop_set_max_concurrency");
    }
    OwnedPrimitiveDesc desc;
    if (s.packed_b) {
      const Dims dims = {s.k, s.n};
      OwnedDesc any;
      Check(dnn.memory_desc_create_with_tag(any.out(), 2, dims, type, kFormatAny),
            "dnnl_memory_desc_create_with_tag");
      OwnedPrimitiveDesc preferring;
      Describe(any, attr, &preferring);
      const MemoryDesc* preferred = dnn.primitive_desc_query_md(preferring.get(), kQueryWeights, 0);
      int blocks = 0;
      Check(dnn.memory_desc_query(preferred, kQueryInnerBlocks, &blocks), "dnnl_memory_desc_query");
      if (blocks > 0) {
        Check(dnn.memory_desc_clone(b_.out(), preferred), "dnnl_memory_desc_clone");
      } else {
        // If oneDNN proposes no special layout for the matrix B, the matrix is stored as plain
        // rows, with a stride that suits the cache.
        Matrix(&b_, s.k, s.n, LeadingDimension(s.transposed_b ? s.k : s.n), s.transposed_b, type);
      }
      packed_bytes_ = dnn.memory_desc_get_size(b_.get());
      Matrix(&unpacked_, s.k, s.n, s.ldb, s.transposed_b, kF32);
      OwnedPrimitiveDesc reorder;
      OwnedAttr user;
      Check(dnn.primitive_attr_create(user.out()), "dnnl_primitive_attr_create");
      Check(dnn.primitive_attr_set_scratchpad_mode(user.get(), kScratchpadUser),
            "dnnl_primitive_attr_set_scratchpad_mode");
      Check(dnn.reorder_primitive_desc_create(reorder.out(), unpacked_.get(), engine, b_.get(),
                                              engine, user.get()),
            "dnnl_reorder_primitive_desc_create");
      pack_.Create(reorder);
    } else {
      Matrix(&b_, s.k, s.n, s.ldb, s.transposed_b, type);
    }
    Describe(b_, attr, &desc);
    product_.Create(desc);
  }

  void Run(const void* a, const void* b, float* c) const override {
    product_.Run({{kArgSource, &a_, a}, {kArgWeights, &b_, b}, {kArgDestination, &c_, c}});
  }
  size_t packed_bytes() const override { return packed_bytes_; }
  void Pack(const float* b, void* packed) const override {
    pack_.Run({{kArgSource, &unpacked_, b}, {kArgDestination, &b_, packed}});
  }

 private:
  // Returns whether AMX may read the unused memory between the rows of A (oneDNN 3.10.1). AMX
  // multiplies the unused memory by zeros of the packed B. If the unused memory contains a NaN, the
  // result is NaN.
  static bool MayReadGaps(const ProductShape& s) {
    constexpr int64_t kBlock = 32;
    return s.type == FactorType::kBFloat16 && s.packed_b && !s.transposed_a && s.k % kBlock != 0 &&
           s.lda > s.k;
  }

  void Describe(const OwnedDesc& b, const OwnedAttr& attr, OwnedPrimitiveDesc* desc) const {
    Check(dnn.matmul_primitive_desc_create(desc->out(), engine, a_.get(), b.get(), nullptr,
                                           c_.get(), attr.get()),
          "dnnl_matmul_primitive_desc_create");
    while (reads_gaps_ && IsOfAmx(*desc)) {
      Check(dnn.primitive_desc_next_impl(desc->get()), "dnnl_primitive_desc_next_impl");
    }
  }

  static bool IsOfAmx(const OwnedPrimitiveDesc& desc) {
    const char* name = nullptr;
    Check(dnn.primitive_desc_query(desc.get(), kQueryImplementation, 0, &name),
          "dnnl_primitive_desc_query");
    return std::strstr(name, "amx") != nullptr;
  }

  const bool reads_gaps_;
  OwnedDesc a_, b_, c_, unpacked_;
  Runnable product_, pack_;
  size_t packed_bytes_ = 0;
};

struct ShapeHash {
  size_t operator()(const ProductShape& s) const {
    uint64_t h = 0;
    const int64_t flags = s.transposed_a | s.transposed_b << 1 | s.accumulates << 2 |
                          s.packed_b << 3 | static_cast<int>(s.type) << 4;
    for (const int64_t part : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc, flags}) {
      h = (h ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
      h ^= h >> 29;
    }
    return h;
  }
};

std::shared_mutex products_mutex;
std::unordered_map<ProductShape, std::shared_ptr<const Product>, ShapeHash>& Products() {
  // This object is never destroyed, because a thread may still use the object when the process
  // ends.
  static auto* products =
      new std::unordered_map<ProductShape, std::shared_ptr<const Product>, ShapeHash>;
  return *products;
}

// Returns whether oneDNN computes a small product correctly.
bool Multiplies() {
  constexpr int64_t kSide = 16;
  ProductShape small;
  small.m = small.n = small.k = small.lda = small.ldb = small.ldc = kSide;
  if (bfloat16_is_fast) small.type = FactorType::kBFloat16;
  // All elements of the test matrices are 1. A bfloat16 is the upper half of a float32.
  const float one = 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &one, sizeof(bits));
  const std::vector<uint16_t> half(kSide * kSide, static_cast<uint16_t>(bits >> 16));
  const std::vector<float> single(kSide * kSide, one);
  const void* ones = bfloat16_is_fast ? static_cast<const void*>(half.data()) : single.data();
  std::vector<float> product(kSide * kSide, 0.0f);
  OneDnnProduct(small).Run(ones, ones, product.data());
  return std::all_of(product.begin(), product.end(),
                     [](float x) { return x == static_cast<float>(kSide); });
}

template <typename Function>
bool Look(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

bool ProductShape::operator==(const ProductShape& o) const {
  return m == o.m && n == o.n && k == o.k && lda == o.lda && ldb == o.ldb && ldc == o.ldc &&
         transposed_a == o.transposed_a && transposed_b == o.transposed_b &&
         accumulates == o.accumulates && packed_b == o.packed_b && type == o.type;
}

std::string OneDnn::Load(const std::string& path) {
  std::lock_guard<std::mutex> lock(load_mutex);
  if (is_loaded) return "";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  Functions found;
  // The version is checked first, because other major versions lack some functions.
  if (!Look(library, "dnnl_version", &found.version)) {
    dlclose(library);
    return path + " has no function dnnl_version";
  }
  const Version* version = found.version();
  const std::string text = std::to_string(version->major) + "." + std::to_string(version->minor) +
                           "." + std::to_string(version->patch);
  if (version->major != 3 || version->minor < 4) {
    dlclose(library);
    return path + " is oneDNN " + text + ", and not 3.4 or a later 3";
  }
#define MSREC_ONEDNN_LOOK(result, name, arguments)  \
  if (!Look(library, "dnnl_" #name, &found.name)) { \
    dlclose(library);                               \
    return path + " has no function dnnl_" #name;   \
  }
  MSREC_ONEDNN_FUNCTIONS(MSREC_ONEDNN_LOOK)
#undef MSREC_ONEDNN_LOOK
  if (version->cpu_runtime == kThreadPoolRuntime) {
    if (!Look(library, "dnnl_threadpool_interop_set_max_concurrency",
              &found.threadpool_interop_set_max_concurrency)) {
      return path + " has no function dnnl_threadpool_interop_set_max_concurrency";
    }
  } else if (version->cpu_runtime != kSequentialRuntime) {
    // If oneDNN is built with OpenMP or TBB, each thread of this library would start further
    // threads.
    return path + " starts threads of its own (runtime " + std::to_string(version->cpu_runtime) +
           "), and is not a build for thread pools";
  }
  if (found.engine_create(&engine, kCpu, 0) != kSuccess) {
    dlclose(library);
    return path + ": dnnl_engine_create failed";
  }
  dnn = found;
  bfloat16_is_fast = (dnn.get_effective_cpu_isa() & kIsaAvx512Bf16) == kIsaAvx512Bf16;
  version_text = text;
  is_loaded = true;
  try {
    if (Multiplies()) return "";
    is_loaded = false;
    return path + " multiplies wrongly";
  } catch (const std::exception& error) {
    is_loaded = false;
    return path + ": " + error.what();
  }
}

bool OneDnn::loaded() { return is_loaded; }

std::string OneDnn::version() { return version_text; }

bool OneDnn::has_bfloat16() { return bfloat16_is_fast; }

std::shared_ptr<const Product> OneDnn::Find(const ProductShape& shape) {
  if (!is_loaded) throw std::logic_error("oneDNN is not loaded");
  auto& products = Products();
  {
    std::shared_lock<std::shared_mutex> lock(products_mutex);
    const auto found = products.find(shape);
    if (found != products.end()) return found->second;
  }
  auto made = std::make_shared<const OneDnnProduct>(shape);
  std::unique_lock<std::shared_mutex> lock(products_mutex);
  if (products.size() >= kMostProducts) products.clear();  // products in use are shared
  return products.emplace(shape, std::move(made)).first->second;
}

}  // namespace msrec
