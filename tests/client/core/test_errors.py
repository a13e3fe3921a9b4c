"""Errors keep their class, text and data through pickling, as process pools and Spark need."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType

import pytest

from tubemq_client import errors

SAMPLES = [
    errors.ConfigError(["a: wrong", "b: missing"], subject="options"),
    errors.for_code(410, "held by another", where="broker 1"),
    errors.StandbyMaster("x.StandbyException", "not master", where="m1"),
    errors.DataLoss("gone", start=28, available=56),
    errors.RpcTimeout("silent"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_data(error: errors.TubeMQError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_an_error_is_recognised_in_a_traceback() -> None:
    """Spark passes the errors of its tasks on as text."""
    text = (
        "Traceback (most recent call last):\n  ...\n"
        "tubemq_client.errors.RpcTimeout: silent\n\nThe above exception was the direct cause\n"
        "tubemq_client.errors.DataLoss: retention has removed offsets [0, 28)\n\tat org.apache"
    )
    error = errors.from_text(text)
    assert isinstance(error, errors.DataLoss)
    assert (str(error), error.fatal) == ("retention has removed offsets [0, 28)", True)
    assert errors.from_text("java.lang.OutOfMemoryError: heap") is None
    problems = errors.ConfigError(["one", "two"], subject="columns")
    again = errors.from_text(f"x\ntubemq_client.errors.ConfigError: {problems}\n\tat org.apache")
    assert str(again) == str(problems)
    assert errors.from_text("tubemq_client.errors.NoSuchThing: x") is None


def test_an_error_of_another_distribution_is_recognised_if_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(errors.TubeMQError):
        fatal = True

    text = "org.apache.errors.Other: not ours: toy.errors.Refused: no right to read\n\tat org"
    assert errors.from_text(text) is None
    toy = ModuleType("toy.errors")
    toy.Refused = Refused  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy.errors", toy)

    error = errors.from_text(text)
    assert isinstance(error, Refused)
    assert (str(error), error.fatal) == ("no right to read", True)
    assert errors.class_at("os.path") is errors.class_at("sys") is None
