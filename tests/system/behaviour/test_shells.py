"""The two shells are one: the same names in the same order, the same meaning, the same options."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from tubemq_client import aio, sync

MODULES = pytest.mark.parametrize(
    "name",
    [
        "_base",
        "_member",
        "_parallel",
        "assigned_consumer",
        "consumer",
        "metadata",
        "producer",
        "ranges",
        "session",
    ],
)
CLASSES = pytest.mark.parametrize("name", sync.__all__)

SPECIAL = {
    "__init__": "__init__",
    "__enter__": "__enter__",
    "__exit__": "__exit__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}


def own_methods(kind: type) -> dict[str, Any]:
    """Public methods and properties of the class itself in the order of their definition."""
    return {
        SPECIAL.get(name, name): value.fget if isinstance(value, property) else value
        for name, value in vars(kind).items()
        if (name in SPECIAL or not name.startswith("_"))
        and (inspect.isfunction(value) or isinstance(value, property))
    }


def methods(kind: type) -> dict[str, Any]:
    """Return the methods with those of the bases, which come first."""
    found: dict[str, Any] = {}
    for owner in reversed(kind.__mro__[:-1]):
        found |= own_methods(owner)
    return found


def first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def parameters(value: Any) -> list[str]:
    return [str(parameter) for parameter in inspect.signature(value).parameters.values()]


def answer(value: Any) -> str:
    """Return the return annotation; iterators of both APIs are equal."""
    text = str(inspect.signature(value).return_annotation)
    return re.sub(r"AsyncGenerator\[(.*), None\]", r"Iterator[\1]", text)


def test_the_same_classes_are_public() -> None:
    assert sync.__all__ == aio.__all__


@MODULES
def test_the_modules_bear_the_same_names(name: str) -> None:
    for package in (sync, aio):
        assert importlib.import_module(f"{package.__name__}.{name}")


@CLASSES
def test_methods_have_the_same_names_in_the_same_order(name: str) -> None:
    blocking, looping = getattr(sync, name), getattr(aio, name)
    assert list(methods(blocking)) == list(methods(looping))
    assert list(own_methods(blocking)) == list(own_methods(looping))


@CLASSES
def test_docstrings_begin_with_the_same_line(name: str) -> None:
    blocking, looping = getattr(sync, name), getattr(aio, name)
    assert first_line(blocking) == first_line(looping) != ""
    assert {n: first_line(m) for n, m in methods(blocking).items()} == {
        n: first_line(m) for n, m in methods(looping).items()
    }


@CLASSES
def test_options_and_results_are_the_same(name: str) -> None:
    blocking, looping = methods(getattr(sync, name)), methods(getattr(aio, name))
    assert {n: parameters(m) for n, m in blocking.items()} == {
        n: parameters(m) for n, m in looping.items()
    }
    assert {n: answer(m) for n, m in blocking.items()} == {n: answer(m) for n, m in looping.items()}


@CLASSES
def test_what_waits_in_one_shell_is_awaited_in_the_other(name: str) -> None:
    """Nothing of the asyncio API blocks; values in memory are plain properties."""
    kind = getattr(aio, name)
    for method, value in methods(kind).items():
        if method != "__init__" and not isinstance(
            inspect.getattr_static(kind, method, None), property
        ):
            waits = inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
            assert waits, f"{name}.{method} blocks"
