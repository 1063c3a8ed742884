# SPDX-License-Identifier: Apache-2.0
"""Tier on Redis: module `tier` with `client`, `nodes`, `link`, `wire` (commands) and `marker`."""
