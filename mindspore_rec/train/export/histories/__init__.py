# SPDX-License-Identifier: Apache-2.0
"""ONNX forms of the cells that read histories.

During an export, stand-ins replace the native operators over histories (`stand_ins.py`). If the
ONNX form of a cell depends on the lists, the cell's stand-in exports a mark (`marks.py`), and
`insert.py` replaces each mark by ONNX nodes. The ONNX nodes are built in `lists.py`, `attention.py`
and `pooling.py`.
"""
