"""Errors keep their class, text and data through pickling, as process pools and Spark need."""

from __future__ import annotations

import pickle

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
