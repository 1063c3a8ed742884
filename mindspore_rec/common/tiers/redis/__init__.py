# SPDX-License-Identifier: Apache-2.0
"""The tier on Redis: `tier` uses `client`, `nodes`, `link`, `wire` (commands) and `marker`."""
