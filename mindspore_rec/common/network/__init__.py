# SPDX-License-Identifier: Apache-2.0
"""Networks of predictors: find the builder of a run's network, and run it by ONNX Runtime."""
