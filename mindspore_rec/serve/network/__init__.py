# SPDX-License-Identifier: Apache-2.0
"""Open, run and export a served network, with ONNX Runtime or MindSpore."""
