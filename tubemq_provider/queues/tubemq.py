"""`TubeMQMessageQueueProvider`: ``MessageQueueTrigger(scheme="tubemq", topic=…, group=…)``.

Fires for lag, or with ``kind="message"`` for each record. Airflow finds it in the provider's
manifest. It matches only its scheme, as two providers that match one trigger are an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from tubemq_client import errors
from tubemq_provider.triggers.lag import TubeMQLagTrigger
from tubemq_provider.triggers.messages import TubeMQMessageTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

__all__ = ["TubeMQMessageQueueProvider", "TubeMQQueueTrigger"]


class TubeMQQueueTrigger:
    """Factory of the trigger of a `kind`: ``lag`` (default) or ``message``.

    They are `TubeMQLagTrigger` and `TubeMQMessageTrigger`, which define the other keyword
    arguments.
    """

    def __new__(cls, *, kind: str = "lag", **kwargs: Any) -> Any:
        """Return the trigger itself, which Airflow serialises."""
        if kind not in _KINDS:
            raise errors.ConfigError(
                f"kind {kind!r} is not one of {', '.join(_KINDS)}", subject="queue"
            )
        return _KINDS[kind](**kwargs)


_KINDS: dict[str, Any] = {"lag": TubeMQLagTrigger, "message": TubeMQMessageTrigger}


class TubeMQMessageQueueProvider(BaseMessageQueueProvider):
    """Queues of scheme ``tubemq``; the keyword arguments are those of `TubeMQQueueTrigger`."""

    scheme = "tubemq"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the trigger that waits for records on a topic."""
        factory: Any = TubeMQQueueTrigger
        return cast("type[BaseEventTrigger]", factory)

    def queue_matches(self, queue: str) -> bool:
        """Return True for ``tubemq://<cluster>/<topic>?group=<group>``."""
        return queue.startswith("tubemq://")

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments in a queue's URI.

        Raises `errors.ConfigError` without a group, and for further parts, which would have no
        effect.
        """
        from urllib.parse import parse_qs, urlsplit

        try:
            parts = urlsplit(queue)
        except ValueError:
            raise errors.ConfigError("it cannot be read as a URI", subject="queue") from None
        if "@" in parts.netloc:
            raise errors.ConfigError(
                "a queue's URI names a cluster by its alias; user and password belong into the "
                "connection",
                subject="queue",
            )
        query = parse_qs(parts.query, keep_blank_values=True)
        groups, topic = query.pop("group", []), parts.path.strip("/")
        if query or parts.fragment:
            raise errors.ConfigError(
                f"{queue!r} says more than ?group=: pass {', '.join(sorted(query)) or 'the rest'} "
                f"to MessageQueueTrigger",
                subject="queue",
            )
        group = groups[0] if len(groups) == 1 else ""
        if not (parts.netloc and topic and group):
            raise errors.ConfigError(
                f"{errors.without_credentials(queue)!r} is not "
                "tubemq://<cluster>/<topic>?group=<group>",
                subject="queue",
            )
        arguments = {"cluster": parts.netloc, "topic": topic, "group": group}
        return {name: value for name, value in arguments.items() if name not in kwargs}
