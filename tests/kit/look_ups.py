"""A look-up that does not end: the group it goes by is registered at the master for its topic.

As one that was killed leaves it, or one that is under way. Consumers cannot have such groups, whose
names have a dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tubemq_client import ClientSettings, Metadata
from tubemq_client._core.master import MasterSession

__all__ = ["look_up_under_way"]


@contextmanager
def look_up_under_way(settings: ClientSettings, topic: str, group: str) -> Iterator[None]:
    """As `Metadata.topic` looks `topic` up for `group`; it leaves at the end."""
    with Metadata(settings) as client:
        name, client_id = f"{group}.e", f"{group}.e_127.0.0.1-1-1-1-Meta"
        session = MasterSession(settings.masters)
        client._driver.run(session.register_consumer(client_id, name, {topic: ()}))
        try:
            yield
        finally:
            client._driver.run(session.close_consumer(client_id, name))
