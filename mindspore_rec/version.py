# SPDX-License-Identifier: Apache-2.0
"""Version of the package, written only here."""

__version__ = "0.4.0"
