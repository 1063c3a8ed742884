# SPDX-License-Identifier: Apache-2.0
"""Names and signatures of MindRec and Rec SDK, and `convert`."""
