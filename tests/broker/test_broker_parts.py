"""What answers requests gets the parts of a broker that it uses, never the whole."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import attrs
import pytest

from understudy import broker, container
from understudy.broker import admin, parts, processors
from understudy.broker.broker import Broker

WIRING = re.compile(r"register|register_all|\w+_parts")
"""Functions that take parts from a broker and give them to what they make."""
FROZEN = attrs.make_class("Frozen", [], frozen=True).__setattr__
"""What attrs gives every class that it freezes."""
WHOLE = re.compile(rf"\b{Broker.__name__}\b")
MOST_PARTS = 6
"""Of one class; what needs more is two classes, or has parts that belong together and deserve a name."""


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


def keepers(function: ast.FunctionDef) -> list[str]:
    """Return what *function* makes that uses a whole broker later, each with its line.

    Wiring may make a function that only looks for a part that is another one later: ``lambda: broker.session.rules``.
    """
    arguments = [each for each in function.args.args if each.annotation is not None]
    brokers = {each.arg for each in arguments if WHOLE.search(ast.unparse(each.annotation or each))}
    return [
        f"{function.name}:{inner.lineno}"
        for inner in ast.walk(function)
        if inner is not function and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if any(isinstance(each, ast.Name) and each.id in brokers for each in ast.walk(inner))
        if not (isinstance(inner, ast.Lambda) and _only_looks(inner.body))
    ]


def _only_looks(made: ast.expr) -> bool:
    while isinstance(made, ast.Attribute):
        made = made.value
    return isinstance(made, ast.Name)


def _wiring(module: ModuleType) -> list[ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return [each for each in tree.body if isinstance(each, ast.FunctionDef) and WIRING.fullmatch(each.name)]


def _methods(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, each in vars(owner).items():
        function = each.__func__ if isinstance(each, staticmethod | classmethod) else each
        if inspect.isfunction(function):
            yield name, function


def _takes_broker(function: Callable[..., Any]) -> bool:
    annotations = inspect.get_annotations(function).items()  # as texts where they are not evaluated
    texts = [each if isinstance(each, str) else repr(each) for name, each in annotations if name != "return"]
    return any(WHOLE.search(text) for text in texts)


def answering() -> list[ModuleType]:
    """Return the modules of what answers requests."""
    return [
        import_module(each.name)
        for package in (admin, processors)
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]


def test_what_answers_requests_does_not_take_the_whole_broker() -> None:
    modules = answering()
    assert len(modules) > 40
    assert [] == [name for module in modules for name in takers(module)]


def test_what_gives_parts_away_keeps_the_whole_broker_nowhere() -> None:
    wiring = [(module.__name__, each) for module in (*answering(), admin, parts) for each in _wiring(module)]
    assert len(wiring) > 30
    assert [] == [f"{name}.{found}" for name, each in wiring for found in keepers(each)]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("server.add(Handler(broker.store).read)", []),
        ("server.add(lambda: broker.session.rules)", []),
        ("server.add(lambda: broker.session.close())", ["register:2"]),
        ("server.add(lambda ask: Handler(broker))", ["register:2"]),
        ("def read() -> int: return broker.store.end", ["register:2"]),
        ("async def read() -> None: await broker.close()", ["register:2"]),
    ],
)
def test_what_keeps_the_whole_broker_is_found(made: str, found: list[str]) -> None:
    (function,) = ast.parse(f"def register(broker: Broker, server: Server) -> None:\n    {made}").body
    assert isinstance(function, ast.FunctionDef)
    assert keepers(function) == found


def _takes(whole: Broker) -> None: ...


def register(whole: Broker) -> None: ...


@pytest.mark.parametrize("made", [attrs.make_class("Parts", {"whole": attrs.field(type=Broker)}), _takes])
def test_who_takes_the_whole_broker_is_found(made: Any) -> None:
    module = ModuleType(made.__module__)
    setattr(module, made.__name__, made)
    module.__dict__["register"] = register  # where parts are taken from
    name = f"{made.__name__}.__init__" if inspect.isclass(made) else made.__name__
    assert [f"{made.__module__}.{name}"] == takers(module)


def classes() -> list[type]:
    """Return the classes that are defined below broker and container."""
    modules = [
        import_module(each.name)
        for package in (broker, container)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module.__name__
    ]


def all_parts(known: list[type]) -> list[type]:
    return [each for each in known if each.__name__.endswith("Parts")]


def too_large(known: list[type]) -> dict[str, int]:
    """Return how many fields those have that have too many, of *known* parts and the records that parts share."""
    parts = all_parts(known)
    named = {name for each in parts for field in attrs.fields(each) for name in re.findall(r"\w+", str(field.type))}
    shared = [each for each in known if each.__name__ in named and _is_shared_record(each)]
    sizes = {each.__qualname__: len(attrs.fields(each)) for each in (*parts, *shared)}
    return {name: size for name, size in sizes.items() if size > MOST_PARTS}


def _is_shared_record(known: type) -> bool:
    """Tell whether *known* only holds others; what can be gone through, such as the tables that travel, is a list."""
    return known.__setattr__ is FROZEN and not hasattr(known, "__iter__")


def test_nothing_takes_a_broker_by_pieces() -> None:
    known = [each for each in classes() if attrs.has(each)]
    assert len(all_parts(known)) > 30
    assert {} == too_large(known)


def test_parts_stay_what_they_were_when_they_were_taken() -> None:
    found = all_parts(classes())
    assert {"broker", "container"} == {each.__module__.split(".")[1] for each in found}
    assert [] == [each.__qualname__ for each in found if each.__setattr__ is not FROZEN]


def test_large_parts_are_found_also_where_they_hide_in_a_record() -> None:
    names = [f"part_{number}" for number in range(MOST_PARTS + 1)]
    hidden: Any = attrs.make_class("Everything", names, frozen=True)
    parts: Any = attrs.make_class("FewParts", {"everything": attrs.field(type=hidden)}, frozen=True)
    assert {"Everything": MOST_PARTS + 1} == too_large([hidden, parts])
    assert {"ManyParts": MOST_PARTS + 1} == too_large([attrs.make_class("ManyParts", names, frozen=True)])
