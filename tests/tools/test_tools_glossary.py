"""The words of the glossary are the words of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if path.is_dir())
ROW = re.compile(r"^\| ([\w ]+?) \| (.+) \|$", re.MULTILINE)
#: Where a word of the glossary has no business as a name, because what is there has another word in it.
OTHER_WORDS = {
    "broker/pop": ["place"],  # a group queue
    "broker/processors": ["place"],
    "broker/first_reads.py": ["place"],
    "store/timer_wheel.py": ["place"],  # a slot
    "console/model/containers.py": ["place"],  # a broker's home
    "console/messages.py": ["place"],
    "proxy/rpcs/telemetry.py": ["place"],
    "controller": ["place"],
}
#: Words of which the glossary says for whom they are: names of nobody else.
OWNERS = {
    "outcome": (
        "controller",
        "testkit/quorum",
        "proxy/posts.py",
        "proxy/rpcs",
        "broker/admin/stuck_decisions.py",
        "broker/transactions",
        "mqclient/admin/cluster.py",
        "mqadmin/stuck_actions.py",
        "mqadmin/stuck_settling.py",
        "mqadmin/undo_file.py",
    ),
    "seen": (
        "broker/broadcast.py",
        "broker/clients.py",
        "namesrv/records.py",
        "namesrv/route_table.py",
        "proxy/clients.py",
    ),
}


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


def names_in(source: str) -> set[str]:
    """Return the names that a module makes: of variables, arguments, attributes, functions and classes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def says(word: str, source: str) -> bool:
    """Whether a name that a module makes is *word*: of one or several, of somebody's own or with its unit."""
    if word not in source.lower():
        return False  # most of them, which need not be parsed
    pattern = re.compile(rf"_?(last_)?{word}(e?s)?(_at|_ms|_of)?", re.IGNORECASE)
    return any(pattern.fullmatch(name) for name in names_in(source))


def test_names_keep_to_their_one_meaning() -> None:
    wrong = []
    for where, words in OTHER_WORDS.items():
        path = ROOT / where
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            wrong += [f"{file.relative_to(ROOT)}: {word}" for word in words if says(word, source)]
    assert [] == wrong


@pytest.mark.parametrize("word", OWNERS)
def test_a_word_belongs_to_those_of_whom_the_glossary_says_it(word: str) -> None:
    users = {
        file.relative_to(ROOT).as_posix()
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if says(word, file.read_text(encoding="utf-8"))
    }
    owned = {user: [owner for owner in OWNERS[word] if user == owner or user.startswith(f"{owner}/")] for user in users}
    assert [] == [user for user, owners in owned.items() if not owners], "has another meaning, or the glossary lacks it"
    assert set(OWNERS[word]) == {owner for owners in owned.values() for owner in owners}


def test_names_are_found_whatever_they_name() -> None:
    source = "class Outcome:\n def place_of(self, outcomes): self._seen = 1; last_seen_ms = 2\n"
    assert says("outcome", source) and says("place", source) and says("seen", source)
    assert not says("seen", "self.unseen = SEEN_OFFSET; seen.add(1)")
    assert not says("place", "is_in_place = replaced = 1")


def test_a_word_that_nobody_uses_is_missed() -> None:
    assert is_used("acting slave", "the acting slave")
    assert (
        is_used("acting slave", "class ActingSlave") and is_used("hole", "first_hole = 1") and is_used("lane", "Lanes")
    )
    assert not is_used("lane", "planet") and not is_used("acting slave", "acting for a slave")
