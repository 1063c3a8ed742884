# SPDX-License-Identifier: Apache-2.0
"""Starting a script on several workers."""
