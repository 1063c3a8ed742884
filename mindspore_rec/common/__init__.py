# SPDX-License-Identifier: Apache-2.0
"""What training and serving share; nothing here needs MindSpore."""
