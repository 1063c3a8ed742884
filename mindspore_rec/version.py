# SPDX-License-Identifier: Apache-2.0
"""Version of the package; no other module states the version."""

__version__ = "0.4.0"
