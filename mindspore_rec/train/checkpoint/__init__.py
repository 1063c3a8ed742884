# SPDX-License-Identifier: Apache-2.0
"""Save the state of a training to directories, and restore it."""
