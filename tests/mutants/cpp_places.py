# SPDX-License-Identifier: Apache-2.0
"""The places of a C++ file that a mutant can change, by its tokens.

The code is as clang-format leaves it: there is space on both sides of a binary operator, and none
beside the brackets of a template, a reference, a pointer or a sign, which stay. So do comments,
strings, lines of the preprocessor and what is between #if and #endif (some of it is of another
processor), static_assert, the messages of exceptions, and what only saves time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.mutants.mutant import Mutant

__all__ = ["cpp_places"]

_TOKEN = re.compile(
    r"""
    (?P<left_out> //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:\\\n|[^\n])* )
    | (?P<text> \w*R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)" | \w*"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+' )
    | (?P<number> \d(?:[eEpP][+-]|'(?=\w)|[\w.])* )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<sign> <=>|<<=|>>=|->|::|\+\+|--|<<|&&|\|\||[-+*/%&|^<>=!]=|\S )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_BINARY = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*", "&": "|", "|": "&",
    "+=": "-=", "-=": "+=",
}  # fmt: skip
_OPPOSITE = {"true": "false", "false": "true", "min": "max", "max": "min"}
_LEFT_OUT = {"static_assert", "throw", "using", "template", "alignas", "operator"}
# With or without these calls a program does the same, in another time.
_SAVES_TIME = {"reserve", "shrink_to_fit"}
_NO_CALL = {"if", "for", "while", "switch", "return", "else", "do", "case", "delete", "defined"}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int
    spaced: bool  # on both sides


def cpp_places(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a file, in its order."""
    tokens = _tokens(text)
    places = [*_changed_tokens(tokens), *_left_out_calls(tokens)]
    mutants = sorted({Mutant(file, start, end, new) for start, end, new in places})
    return [each for each in mutants if "__builtin_prefetch" not in each.lines(text).old]


def _tokens(text: str) -> list[_Token]:
    tokens = []
    conditions = 0  # of the preprocessor, that this place is inside of
    for each in _TOKEN.finditer(text):
        if each.lastgroup == "left_out":
            line = each.group().lstrip()
            conditions += line.startswith("#if") - line.startswith("#endif")
        elif conditions == 0:
            start, end = each.span()
            around = text[start - 1 : start] + text[end : end + 1]
            kind = "text" if each["text"] else str(each.lastgroup)
            tokens.append(_Token(kind, each.group(), start, end, len(around.strip()) == 0))
    return tokens


def _changed_tokens(tokens: Sequence[_Token]) -> Iterator[tuple[int, int, str]]:
    left_out = False  # up to the end of the statement, or of a template's head
    nothing = _Token("", "", 0, 0, True)
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else nothing
        after = tokens[place + 1] if place + 1 < len(tokens) else nothing
        if token.text in _LEFT_OUT | _SAVES_TIME:
            left_out = True
        elif token.text in (";", "{"):
            left_out = False
        if left_out:
            continue
        if token.text in _BINARY and token.spaced:
            yield token.start, token.end, _BINARY[token.text]
        elif token.kind == "number" and re.fullmatch(r"\d+[uUlL]*", token.text):
            number = re.match(r"\d+", token.text)
            assert number is not None
            in_template = (before.text == "<" and not before.spaced) or (
                after.text == ">" and not after.spaced
            )
            if not in_template:
                yield token.start, token.start + number.end(), str(int(number.group()) + 1)
        elif token.text == "!" and (after.kind == "name" or after.text == "("):
            yield token.start, token.end, ""
        elif token.text in ("true", "false") and before.text in ("return", "="):
            yield token.start, token.end, _OPPOSITE[token.text]
        elif token.text in ("min", "max") and before.text == "::":
            if after.text in ("(", "<"):
                yield token.start, token.end, _OPPOSITE[token.text]


def _left_out_calls(tokens: Sequence[_Token]) -> Iterator[tuple[int, int, str]]:
    """Yield the statements that are nothing but a call."""
    for place, token in enumerate(tokens):
        begins = place > 0 and tokens[place - 1].text in (";", "{", "}")
        if begins and token.kind == "name" and token.text not in _NO_CALL | _LEFT_OUT:
            end = _end_of_call(tokens, place)
            has_body = any(each.text == "{" for each in tokens[place:end])  # of a lambda
            if end is not None and not has_body:
                yield token.start, tokens[end].end, ";"


def _end_of_call(tokens: Sequence[_Token], place: int) -> int | None:
    """Return the place of the semicolon of `a.b->c::d(...);`; None if it is none or saves time."""
    name = ""
    while place < len(tokens) and tokens[place].kind == "name":
        name = tokens[place].text
        place += 1
        while place < len(tokens) and tokens[place].text in ("(", "["):
            place = _behind(tokens, place)
            if place < len(tokens) and tokens[place].text == ";":
                is_call = tokens[place - 1].text == ")" and name not in _SAVES_TIME
                return place if is_call else None
        if place >= len(tokens) or tokens[place].text not in (".", "->", "::"):
            return None
        place += 1
    return None


def _behind(tokens: Sequence[_Token], place: int) -> int:
    """Return the place behind a bracket's other bracket."""
    depth = 0
    while place < len(tokens):
        depth += (tokens[place].text in ("(", "[")) - (tokens[place].text in (")", "]"))
        place += 1
        if depth == 0:
            break
    return place
