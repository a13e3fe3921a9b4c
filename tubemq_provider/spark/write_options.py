"""Options of a write to `format("tubemq")`, all validated at once.

Contacts no server. This module runs on the driver and must not import pyspark, pyarrow or pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import Address, ClientSettings
from tubemq_provider.spark.credentials_file import settings_of
from tubemq_provider.spark.option_parser import Option, OptionParser
from tubemq_provider.spark.options import masters_of

WRITE_OPTIONS: Final = (
    Option("masters", ("tubemq.masters",)),
    Option("topic"),
    Option("inFlight", (), "256"),
    Option("rpcTimeoutMs", (), "10000"),
    Option("configFile"),
)

_WRITE_ONLY: Final = ("inflight",)
_SPARK_OPTIONS: Final = ("checkpointlocation", "queryname")
"""Options of Spark itself that it passes on to the sink of a stream."""
_REFUSED: Final = {
    "password": "is not taken, because options show in query plans; name a file with 'configFile'",
    "path": "is not used; save() takes no argument, name the topic with the option 'topic'",
    "kafka.bootstrap.servers": "is Kafka's word; name the masters with 'masters'",
}
_KAFKA_HINT: Final = ("kafka.", "belongs to Kafka's clients")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Validated options of a write. A task may have `in_flight` unacknowledged records."""

    masters: tuple[Address, ...]
    topic: str | None
    in_flight: int
    rpc_timeout_ms: int
    config_file: str | None
    rpc_timeout_given: bool = field(default=True, compare=False)

    def settings(self) -> ClientSettings:
        """Return the client settings of tasks. Reads `configFile`, so call it on the driver
        only."""
        return settings_of(
            self.masters, self.rpc_timeout_ms, self.config_file, said=self.rpc_timeout_given
        )


def for_writing(options: Mapping[str, str]) -> bool:
    """Return True if an option is specific to writes."""
    return any(name.lower() in _WRITE_ONLY for name in options)


def parse_write_options(user_options: Mapping[str, str]) -> WriteOptions:
    """Validate all options. Raises `ConfigError` with all problems, one line each."""
    options = {
        name: value for name, value in user_options.items() if name.lower() not in _SPARK_OPTIONS
    }
    values = OptionParser(WRITE_OPTIONS, options, refused=_REFUSED, refused_prefix=_KAFKA_HINT)
    parsed = WriteOptions(
        masters=masters_of(values),
        topic=values.text("topic"),
        in_flight=values.number("inFlight", low=1, high=100_000),
        rpc_timeout_ms=values.number("rpcTimeoutMs", low=1),
        config_file=values.text("configFile"),
        rpc_timeout_given=values.text("rpcTimeoutMs") is not None,
    )
    if values.problems:
        raise ConfigError(values.problems, subject='options of a write to format("tubemq")')
    return parsed
