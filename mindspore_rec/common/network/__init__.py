# SPDX-License-Identifier: Apache-2.0
"""Networks of predictors: find the builder of a network, and run a network with ONNX Runtime."""
