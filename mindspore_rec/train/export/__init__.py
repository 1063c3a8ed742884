# SPDX-License-Identifier: Apache-2.0
"""Networks for predictors: as ONNX, as MindIR, or run by MindSpore."""
