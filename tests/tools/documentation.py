"""Builds the documentation as a site, from the pages that are in the checkout and from the code: `build/site`.

    .venv/bin/python tests/tools/documentation.py [FOLDER]

Pages keep their names; what they link to in the checkout (examples, configuration, scenarios) becomes a page, too. The
reference of the API comes from docstrings, that of commands from their help. Whatever is wrong ends it: mkdocs is
strict, and every link of the result is followed.
"""

from __future__ import annotations

import html.parser
import logging
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mkdocs.commands.build
import mkdocs.config

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": ("Start here", "index.md"),
    "docs/embedding.md": ("Embed", "embedding.md"),
    "testkit/README.md": ("Embed", "testkit.md"),
    "mqclient/README.md": ("Embed", "client.md"),
    "docs/api.md": ("Embed", "api.md"),
    "ARCHITECTURE.md": ("Concepts", "architecture.md"),
    "tests/scenarios/README.md": ("Concepts", "scenarios.md"),
    "docs/deployment.md": ("Operate", "deployment.md"),
    "docs/failover.md": ("Operate", "failover.md"),
    "docs/console.md": ("Operate", "console.md"),
    "docs/controller.md": ("Operate", "controller.md"),
    "docs/proxy.md": ("Operate", "proxy.md"),
    "docs/security.md": ("Operate", "security.md"),
    "docs/performance.md": ("Operate", "performance.md"),
    "docs/spark.md": ("Operate", "spark.md"),
    "docs/migration.md": ("Migrate", "migration.md"),
    "docs/differences.md": ("Differences", "differences.md"),
    "docs/settings.md": ("Reference", "settings.md"),
    "CHANGELOG.md": ("Reference", "changelog.md"),
    "CONTRIBUTING.md": ("Contribute", "contributing.md"),
}
"""Page of the checkout to chapter and page of the site. A page of docs/ that is not here is found by a test."""
COMMANDS = (
    "up", "drill acting-master", "drill controller", "drill migrate", "bench", "spark", "mqnamesrv", "mqbroker",
    "mqbrokercontainer", "mqcontroller", "mqproxy", "mqconsole",
    "mqadmin",
)  # fmt: skip
ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc):<code>~?([\w.]+)</code>")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")

PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def picture_of(page: str, link: str, folder: Path) -> str:
    """Copy the picture that *link* of *page* shows into *folder*, of a site; return where it is there."""
    path = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(link)))
    if not path.is_file():
        raise SystemExit(f"{page}: {link} leads nowhere")
    (folder / "pictures").mkdir(exist_ok=True)
    shutil.copy(path, folder / "pictures")
    return f"pictures/{path.name}"


def target_of(page: str, link: str, sources: dict[str, str]) -> str:
    """Return what *link* of *page* is on the site.

    Args:
        page: path in the checkout.
        link: as it stands there.
        sources: path of a file or folder that is linked to to its page; what is new is added.
    """
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if path in PAGES:
        return PAGES[path][1] + anchor
    if not (ROOT / path).exists():
        raise SystemExit(f"{page}: {link} leads nowhere")
    return sources.setdefault(path, "source/" + path.replace("/", "-").replace(".", "-") + ".md")


def source_page(path: str) -> str:
    """Return a page that shows a file of the checkout, or the files of a folder."""
    whole = ROOT / path
    files = sorted(each for each in whole.iterdir() if each.is_file()) if whole.is_dir() else [whole]
    parts = [f"# {path}\n"]
    for file in files:
        kind = {".py": "python", ".ipynb": "json"}.get(file.suffix, "text")
        title = f"## {file.name}\n\n" if whole.is_dir() else ""
        parts.append(f"{title}````{kind}\n{file.read_text(encoding='utf-8')}\n````\n")
    return "\n".join(parts)


def help_page() -> str:
    """Return a page with what every command says of itself."""
    parts = ["# Commands\n"]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    for command in COMMANDS:
        name, *rest = command.split()
        program = [name, *rest] if name.startswith("mq") else ["understudy", name, *rest]
        done = subprocess.run(
            [str(Path(sys.executable).with_name(program[0])), *program[1:], "--help"],
            capture_output=True, text=True, timeout=60, check=True, env=environment,
        )  # fmt: skip
        parts.append(f"## {' '.join(program)}\n\n````text\n{done.stdout.strip()}\n````\n")
    return "\n".join(parts)


def public_modules() -> list[str]:
    """Return the modules that docs/api.md calls public."""
    return re.findall(r"^\| `(understudy\.[a-z_.]+)` \|", (ROOT / "docs/api.md").read_text(), re.MULTILINE)


def write_sources(folder: Path) -> dict[str, list[object]]:
    """Write every page of the site as Markdown; return its navigation."""
    sources: dict[str, str] = {}
    chapters: dict[str, list[object]] = {}
    for page, (chapter, name) in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        text = LINK.sub(lambda found, page=page: f"[{found[1]}]({target_of(page, found[2], sources)})", text)
        text = PICTURE.sub(lambda found, page=page: f"![{found[1]}]({picture_of(page, found[2], folder)})", text)
        (folder / name).write_text(text, encoding="utf-8")
        chapters.setdefault(chapter, []).append(name)
    (folder / "source").mkdir()
    for path, name in sources.items():
        (folder / name).write_text(source_page(path), encoding="utf-8")
        chapters.setdefault("Files", []).append(name)
    (folder / "commands.md").write_text(help_page(), encoding="utf-8")
    chapters["Reference"].append("commands.md")
    (folder / "reference").mkdir()
    for module in public_modules():
        name = f"reference/{module}.md"
        (folder / name).write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")
        chapters["Reference"].append({module: name})
    return chapters


class _Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def dead_links(site: Path) -> Iterator[str]:
    """Yield the links within a built site that lead nowhere."""
    pages: dict[Path, _Page] = {}
    for path in site.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of wherever the site will be
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if there.is_dir():
                there /= "index.html"
            known = pages.get(there)
            if not there.exists() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
                yield f"{path.relative_to(site)}: {link}"


def build(folder: Path) -> None:
    """Build the site in *folder*. Raises ``SystemExit`` with one line about what is wrong."""
    sources = folder.with_name(folder.name + "-source")
    for each in (folder, sources):
        shutil.rmtree(each, ignore_errors=True)
    sources.mkdir(parents=True)
    chapters = write_sources(sources)
    config = mkdocs.config.load_config(
        config_file=str(ROOT / "mkdocs.yml"),
        docs_dir=str(sources),
        site_dir=str(folder),
        nav=[{chapter: pages} for chapter, pages in chapters.items()],
        strict=True,
    )
    mkdocs.commands.build.build(config)
    for path in folder.rglob("*.html"):  # docstrings name what they speak of by roles, which editors know
        text = path.read_text(encoding="utf-8")
        path.write_text(ROLE.sub(r"<code>\1</code>", text), encoding="utf-8")
    dead = sorted(set(dead_links(folder)))
    if dead:
        raise SystemExit("links that lead nowhere:\n  " + "\n  ".join(dead))
    print(f"{len(list(folder.rglob('*.html')))} pages in {folder}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
