"""What every test against the genuine server needs."""

from __future__ import annotations

import pytest

from devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client.model import ClientSettings


@pytest.fixture
def settings(genuine: GenuineTubeMQ) -> ClientSettings:
    return ClientSettings(masters=(genuine.master_address,))
