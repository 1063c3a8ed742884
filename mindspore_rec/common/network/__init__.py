# SPDX-License-Identifier: Apache-2.0
"""The network of a run for predictors: how it is opened by its builder, and run by ONNX Runtime."""
