"""One named fault of an input: which file, which byte, what is wrong and what it means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

WARNING = "warning"
DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where an input is not what it should be.

    `length_bytes` is -1 when the end of the damaged range is not known. `severity` is "damage" (data is missing or
    wrong) or "warning" (an oddity a broker lives with, such as a preallocated file or a file of another program).
    """

    path: str
    offset_bytes: int
    length_bytes: int
    kind: str
    detail: str
    severity: str = DAMAGE

    def as_row(self) -> dict[str, Any]:
        """The fault as a flat dictionary for JSON, Parquet and the report."""
        return asdict(self)

    def __str__(self) -> str:
        extent = f" ({self.length_bytes} bytes)" if self.length_bytes > 0 else ""
        return f"{self.path} at byte {self.offset_bytes}{extent}: {self.kind}: {self.detail}"
