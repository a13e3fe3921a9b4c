"""`TubeMQMessageQueueProvider`: ``MessageQueueTrigger(scheme="tubemq", topic=…, group=…)``.

Airflow finds it in the provider's manifest. It matches its scheme and nothing else, as two
providers that match one trigger are an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from tubemq_client import errors
from tubemq_provider.triggers.lag import TubeMQLagTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

__all__ = ["TubeMQMessageQueueProvider"]


class TubeMQMessageQueueProvider(BaseMessageQueueProvider):
    """Queues of scheme ``tubemq``; the keyword arguments are those of `TubeMQLagTrigger`."""

    scheme = "tubemq"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """The trigger that waits for records on a topic."""
        found: type[BaseEventTrigger] = TubeMQLagTrigger
        return found

    def queue_matches(self, queue: str) -> bool:
        """Whether `queue` is ``tubemq://<cluster>/<topic>?group=<group>``."""
        return queue.startswith("tubemq://")

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The arguments that a queue's URI says. Raises `errors.ConfigError` without a group."""
        from urllib.parse import parse_qs, urlsplit

        parts = urlsplit(queue)
        group = parse_qs(parts.query).get("group", [""])[0]
        topic = parts.path.strip("/")
        if not (parts.netloc and topic and group):
            raise errors.ConfigError(
                f"{queue!r} is not tubemq://<cluster>/<topic>?group=<group>", subject="queue"
            )
        found = {"cluster": parts.netloc, "topic": topic, "group": group}
        return {name: value for name, value in found.items() if name not in kwargs}
