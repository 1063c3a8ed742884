# SPDX-License-Identifier: Apache-2.0
"""BST, the Behavior Sequence Transformer (Chen et al., 2019)."""
