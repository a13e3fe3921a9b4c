"""What every test against the genuine server needs."""

from __future__ import annotations

import pytest

from tubemq_client.model import ClientSettings
from tubemq_client.testing.genuine import GenuineTubeMQ


@pytest.fixture
def settings(genuine: GenuineTubeMQ) -> ClientSettings:
    return ClientSettings(masters=(genuine.master_address,))
