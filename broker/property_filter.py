"""What a subscription by a SQL92 condition makes of messages: their properties, as stored, against the condition.

Only the properties that the condition names are looked for; the others are not decoded. A read asks about hundreds of
messages, whose values are mostly few: what the condition says of them is remembered while it lasts.

Source: ExpressionMessageFilter.java.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.broker.sql_filter.expression import Expression
from understudy.format.properties import find_property, parse_properties

FEW = 4
"""So many names are looked for one by one; to decode all properties costs less than more searches."""


CHARACTERS_OF_A_READ = 1 << 15
"""Of a condition, as often as one read asks it: some milliseconds. What a message costs grows with the text."""

BYTES_OF_CHARACTER = 64
"""What a condition keeps for each character of its text, about: a comparison is a function with its cells."""

_REMEMBERED, _LONGEST = 256, 64
"""Values of which a read remembers what the condition says, and bytes of one of them."""
_PAIR_END, _PAIR_END_BYTE = b"\x02", 2


class PropertyFilter:
    """A condition over stored messages.

    Args:
        expression: the condition.

    Attributes:
        text: the condition as it was written.
        characters: length of the condition.
        kept_bytes: what it keeps, about.
        most_records: how many one read should ask it about.
    """

    __slots__ = ("_evaluate", "_names", "_searched", "characters", "kept_bytes", "most_records", "text")

    def __init__(self, expression: Expression) -> None:
        self.text = expression.text
        self.characters = len(expression.text)
        self.kept_bytes = BYTES_OF_CHARACTER * self.characters
        self.most_records = max(CHARACTERS_OF_A_READ // max(self.characters, 1), 1)
        self._evaluate = expression.matches
        names = sorted(expression.names)
        self._searched = len(names) <= FEW
        self._names = [(name, f"{name}\x01".encode()) for name in names] if self._searched else []

    def passes(self, properties: bytes) -> bool:
        """Tell whether a message with this properties string is wanted."""
        if not self._searched:
            return self._evaluate(parse_properties(properties))
        found = {}
        for name, key in self._names:
            value = find_property(properties, key)
            if value is not None:
                found[name] = value.decode("utf-8", "replace")
        return self._evaluate(found)

    def reading(self) -> Callable[[bytes], bool]:
        """Return what :meth:`passes` is, for all messages of one read."""
        if not self._names:
            return self.passes
        return self._passes_by_one() if len(self._names) == 1 else self._passes_by_few()

    def _passes_by_one(self) -> Callable[[bytes], bool]:
        ((name, key),) = self._names
        passes, evaluate, known = self.passes, self._evaluate, dict[bytes, bool]()
        known_of = known.get
        missing = evaluate({})

        def passes_by_value(properties: bytes) -> bool:
            before, found, behind = properties.rpartition(key)
            if not found:
                return missing
            # The last pair of a name counts. This is none if its value is empty or its name longer: then passes looks.
            value = behind.partition(_PAIR_END)[0]
            if not value or (before and before[-1] != _PAIR_END_BYTE):
                return passes(properties)
            verdict = known_of(value)
            if verdict is None:
                verdict = evaluate({name: value.decode("utf-8", "replace")})
                if len(value) <= _LONGEST and len(known) < _REMEMBERED:
                    known[value] = verdict
            return verdict

        return passes_by_value

    def _passes_by_few(self) -> Callable[[bytes], bool]:
        names, keys = zip(*self._names, strict=True)
        passes, evaluate, known = self.passes, self._evaluate, dict[bytes, bool]()
        known_of = known.get

        def passes_by_values(properties: bytes) -> bool:
            values = []
            for key in keys:
                before, found, behind = properties.rpartition(key)
                if not found:
                    values.append(b"")
                    continue
                value = behind.partition(_PAIR_END)[0]
                if not value or (before and before[-1] != _PAIR_END_BYTE):
                    return passes(properties)
                values.append(value)
            met = _PAIR_END.join(values)  # which is in none of them
            verdict = known_of(met)
            if verdict is None:
                held = zip(names, values, strict=True)
                verdict = evaluate({name: value.decode("utf-8", "replace") for name, value in held if value})
                if len(met) <= _LONGEST and len(known) < _REMEMBERED:
                    known[met] = verdict
            return verdict

        return passes_by_values
