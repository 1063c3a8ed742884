# SPDX-License-Identifier: Apache-2.0
"""The state of a training to directories and back."""
