# SPDX-License-Identifier: Apache-2.0
"""The names and signatures of MindRec and Rec SDK, and `convert`."""
