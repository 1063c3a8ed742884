# SPDX-License-Identifier: Apache-2.0
"""Calls of MindSpore cells, the lock around calls, operators of the native core, tensors."""
