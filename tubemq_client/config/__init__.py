"""Options, validated once with pydantic and turned into the plain settings of clients.

The only place where options are checked: unknown names are refused, every problem is listed at once
(`errors.ConfigError`), units are in the names (`_ms`, `_bytes`). Nothing here touches the network;
`from_file` reads the file it is given. A Spark executor never imports this; it gets the plain
values.
"""

from tubemq_client.config.base import CommonOptions, validated
from tubemq_client.config.models import (
    ClientConfig,
    ConsumerConfig,
    FilterItem,
    GroupName,
    ProducerConfig,
    TopicName,
)
from tubemq_client.config.security import AuthConfig, TlsConfig
from tubemq_client.config.sources import from_file, from_url, with_environment

__all__ = [
    "AuthConfig",
    "ClientConfig",
    "CommonOptions",
    "ConsumerConfig",
    "FilterItem",
    "GroupName",
    "ProducerConfig",
    "TlsConfig",
    "TopicName",
    "from_file",
    "from_url",
    "validated",
    "with_environment",
]
