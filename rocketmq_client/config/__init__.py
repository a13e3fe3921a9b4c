"""Options of the RocketMQ client, validated once with pydantic and turned into plain settings.

The only place where options are checked: unknown names are refused, all problems are listed
together (`errors.ConfigError`), and names contain the unit. Nothing here touches the network. A
Spark executor never imports this; it gets the plain values.
"""

from rocketmq_client.config.models import AuthConfig, ClientConfig, ConsumerConfig, ProducerConfig

__all__ = ["AuthConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig"]
