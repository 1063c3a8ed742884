# SPDX-License-Identifier: Apache-2.0
"""Workers: processes that train together, and their messages."""
