# SPDX-License-Identifier: Apache-2.0
"""Tier on Redis: the modules `tier`, `client`, `nodes`, `link`, `wire` (commands) and `marker`."""
