"""The resource and the lake of a test, over the `mq` of its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider.dagster import TubeMQResource


@pytest.fixture
def resource(mq: EmbeddedTubeMQ, tmp_path: Path) -> TubeMQResource:
    host, port = mq.master_address
    return TubeMQResource(masters=f"{host}:{port}", offsets_dir=str(tmp_path / "offsets"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
