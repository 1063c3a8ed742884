# SPDX-License-Identifier: Apache-2.0
"""Running MindSpore cells: the lock around calls, calls with batches of any size, their errors."""
