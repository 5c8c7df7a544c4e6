"""What answers requests gets the parts of a broker that it uses, never the whole."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import attrs
import pytest

from understudy.broker import admin, processors
from understudy.broker.broker import Broker

WIRING = re.compile(r"register|register_all|\w+_parts")
"""Functions that take parts from a broker and give them to what they make."""
WHOLE = re.compile(rf"\b{Broker.__name__}\b")


def takers(module: ModuleType) -> list[str]:
    """Return what in *module* is annotated as taking a whole broker, wiring left out."""
    mine = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    found = []
    for name, each in mine.items():
        if inspect.isfunction(each) and WIRING.fullmatch(name) is None:
            found += [name] if _takes_broker(each) else []
        elif inspect.isclass(each):
            found += [f"{name}.{method}" for method, function in _methods(each) if _takes_broker(function)]
    return [f"{module.__name__}.{name}" for name in found]


def _methods(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, each in vars(owner).items():
        function = each.__func__ if isinstance(each, staticmethod | classmethod) else each
        if inspect.isfunction(function):
            yield name, function


def _takes_broker(function: Callable[..., Any]) -> bool:
    annotations = inspect.get_annotations(function).items()  # as texts where they are not evaluated
    texts = [each if isinstance(each, str) else repr(each) for name, each in annotations if name != "return"]
    return any(WHOLE.search(text) for text in texts)


def test_what_answers_requests_does_not_take_the_whole_broker() -> None:
    modules = [
        import_module(each.name)
        for package in (admin, processors)
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    assert len(modules) > 40
    assert [] == [name for module in modules for name in takers(module)]


def _takes(whole: Broker) -> None: ...


def register(whole: Broker) -> None: ...


@pytest.mark.parametrize("made", [attrs.make_class("Parts", {"whole": attrs.field(type=Broker)}), _takes])
def test_who_takes_the_whole_broker_is_found(made: Any) -> None:
    module = ModuleType(made.__module__)
    setattr(module, made.__name__, made)
    module.__dict__["register"] = register  # where parts are taken from
    name = f"{made.__name__}.__init__" if inspect.isclass(made) else made.__name__
    assert [f"{made.__module__}.{name}"] == takers(module)
