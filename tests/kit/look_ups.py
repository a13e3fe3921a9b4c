"""A look-up that does not end: its group stays registered at the master for its topic.

A killed look-up leaves this state, and so does a running one. Consumers cannot have such groups,
whose names have a dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tubemq_client import ClientSettings, Metadata
from tubemq_client._core.master import MasterSession

__all__ = ["look_up_under_way"]


@contextmanager
def look_up_under_way(settings: ClientSettings, topic: str, group: str) -> Iterator[None]:
    """Register like `Metadata.topic` for `topic` and `group`; leave at the end."""
    with Metadata(settings) as client:
        name, client_id = f"{group}.e", f"{group}.e_127.0.0.1-1-1-1-Meta"
        session = MasterSession(settings.masters)
        client._driver.run(session.register_consumer(client_id, name, {topic: ()}))
        try:
            yield
        finally:
            client._driver.run(session.close_consumer(client_id, name))
