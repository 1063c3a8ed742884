# SPDX-License-Identifier: Apache-2.0
"""Tables as parts of a network, and their configuration."""
