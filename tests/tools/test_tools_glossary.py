"""The words of the glossary are the words of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if path.is_dir())
ROW = re.compile(r"^\| ([\w ]+?) \| (.+) \|$", re.MULTILINE)
#: One word for what has another: what a group has of a queue, or a slot of the timer wheel, is no place.
OTHER_WORDS = {"broker/pop": ["place"], "broker/first_reads.py": ["place"], "store/timer_wheel.py": ["place"]}


def glossary() -> dict[str, str]:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n## Glossary\n")[2]
    return {word: meaning for word, meaning in ROW.findall(text) if word != "word"}


def is_used(word: str, text: str) -> bool:
    """Whether *word* stands in *text* as words of a sentence or as a name."""
    parts = [re.escape(part) for part in word.split()]
    return re.search(r"(?<![a-z])" + r"[ _]?\s?".join(parts) + r"(e?s)?(?![a-z])", text, re.IGNORECASE) is not None


def test_the_code_speaks_the_words_of_the_glossary() -> None:
    words = glossary()
    assert len(words) > 20
    code = "\n".join(path.read_text(encoding="utf-8") for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    assert [] == [word for word in words if not is_used(word, code)]


def test_names_keep_to_their_one_meaning() -> None:
    wrong = []
    for where, words in OTHER_WORDS.items():
        path = ROOT / where
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            names = set(re.findall(r"\b[a-zA-Z_]+\b(?=\s*[=,:\])])", file.read_text(encoding="utf-8")))
            wrong += [f"{file.name}: {word}" for word in words if {word, f"_{word}", word.capitalize()} & names]
    assert [] == wrong


def test_a_word_that_nobody_uses_is_missed() -> None:
    assert is_used("acting slave", "the acting slave")
    assert (
        is_used("acting slave", "class ActingSlave") and is_used("hole", "first_hole = 1") and is_used("lane", "Lanes")
    )
    assert not is_used("lane", "planet") and not is_used("acting slave", "acting for a slave")
