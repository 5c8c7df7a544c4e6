"""The option ``--version`` of every program."""

from __future__ import annotations

import argparse
from typing import Any

import understudy


class ShowVersion(argparse.Action):
    """Print program and version and end; the version is looked up only then, which takes long."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and end")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"{parser.prog} {understudy.__version__}")
        parser.exit()
