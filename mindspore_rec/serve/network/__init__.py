# SPDX-License-Identifier: Apache-2.0
"""A served network: opened with ONNX Runtime or MindSpore, run, and exported."""
