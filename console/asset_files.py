"""The page's own files, read once at the start: what is not among them cannot be asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import attrs

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@attrs.frozen
class Asset:
    """One file; the *tag* changes with its content."""

    content: bytes
    content_type: str
    tag: str


def load() -> dict[str, Asset]:
    """Return every file by the path it is asked for; the first page also as ``/``."""
    found = {}
    for path, file in _below(files("understudy.console") / "assets", ""):
        content = file.read_bytes()
        kind = _TYPES.get(path.rpartition(".")[2])
        if kind is not None:
            found[path] = Asset(content, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')
    return found | {"/": found["/index.html"]}


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _below(each, f"{path}/{each.name}")
        else:
            yield f"{path}/{each.name}", each
