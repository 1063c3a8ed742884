// SPDX-License-Identifier: Apache-2.0
//
// The loops over lists for one instruction set. The build (setup.py) chooses compiler flags by
// this file's name.
#define MSREC_SEQUENCE_NAME "avx512"
#define MSREC_SEQUENCE_SYMBOL kSequenceAvx512
#include "sequence/sequence_loops.inl"
