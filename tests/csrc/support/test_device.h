// SPDX-License-Identifier: Apache-2.0
//
// The device of tests of dense programs, by the environment variable MSREC_TEST_DENSE_DEVICE: "cpu"
// (the default), "emulated", or "cuda", a GPU whose libraries MSREC_TEST_NVRTC and
// MSREC_TEST_CUBLASLT name.
#pragma once

namespace msrec {

// Makes all programs of this process run on the environment's device. Throws std::runtime_error if
// it cannot be used.
void UseDeviceOfEnvironment();

}  // namespace msrec
