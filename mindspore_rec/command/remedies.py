# SPDX-License-Identifier: Apache-2.0
"""Translate remedies in the library's messages to the command's terms: YAML keys and options."""

from __future__ import annotations

import re

__all__ = ["in_words_of_the_command"]

# For each remedy: a pattern that finds the remedy in a Python message, the replacement for `init`,
# and the replacement for the other commands.
_REMEDIES = tuple(
    (re.compile(pattern), for_init, otherwise)
    for pattern, for_init, otherwise in (
        (
            r"format=CsvFormat\((encoding|decimal|separator)='([^']*)'\)",
            r"--\1 '\2'",
            r"`csv: {\1: '\2'}` in the YAML",
        ),
        (
            r"format=CsvFormat\(types=\{'([^']*)': \.\.\.\}\) names another",
            r"--text \1 reads texts",
            r"`csv: {types: {\1: string}}` in the YAML reads texts",
        ),
        (
            r"with bad_rows=BadRows\(most_share=\.\.\.\)",
            "with --bad-rows 0.01",
            "with `bad_rows: {most_share: 0.01}` in the YAML",
        ),
        (
            r"(split by rows with|or call) split\(\) instead",
            "set `split: {by: random}` in the YAML",
            "set `split: {by: random}` in the YAML",
        ),
        (
            r"label=LabelColumn\('[^']*', positive=('[^']*'|[^')]*)\)",
            r"--positive \1",
            r"positive: \1",
        ),
        (r"binary=False to predict a number", "--number to predict a number", "binary: false"),
        (r", rows=$", ", --rows", ", --rows"),
    )
)


def in_words_of_the_command(text: str, command: str) -> str:
    """Return a message with remedies for the command: options of `init`, or keys of the YAML file.

    Args:
        text: error message of the library, with remedies that name Python arguments.
        command: name of the command that prints the message.

    Example:
        >>> text = "name the encoding, as in format=CsvFormat(encoding='latin-1')"
        >>> in_words_of_the_command(text, "init")
        "name the encoding, as in --encoding 'latin-1'"
        >>> in_words_of_the_command(text, "train")
        "name the encoding, as in `csv: {encoding: 'latin-1'}` in the YAML"
    """
    for pattern, for_init, otherwise in _REMEDIES:
        text = pattern.sub(for_init if command == "init" else otherwise, text)
    return text
