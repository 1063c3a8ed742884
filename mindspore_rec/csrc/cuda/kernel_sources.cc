// SPDX-License-Identifier: Apache-2.0
//
// Embeds the kernels' sources as bytes in this library, with the assembler directive .incbin.
#include <map>
#include <string>

#include "cuda/kernel_module.h"

#define MSREC_SOURCE(symbol, file)       \
  __asm__(                               \
      ".pushsection .rodata\n"           \
      ".hidden " #symbol                 \
      "_begin\n"                         \
      ".hidden " #symbol                 \
      "_end\n"                           \
      ".globl " #symbol                  \
      "_begin\n"                         \
      ".globl " #symbol "_end\n" #symbol \
      "_begin:\n"                        \
      ".incbin \"" file "\"\n" #symbol   \
      "_end:\n"                          \
      ".byte 0\n"                        \
      ".popsection\n");                  \
  extern "C" const char symbol##_begin[], symbol##_end[];

#define MSREC_SOURCES(X)                                      \
  X(msrec_source_kernel, "cuda/kernel.h")                     \
  X(msrec_source_kernel_arguments, "cuda/kernel_arguments.h") \
  X(msrec_source_kernels, "cuda/kernels.inl")                 \
  X(msrec_source_kernel_places, "cuda/kernel_places.inl")     \
  X(msrec_source_row_kernels, "cuda/row_kernels.inl")         \
  X(msrec_source_sum_kernels, "cuda/sum_kernels.inl")         \
  X(msrec_source_norm_kernels, "cuda/norm_kernels.inl")       \
  X(msrec_source_number_kernels, "cuda/number_kernels.inl")   \
  X(msrec_source_group_kernels, "cuda/group_kernels.inl")     \
  X(msrec_source_cross_kernels, "cuda/cross_kernels.inl")     \
  X(msrec_source_pair_kernels, "cuda/pair_kernels.inl")       \
  X(msrec_source_mixture_kernels, "cuda/mixture_kernels.inl") \
  X(msrec_source_functions, "dense/functions.inl")            \
  X(msrec_source_inline, "dense/inline.h")

MSREC_SOURCES(MSREC_SOURCE)

namespace msrec {
namespace cuda {

const std::map<std::string, std::string>& KernelSources() {
#define MSREC_ENTRY(symbol, file) {file, std::string(symbol##_begin, symbol##_end)},
  static const std::map<std::string, std::string> sources = {MSREC_SOURCES(MSREC_ENTRY)};
#undef MSREC_ENTRY
  return sources;
}

}  // namespace cuda
}  // namespace msrec
