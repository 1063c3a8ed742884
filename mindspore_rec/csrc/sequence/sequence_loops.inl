// SPDX-License-Identifier: Apache-2.0
//
// The loops over lists. Included once by each sequence_<isa>.cc. Everything here has internal
// linkage and uses no inline function of another header: a function shared with other files could
// be linked in its AVX-512 form and run on a CPU without it.
#include "sequence/activation_kernels.inl"
#include "sequence/attention_kernels.inl"
#include "sequence/hstu_kernels.inl"
#include "sequence/norm_kernels.inl"
#include "sequence/pooling_kernels.inl"
#include "sequence/sequence_kernels.h"

namespace msrec {

extern const SequenceKernels MSREC_SEQUENCE_SYMBOL;
const SequenceKernels MSREC_SEQUENCE_SYMBOL = {MSREC_SEQUENCE_NAME,
                                               AttentionMemory,
                                               AttendList,
                                               AttendListGradient,
                                               NormRows,
                                               NormRowsGradient,
                                               GatedMemory,
                                               GatedAttendList,
                                               GatedAttendListGradient,
                                               ColumnMoments,
                                               DiceRows,
                                               DiceSums,
                                               DiceGradient,
                                               PReluRows,
                                               PReluGradient,
                                               SoftmaxList,
                                               PairRows,
                                               PairRowsGradient,
                                               AddRow,
                                               SumRows,
                                               SumWeighted,
                                               WeighRows,
                                               DotRows,
                                               MultiplySmall};

}  // namespace msrec
