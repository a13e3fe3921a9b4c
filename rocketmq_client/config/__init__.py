"""Options of the RocketMQ client, validated once with pydantic and turned into plain settings.

The only place where options are checked: unknown names are refused, every problem is listed at once
(`errors.ConfigError`), units are in the names. Nothing here touches the network. A Spark executor
never imports this; it gets the plain values.
"""

from rocketmq_client.config.models import AuthConfig, ClientConfig, ProducerConfig

__all__ = ["AuthConfig", "ClientConfig", "ProducerConfig"]
