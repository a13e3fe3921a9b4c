"""Options, validated once with pydantic and turned into the plain settings that shells run on.

The only place where options are checked: unknown names are refused, every problem is listed at
once (`errors.ConfigError`), units are in the names (`_ms`, `_bytes`). Nothing here does I/O. A
Spark executor never imports this; it gets the plain values.
"""

from tubemq_client.config.models import (
    ClientConfig,
    CommonOptions,
    ConsumerConfig,
    FilterItem,
    GroupName,
    ProducerConfig,
    TopicName,
    from_url,
    validated,
)

__all__ = [
    "ClientConfig",
    "CommonOptions",
    "ConsumerConfig",
    "FilterItem",
    "GroupName",
    "ProducerConfig",
    "TopicName",
    "from_url",
    "validated",
]
