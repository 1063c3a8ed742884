# SPDX-License-Identifier: Apache-2.0
"""Read and write topics: sources, journal, channel, feature worker and announcements."""
