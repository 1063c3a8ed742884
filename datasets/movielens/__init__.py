# SPDX-License-Identifier: Apache-2.0
"""MovieLens latest-small: 100,836 ratings of 9,742 movies by 610 users, 1996 to 2018."""

from datasets.movielens.data import MovieLensData, Split, load

__all__ = ["MovieLensData", "Split", "load"]
