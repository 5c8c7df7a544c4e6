"""The grammar of a condition, by precedence; each word is looked at once.

    OR  <  AND  <  = <> IS [NOT] NULL  <  comparisons, BETWEEN, IN, CONTAINS ...  <  unary + - NOT  <  primary

Differs because a text behind a whole condition is refused: the reference leaves it out without a word, so that
``a = 03`` means ``a = 0`` and ``s LIKE 'x%'`` matches nothing.

Source: SelectorParser.jj.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from understudy.broker.sql_filter import operands
from understudy.broker.sql_filter.lexer import DECIMAL, END, FLOAT, NAME, STRING, SqlError, Word, refuse, words
from understudy.broker.sql_filter.operands import DOUBLE, INT, LONG, TEXT, TRUTH, Operand, OperandError
from understudy.format.numbers import INT_MAX, LONG_MAX

MAX_DEPTH = 100
"""Parentheses and signs inside of each other; the reference overflows its stack instead."""
MAX_LISTED = 2_000
"""Strings of one IN."""

_OR, _AND, _EQUALITY, _COMPARISON = 1, 2, 3, 4
_LEVELS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">=", "CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN", "NOT"), _COMPARISON),
}
_SHOWN = {END: "the end", NAME: "a property", STRING: "a string", DECIMAL: "a number", FLOAT: "a number"}
_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(text: str) -> tuple[Operand, frozenset[str]]:
    """Return a condition as a truth value, and the names of the properties it looks at.

    Raises:
        SqlError: it is none; the message says what is wrong and where.
    """
    parser = _Parser(text)
    whole = parser.level(_OR)
    if parser.word.kind != END:
        raise parser.refuse(f"the condition ends before {parser.word.text!r}, which would be left out")
    return parser.made(0, lambda: operands.truth(whole)), frozenset(parser.names)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self._words = iter(words(text))
        self.word: Word = next(self._words)
        self._depth = 0

    def refuse(self, why: str) -> SqlError:
        """Return the error of the word at hand."""
        return refuse(self.text, self.word.at, why)

    def take(self, kind: str = "") -> Word:
        """Go on to the next word and return the one that was at hand. Raises :class:`SqlError`: not of *kind*."""
        word = self.word
        if kind and word.kind != kind:
            raise self.refuse(
                f"{_SHOWN.get(kind, kind)} must stand here, not {word.text!r}"
                if word.text
                else f"{_SHOWN.get(kind, kind)} must follow"
            )
        if word.kind != END:
            self.word = next(self._words)
        return word

    def made(self, at: int, make: Callable[[], Operand]) -> Operand:
        """Return what *make* makes. Raises :class:`SqlError`: parts that do not fit, or a tree that is too deep."""
        try:
            part = make()
        except OperandError as error:
            raise refuse(self.text, at, str(error)) from None
        if part.depth > MAX_DEPTH:
            raise refuse(self.text, at, f"more than {MAX_DEPTH} operators inside of each other")
        return part

    def level(self, lowest: int) -> Operand:
        """Return the part that begins here, with all operators that bind at least as tightly as *lowest*."""
        left = self.prefix()
        while (level := _LEVELS.get(self.word.kind, 0)) >= lowest:
            if level == _COMPARISON:
                left = self.comparison(left)
            elif level == _EQUALITY:
                left = self.equality(left)
            else:
                left = self.chain(left, self.word.kind, level)
        return left

    def chain(self, left: Operand, word: str, level: int) -> Operand:
        """Return a run of ANDs or ORs as one part, however long it is."""
        at, parts = self.word.at, [left]
        while self.word.kind == word:
            self.take()
            parts.append(self.level(level + 1))
        return self.made(at, lambda: operands.joined(parts, word))

    def equality(self, left: Operand) -> Operand:
        sign = self.take()
        if sign.kind == "IS":
            inverse = self.word.kind == "NOT"
            if inverse:
                self.take()
            self.take("NULL")
            part = self.made(sign.at, lambda: operands.is_missing(left))
        else:
            right = self.level(_COMPARISON)
            inverse = sign.kind == "<>"
            part = self.made(sign.at, lambda: operands.equal(left, right))
        return self.made(sign.at, lambda: operands.inverted(part)) if inverse else part

    def comparison(self, left: Operand) -> Operand:
        sign = self.take()
        wanted = sign.kind != "NOT"
        if not wanted:
            if self.word.kind not in ("CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN"):
                raise self.refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH must follow this NOT")
            sign = self.take()
        if sign.kind == "BETWEEN":
            low = self.prefix()
            self.take("AND")
            high = self.prefix()
            make = operands.between if wanted else operands.outside
            return self.made(sign.at, lambda: make(left, low, high))
        if sign.kind == "IN":
            listed = self.listed()
            return self.made(sign.at, lambda: operands.among(left, listed, wanted))
        if sign.kind in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
            searched = _unquoted(self.take(STRING))
            return self.made(sign.at, lambda: operands.searched(left, sign.kind, searched, wanted))
        right = self.prefix()
        return self.made(sign.at, lambda: operands.ordered(sign.kind, left, right))

    def listed(self) -> list[str]:
        self.take("(")
        found = [_unquoted(self.take(STRING))]
        while self.word.kind == ",":
            self.take()
            if len(found) == MAX_LISTED:
                raise self.refuse(f"more than {MAX_LISTED} strings in one IN")
            found.append(_unquoted(self.take(STRING)))
        self.take(")")
        return found

    def prefix(self) -> Operand:
        """Return the part that begins here, without any operator between two parts."""
        word = self.word
        if word.kind not in ("+", "-", "NOT", "("):
            return self.primary()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.refuse(f"more than {MAX_DEPTH} parentheses, signs and NOTs inside of each other")
        self.take()
        if word.kind == "(":
            part = self.level(_OR)
            self.take(")")
        else:
            inner = part = self.prefix()
            if word.kind != "+":
                make = operands.negated if word.kind == "-" else operands.inverted
                part = self.made(word.at, lambda: make(inner))
        self._depth -= 1
        return part

    def primary(self) -> Operand:
        word = self.word
        if word.kind in _TRUTHS:
            self.take()
            return operands.constant(TRUTH, _TRUTHS[word.kind], word.kind)
        if word.kind not in (NAME, STRING, DECIMAL, FLOAT):
            raise self.refuse(f"a value must stand here, not {word.text!r}" if word.text else "a value must follow")
        if word.kind in (DECIMAL, FLOAT):
            number = self.number(word)
            self.take()
            return number
        self.take()
        if word.kind == STRING:
            return operands.constant(TEXT, _unquoted(word), word.text)
        self.names.add(word.text)
        return operands.named(word.text)

    def number(self, word: Word) -> Operand:
        if word.kind == DECIMAL:
            digits = word.text.rstrip("lL")
            if len(digits) > 19 or int(digits) > LONG_MAX:
                raise self.refuse(f"{digits[:40]} is greater than {LONG_MAX}")
            value = int(digits)
            return operands.constant(INT if value <= INT_MAX else LONG, value, word.text)
        fraction = float(word.text)
        if fraction > sys.float_info.max:
            raise self.refuse(f"{word.text[:40]} is greater than {sys.float_info.max}")
        if not fraction:
            raise self.refuse(f"{word.text[:40]} is less than 4.9E-324; the whole number 0 is written 0")
        return operands.constant(DOUBLE, fraction, word.text)


def _unquoted(word: Word) -> str:
    return word.text[1:-1].replace("''", "'")
