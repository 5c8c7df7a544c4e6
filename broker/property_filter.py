"""What a subscription by a SQL92 condition makes of messages: their properties, as stored, against the condition.

Only the properties that the condition names are looked for; the others are not decoded.

Source: ExpressionMessageFilter.java.
"""

from __future__ import annotations

from understudy.broker.sql_filter.expression import Expression
from understudy.format.properties import find_property, parse_properties
from understudy.format.record import properties_of

FEW = 4
"""So many names are looked for one by one; to decode all properties costs less than more searches."""


CHARACTERS_OF_A_READ = 1 << 15
"""Of a condition, as often as one read asks it: some milliseconds. What a message costs grows with the text."""

BYTES_OF_CHARACTER = 64
"""What a condition keeps for each character of its text, about: a comparison is a function with its cells."""


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

    __slots__ = (
        "_evaluate",
        "_key",
        "_names",
        "_only",
        "_searched",
        "characters",
        "kept_bytes",
        "most_records",
        "text",
    )

    def __init__(self, expression: Expression) -> None:
        self.text = expression.text
        self.characters = len(expression.text)
        self.kept_bytes = BYTES_OF_CHARACTER * self.characters
        self.most_records = max(CHARACTERS_OF_A_READ // max(self.characters, 1), 1)
        self._evaluate = expression.matches
        names = sorted(expression.names)
        self._names = [(name, f"{name}\x01".encode()) for name in names] if len(names) <= FEW else []
        self._searched = len(names) <= FEW
        self._only, self._key = self._names[0] if len(self._names) == 1 else ("", b"")

    def accepts(self, record: memoryview) -> bool:
        """Tell whether a stored message is wanted."""
        return self.passes(properties_of(record))

    def passes(self, properties: bytes) -> bool:
        """Tell whether a message with this properties string is wanted."""
        if self._key:
            value = find_property(properties, self._key)
            return self._evaluate({} if value is None else {self._only: value.decode("utf-8", "replace")})
        if not self._searched:
            return self._evaluate(parse_properties(properties))
        found = {}
        for name, key in self._names:
            value = find_property(properties, key)
            if value is not None:
                found[name] = value.decode("utf-8", "replace")
        return self._evaluate(found)
