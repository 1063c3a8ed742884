# SPDX-License-Identifier: Apache-2.0
"""`RecModel` and its training loop."""
