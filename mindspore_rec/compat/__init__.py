# SPDX-License-Identifier: Apache-2.0
"""Functions and classes with the signatures of MindRec and Rec SDK, and `convert`."""
