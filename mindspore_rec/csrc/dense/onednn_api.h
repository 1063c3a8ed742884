// SPDX-License-Identifier: Apache-2.0
//
// Declarations, written by hand, of the part of oneDNN's C API that this library uses. The library
// oneDNN is opened at run time, so the build needs neither oneDNN's headers nor the library. All
// declarations are part of the stable interface of oneDNN 3
// (https://uxlfoundation.github.io/oneDNN/dev_guide). `OneDnn::Load` accepts version 3.4 and later
// versions before 4.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec::onednn {

struct Engine;
struct Stream;
struct MemoryDesc;
struct Memory;
struct PrimitiveDesc;
struct Primitive;
struct PrimitiveAttr;
struct PostOps;

using Status = int;
constexpr Status kSuccess = 0;
constexpr Status kOutOfMemory = 1;

constexpr int kCpu = 1;                     // dnnl_cpu
constexpr unsigned kInOrder = 1;            // dnnl_stream_in_order
constexpr int kUndefined = 0;               // dnnl_data_type_undef
constexpr int kBf16 = 2;                    // dnnl_bf16
constexpr int kF32 = 3;                     // dnnl_f32
constexpr int kFormatAny = 1;               // dnnl_format_tag_any
constexpr int kScratchpadUser = 1;          // dnnl_scratchpad_mode_user
constexpr int kQueryImplementation = 8;     // dnnl_query_impl_info_str
constexpr int kQueryWeights = 131;          // dnnl_query_weights_md
constexpr int kQueryScratchpad = 136;       // dnnl_query_scratchpad_md
constexpr int kQueryInnerBlocks = 263;      // dnnl_query_inner_nblks_s32
constexpr int kArgSource = 1;               // DNNL_ARG_SRC and DNNL_ARG_FROM
constexpr int kArgDestination = 17;         // DNNL_ARG_DST and DNNL_ARG_TO
constexpr int kArgWeights = 33;             // DNNL_ARG_WEIGHTS
constexpr int kArgScratchpad = 80;          // DNNL_ARG_SCRATCHPAD
constexpr int kIsaAvx512Bf16 = 0xe7;        // dnnl_cpu_isa_avx512_core_bf16, a set of bits
constexpr unsigned kThreadPoolRuntime = 8;  // DNNL_RUNTIME_THREADPOOL
constexpr unsigned kSequentialRuntime = 1;  // DNNL_RUNTIME_SEQ

using Dims = int64_t[12];

struct ExecArg {
  int arg;
  Memory* memory;
};

struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

// Addresses of oneDNN's functions. Each field has the name of the oneDNN function, without the
// prefix "dnnl_".
#define MSREC_ONEDNN_FUNCTIONS(F)                                                                \
  F(const Version*, version, (void))                                                             \
  F(int, get_effective_cpu_isa, (void))                                                          \
  F(Status, engine_create, (Engine**, int kind, size_t index))                                   \
  F(Status, stream_create, (Stream**, Engine*, unsigned flags))                                  \
  F(Status, stream_destroy, (Stream*))                                                           \
  F(Status, memory_desc_create_with_strides,                                                     \
    (MemoryDesc**, int ndims, const Dims dims, int type, const Dims strides))                    \
  F(Status, memory_desc_create_with_tag,                                                         \
    (MemoryDesc**, int ndims, const Dims dims, int type, int tag))                               \
  F(Status, memory_desc_clone, (MemoryDesc**, const MemoryDesc*))                                \
  F(Status, memory_desc_query, (const MemoryDesc*, int what, void* result))                      \
  F(Status, memory_desc_destroy, (MemoryDesc*))                                                  \
  F(size_t, memory_desc_get_size, (const MemoryDesc*))                                           \
  F(Status, memory_create, (Memory**, const MemoryDesc*, Engine*, void* handle))                 \
  F(Status, memory_set_data_handle, (Memory*, void* handle))                                     \
  F(Status, memory_destroy, (Memory*))                                                           \
  F(Status, primitive_attr_create, (PrimitiveAttr**))                                            \
  F(Status, primitive_attr_destroy, (PrimitiveAttr*))                                            \
  F(Status, primitive_attr_set_scratchpad_mode, (PrimitiveAttr*, int mode))                      \
  F(Status, primitive_attr_set_post_ops, (PrimitiveAttr*, const PostOps*))                       \
  F(Status, post_ops_create, (PostOps**))                                                        \
  F(Status, post_ops_destroy, (PostOps*))                                                        \
  F(Status, post_ops_append_sum, (PostOps*, float scale, int32_t zero_point, int type))          \
  F(Status, matmul_primitive_desc_create,                                                        \
    (PrimitiveDesc**, Engine*, const MemoryDesc* source, const MemoryDesc* weights,              \
     const MemoryDesc* bias, const MemoryDesc* destination, const PrimitiveAttr*))               \
  F(Status, reorder_primitive_desc_create,                                                       \
    (PrimitiveDesc**, const MemoryDesc* source, Engine*, const MemoryDesc* destination, Engine*, \
     const PrimitiveAttr*))                                                                      \
  F(const MemoryDesc*, primitive_desc_query_md, (const PrimitiveDesc*, int what, int index))     \
  F(Status, primitive_desc_query, (const PrimitiveDesc*, int what, int index, void* result))     \
  F(Status, primitive_desc_next_impl, (PrimitiveDesc*))                                          \
  F(Status, primitive_desc_destroy, (PrimitiveDesc*))                                            \
  F(Status, primitive_create, (Primitive**, const PrimitiveDesc*))                               \
  F(Status, primitive_destroy, (Primitive*))                                                     \
  F(Status, primitive_execute, (const Primitive*, Stream*, int count, const ExecArg*))

struct Functions {
#define MSREC_ONEDNN_FIELD(result, name, arguments) result(*name) arguments = nullptr;
  MSREC_ONEDNN_FUNCTIONS(MSREC_ONEDNN_FIELD)
#undef MSREC_ONEDNN_FIELD
  // Sets the number of threads for which primitives are created. This function exists only if
  // oneDNN is built with the thread-pool runtime.
  Status (*threadpool_interop_set_max_concurrency)(int) = nullptr;
};

}  // namespace msrec::onednn
