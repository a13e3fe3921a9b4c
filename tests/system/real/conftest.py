"""Fixtures of every test against the genuine server."""

from __future__ import annotations

from tests.kit.servers import client_settings

settings = client_settings(server="genuine", scope="session")
