"""The last errors of a member: they keep the error, but no object in use at that time."""

from __future__ import annotations

import gc
import weakref
from typing import NoReturn

import pytest

from tubemq_client import ClientSettings, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.group import LastErrors
from tubemq_client._core.master import MasterSession

MASTER = ("master", 8715)


class Buffer:
    """Stand-in for an object that a connection owns."""


def receive(buffer: Buffer, cause: OSError) -> NoReturn:
    """Fail with `buffer` in a frame, as connections do."""
    raise errors.ConnectionLost("127.0.0.1:8123: closed by the peer") from cause


ERRORS = [
    errors.ConnectionLost("127.0.0.1:8123: closed by the peer"),
    errors.NotRegistered(411, "no registration", where="fetch of 1:orders:0"),
    errors.StandbyMaster("StandbyException", "passive", where="master"),
    errors.DataLoss("retention came first", start=1, available=2),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_remembered_with_its_data(error: errors.TubeMQError) -> None:
    last_errors = LastErrors()
    last_errors["master"] = error
    stored = last_errors["master"]
    assert (type(stored), str(stored), vars(stored)) == (type(error), str(error), vars(error))


def test_last_errors_pin_no_objects() -> None:
    last_errors, buffer = LastErrors(), Buffer()
    try:
        receive(buffer, OSError("reset by peer"))
    except errors.TubeMQError as error:
        last_errors["master"] = error
    alive = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert alive() is None
    assert isinstance(last_errors["master"], errors.ConnectionLost)


def test_members_keep_last_errors_as_copies() -> None:
    master, topics, settings = MasterSession((MASTER,)), {"orders": ()}, ClientSettings((MASTER,))
    assigned = AssignedSession(master, "group", "client", topics)
    balanced = BalancedSession(master, "group", "client", topics, settings)
    assert type(assigned.last_errors) is type(balanced.last_errors) is LastErrors
