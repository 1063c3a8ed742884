# SPDX-License-Identifier: Apache-2.0
"""Version of the package; the only place where it is written."""

__version__ = "0.4.0"
