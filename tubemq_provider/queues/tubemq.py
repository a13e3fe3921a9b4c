"""`TubeMQMessageQueueProvider`: ``MessageQueueTrigger(scheme="tubemq", topic=…, group=…)``, which
rings for lag, or with ``kind="message"`` for each record.

Airflow finds it in the provider's manifest. It matches its scheme and nothing else, as two
providers that match one trigger are an error.
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
    """Makes the trigger of a `kind`: ``lag`` (default), `TubeMQLagTrigger`, or ``message``,
    `TubeMQMessageTrigger`. The other keyword arguments are that trigger's."""

    def __new__(cls, *, kind: str = "lag", **kwargs: Any) -> Any:
        """The trigger itself, which Airflow serialises."""
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
        """The trigger that waits for records on a topic."""
        found: Any = TubeMQQueueTrigger
        return cast("type[BaseEventTrigger]", found)

    def queue_matches(self, queue: str) -> bool:
        """Whether `queue` is ``tubemq://<cluster>/<topic>?group=<group>``."""
        return queue.startswith("tubemq://")

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The arguments that a queue's URI says. Raises `errors.ConfigError` without a group, and
        for anything else that the URI says, which would have no effect."""
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
        said = parse_qs(parts.query, keep_blank_values=True)
        groups, topic = said.pop("group", []), parts.path.strip("/")
        if said or parts.fragment:
            raise errors.ConfigError(
                f"{queue!r} says more than ?group=: pass {', '.join(sorted(said)) or 'the rest'} "
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
        found = {"cluster": parts.netloc, "topic": topic, "group": group}
        return {name: value for name, value in found.items() if name not in kwargs}
