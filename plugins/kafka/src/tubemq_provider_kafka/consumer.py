"""Options of a task's `consumer_config`: those of librdkafka that change how a window is read.

Addresses, TLS and credentials are in the connection; what exact windows depend on has no option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, create_model

from tubemq_client.config import CommonOptions
from tubemq_client.errors import ConfigError
from tubemq_provider.sources.consumer_config import ConsumerOptions
from tubemq_provider_kafka.cluster import KafkaConfig, KafkaSettings

__all__ = ["CONSUMER"]

_INT32: Final = (1 << 31) - 1
_RANGES: Final = {
    "deadline_ms": (1, _INT32),
    "fetch.error.backoff.ms": (0, 300_000),
    "fetch.max.bytes": (1_000_000, _INT32 - 512),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.queue.backoff.ms": (0, 300_000),
    "fetch.wait.max.ms": (0, 30_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "queued.max.messages.kbytes": (1, 2_097_151),
    "queued.min.messages": (1, 10_000_000),
    "socket.connection.setup.timeout.ms": (1000, _INT32),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (2000, 300_000),
}
"""Numbers, with bounds that librdkafka takes beside its defaults for the others."""

_FIELDS: Final[dict[str, Any]] = {
    **{
        name: (Annotated[int | None, Field(ge=least, le=most)], None)
        for name, (least, most) in _RANGES.items()
    },
    **dict.fromkeys(("client.id", "client.rack"), (str | None, None)),
    "socket.keepalive.enable": (bool | None, None),
}

_CONNECTION: Final = "give it in the extra of the connection"


class _KafkaConsumerOptions(ConsumerOptions):
    """Options by librdkafka's names, which settings keep as pairs."""

    def applied(self, settings: KafkaSettings, options: Mapping[str, Any]) -> KafkaSettings:
        """Return `settings` with `options` in place of the connection's. Raises `ConfigError`."""
        if problems := self.problems(options):
            raise ConfigError(problems, subject="consumer_config")
        chosen = self.model.parse(options).model_dump(exclude_none=True)
        base = {
            "bootstrap.servers": settings.servers,
            "deadline_ms": round(settings.deadline_s * 1000),
            **dict(settings.options),
        }
        return KafkaConfig.parse({**base, **chosen}).settings()


CONSUMER: Final = _KafkaConsumerOptions(
    create_model("KafkaConsumer", __base__=CommonOptions, **_FIELDS),
    {},
    {
        **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), _CONNECTION),
        **dict.fromkeys(("security.protocol", "ssl.ca.location"), _CONNECTION),
        "group.id": "say group=…",
        "auto.offset.reset": "initial_position says where a group begins",
        "enable.auto.commit": "progress is kept by offset_store",
        "enable.auto.offset.store": "progress is kept by offset_store",
        "enable.partition.eof": "a window needs to be told where a partition ends",
        "isolation.level": "windows have committed records only",
        "check.crcs": "checksums are always compared",
        "allow.auto.create.topics": "reading makes no topic",
    },
    # Not called: `applied` goes from settings to settings.
    lambda _: None,
)
