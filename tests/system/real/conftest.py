"""What every test against the genuine server needs."""

from __future__ import annotations

from tests.kit.servers import client_settings

settings = client_settings(server="genuine", scope="session")
