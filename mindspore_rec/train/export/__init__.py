# SPDX-License-Identifier: Apache-2.0
"""Networks for predictors, exported as ONNX or MindIR, or run by MindSpore."""
