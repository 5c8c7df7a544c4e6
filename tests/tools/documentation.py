"""Builds the documentation as a site, from the pages that are in the checkout and from the code: `build/site`.

    .venv/bin/python tests/tools/documentation.py [FOLDER]

Pages keep their names; what they link to in the checkout (examples, configuration, scenarios) becomes a page, too. The
reference of the API comes from docstrings, that of commands from their help. Whatever is wrong ends it: mkdocs is
strict, and every link of the result is followed.
"""

from __future__ import annotations

import argparse
import html.parser
import logging
import os
import posixpath
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mkdocs.commands.build
import mkdocs.config

from understudy.mqadmin.main import help_lines, load_commands
from understudy.programs import main as programs_main
from understudy.spark_tools import main as spark_main
from understudy.testkit.bench.main import BENCHMARKS
from understudy.testkit.drills.main import DRILLS

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
    "docs/clients.md": ("Differences", "clients.md"),
    "docs/settings.md": ("Reference", "settings.md"),
    "docs/metrics.md": ("Reference", "metrics.md"),
    "CHANGELOG.md": ("Reference", "changelog.md"),
    "CONTRIBUTING.md": ("Contribute", "contributing.md"),
}
"""Page of the checkout to chapter and page of the site. A page of docs/ that is not here is found by a test."""
SERVERS = ("mqnamesrv", "mqbroker", "mqbrokercontainer", "mqcontroller", "mqproxy", "mqconsole", "mqadmin")
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


def steps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the subcommands of a parser, and theirs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from (name, *(f"{name} {step}" for step in steps(below)))


def commands() -> list[list[str]]:
    """Return every command that prints a help of its own, as its code has it, but those of ``mqadmin``."""
    parts = {"drill": [*DRILLS], "bench": [*BENCHMARKS], "spark": [*steps(spark_main.parser())]}
    found = [[name, part] for name in programs_main.COMMANDS for part in ("", *parts.get(name, ()))]
    return [["understudy", *f"{name} {part}".split()] for name, part in found] + [[name] for name in SERVERS]


def installed_commands() -> dict[str, list[str]]:
    """Return the commands of an installation, each with the program and arguments that it is."""
    return {" ".join(each): [str(Path(sys.executable).with_name(each[0])), *each[1:]] for each in commands()}


def checkout_commands() -> dict[str, list[str]]:
    """Return those that `./understudy` of a checkout has beside them, in the same way."""
    entry = runpy.run_path(str(ROOT / "understudy"))
    benchmarks = runpy.run_path(str(ROOT / "bench" / "main.py"))["benchmarks"]()
    parts = {"bench": ["", *(name for name in benchmarks if name not in BENCHMARKS)]}
    return {
        f"./understudy {name} {part}".rstrip(): [sys.executable, str(ROOT / target), *part.split()]
        for name, (_, target, _) in entry["SUBCOMMANDS"].items()
        if target != entry["INSTALLED"]
        for part in parts.get(name, [""])
    }


def helps(programs: dict[str, list[str]]) -> Iterator[str]:
    """Yield a section for each command with what it says of itself."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}

    def of(command: str) -> str:
        program = [*programs[command], "--help"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True, env=environment)
        return f"## {command}\n\n````text\n{done.stdout.strip()}\n````\n"

    with ThreadPoolExecutor(4) as threads:
        yield from threads.map(of, programs)


def help_page() -> str:
    """Return a page with what every command of an installation says of itself."""
    return "\n".join(["# Commands\n", *helps(installed_commands())])


def checkout_page() -> str:
    """Return a page with what those say of themselves that need a checkout."""
    head = (
        "# Commands of a checkout\n\n"
        "`./understudy` of a checkout has the [commands of an installation](commands.md), and these.\n"
    )
    return "\n".join([head, *helps(checkout_commands())])


def administration_page() -> str:
    """Return a page with what every command of ``mqadmin`` says of itself."""
    helps = [
        f"## {name}\n\n````text\n{chr(10).join(help_lines(each))}\n````\n"
        for name, each in sorted(load_commands().items())
    ]
    return "\n".join(["# Commands of mqadmin\n", *helps])


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
    (folder / "checkout.md").write_text(checkout_page(), encoding="utf-8")
    (folder / "administration.md").write_text(administration_page(), encoding="utf-8")
    chapters["Reference"] += ["commands.md", "checkout.md", "administration.md"]
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
