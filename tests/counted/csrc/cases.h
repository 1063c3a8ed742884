// SPDX-License-Identifier: Apache-2.0
//
// Work of a fixed size whose instructions are counted. Each case prepares itself from fixed seeds,
// and then does what it is named after, under a Meter, on one thread.
#pragma once

namespace msrec {

void CountStepFloat32();    // a training step: lookup, gradient, Adam, of rows of float32
void CountStepBfloat16();   // the same of rows of bfloat16
void CountLookup();         // known keys, in evaluation
void CountLookupPooled();   // known keys in bags, in evaluation
void CountLookupInt8();     // rows of int8, as a predictor has them
void CountSsdRead();        // rows from an SSD tier, out of the page cache
void CountStepAndDelta();   // two steps and the delta after them, of rows of float32
void CountStepAndDigest();  // the same of a table that keeps its digest
void CountDeltaApply();     // a delta to the table of a predictor
void CountDeltaOfShared();  // a delta to rows that processes share

}  // namespace msrec
