# SPDX-License-Identifier: Apache-2.0
"""Export networks for predictors as ONNX or MindIR, or run the networks with MindSpore."""
