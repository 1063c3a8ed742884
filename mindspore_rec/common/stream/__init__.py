# SPDX-License-Identifier: Apache-2.0
"""Topics: sources, journal, channel, feature worker and announcements."""
