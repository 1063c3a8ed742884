# SPDX-License-Identifier: Apache-2.0
"""MindSpore's cells: calls, the lock around them, operators of the native core, tensors."""
