# SPDX-License-Identifier: Apache-2.0
"""Start a script on several workers."""
