# SPDX-License-Identifier: Apache-2.0
"""A served network: opened as ONNX or by MindSpore, run, and exported."""
