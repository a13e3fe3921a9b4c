"""Options of a Kafka cluster, and questions to its brokers: topics, ends, times.

Options are librdkafka's own names, as the connection type `kafka` of Airflow's Kafka provider
stores them in its extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tubemq_client import errors
from tubemq_provider_kafka.space import KafkaPartition

__all__ = ["Cluster", "KafkaConfig", "KafkaSettings", "Topic", "error_of"]

_OWN: Final = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
"""Options that exact windows depend on; those of a connection have no effect."""
_NOT_OF_ADMIN: Final = {*_OWN, "group.id"} - {"allow.auto.create.topics"}
_SECRET: Final = ("password", "secret", "key.pem", "token", "oauthbearer.config", "jaas")
_TIMEOUT_S: Final = 30
_ABSENT: Final = -1

_AUTHENTICATION: Final = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - public, but so named
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
)
_AUTHORIZATION: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_UNKNOWN: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION,
)
_UNREACHABLE: Final = (
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


def error_of(error: KafkaError, doing: str, cause: KafkaError | None = None) -> errors.TubeMQError:
    """Return the product's error for one of Kafka; `cause` is what the connection last reported."""
    if cause is not None and error.code() in _UNREACHABLE:
        return error_of(cause, doing)
    text = f"{doing}: {error.str()}"
    if error.code() in _AUTHENTICATION:
        return errors.AuthenticationFailed(
            error.code(), f"{text}; check security.protocol and sasl.* of the connection"
        )
    if error.code() == KafkaError._SSL:  # noqa: SLF001
        return errors.TlsError(f"{text}; check security.protocol and ssl.* of the connection")
    if error.code() in _AUTHORIZATION:
        return errors.NotAuthorized(error.code(), text)
    if error.code() in _UNKNOWN:
        return errors.UnknownTopic(error.code(), text)
    if error.code() in _UNREACHABLE or error.retriable():
        return errors.ConnectError(text)
    return errors.ServerError(error.code(), text)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Options of librdkafka as pairs; only the servers are in its `repr`."""

    servers: str
    options: tuple[tuple[str, str], ...] = field(repr=False, default=())
    deadline_s: float = 60

    def client(self) -> dict[str, Any]:
        """Return the options of a client; it prints only what ends it, since errors are raised."""
        return {"bootstrap.servers": self.servers, "log_level": "2", **dict(self.options)}

    def without_secrets(self, text: str) -> str:
        """Return a message of librdkafka without the values of secret options."""
        for name, value in self.options:
            if value and any(part in name for part in _SECRET):
                text = text.replace(value, "***")
        return text


class KafkaConfig:
    """Options of a connection: librdkafka's in the extra, servers also as host and port.

    `deadline_ms` is the time that a read may make no progress.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the model. Raises `ConfigError` with every problem, and no secret."""
        given = dict(options)
        problems: list[str] = []
        host, port = given.pop("host", None), given.pop("port", None)
        if host and port and "," not in host and ":" not in host:
            host = f"{host}:{port}"
        servers = given.pop("bootstrap.servers", None) or host
        if not servers:
            problems.append("bootstrap.servers: missing; give it in the extra, or name a host")
        for name, option in (("login", "sasl.username"), ("password", "sasl.password")):
            if value := given.pop(name, None):
                given.setdefault(option, value)
        deadline_ms = given.pop("deadline_ms", 60_000)
        if not isinstance(deadline_ms, int | str) or not str(deadline_ms).isdecimal():
            problems.append("deadline_ms: not a number of milliseconds")
            deadline_ms = 0
        for name, value in list(given.items()):
            if name.endswith("_cb") or isinstance(value, dict | list):
                problems.append(f"{name}: callbacks and objects are not taken, only text")
                del given[name]
            elif isinstance(value, bool):
                given[name] = str(value).lower()
        if problems:
            raise errors.ConfigError(problems, subject="kafka options")
        pairs = tuple((name, str(value)) for name, value in sorted(given.items()))
        settings = KafkaSettings(str(servers), pairs, int(deadline_ms) / 1000)
        Cluster(settings).close()  # librdkafka judges names and values, and connects to nothing yet
        return cls(settings)

    def settings(self) -> KafkaSettings:
        """Return the frozen settings."""
        return self._settings


class Topic(NamedTuple):
    """Topic as brokers describe it: its id, and the leader of each partition, None without one."""

    identity: tuple[int, int]
    leaders: Mapping[KafkaPartition, int | None]


class Cluster:
    """Connection to the brokers of `settings`; opens on first use."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._last_error: KafkaError | None = None
        self._admin: AdminClient | None = self._made(
            lambda: AdminClient(
                {
                    **{k: v for k, v in settings.client().items() if k not in _NOT_OF_ADMIN},
                    "error_cb": self._remember,
                }
            )
        )

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._admin = None

    def consumer(self, group: str) -> Consumer:
        """Return a consumer that reads committed records and commits nothing; close it."""
        # A broker waits so long before it says that a partition has no more.
        options = {"fetch.wait.max.ms": "100", **self._settings.client(), **_OWN, "group.id": group}
        return self._made(lambda: Consumer({**options, "error_cb": self._remember}))

    def describe(self) -> str:
        """Return the number of brokers and the id of the cluster."""
        found = self._ask(
            lambda admin: {"": admin.describe_cluster(request_timeout=_TIMEOUT_S)}, "cluster"
        )[""]
        return f"{len(found.nodes)} brokers of cluster {found.cluster_id}"

    def topic(self, name: str) -> Topic:
        """Return the topic. Raises `UnknownTopic`."""
        described = self._ask(
            lambda admin: admin.describe_topics(
                TopicCollection([name]), request_timeout=_TIMEOUT_S
            ),
            f"topic {name!r}",
        )[name]
        bits = described.topic_id
        leaders = {
            KafkaPartition(name, each.id): None if each.leader is None else each.leader.id
            for each in described.partitions
        }
        return Topic((bits.get_most_significant_bits(), bits.get_least_significant_bits()), leaders)

    def earliest(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets(partitions, OffsetSpec.earliest(), committed=True)

    def latest(
        self, partitions: Iterable[KafkaPartition], *, committed: bool
    ) -> dict[KafkaPartition, int]:
        """Return the last stable offset (`committed`), or the high watermark, of each partition."""
        return self._offsets(partitions, OffsetSpec.latest(), committed=committed)

    def at_time(
        self, partitions: Iterable[KafkaPartition], milliseconds: int
    ) -> dict[KafkaPartition, int | None]:
        """Return the first offset with that time or a later one, by the index of the brokers; None
        if there is none. Records of open transactions count."""
        spec = OffsetSpec.for_timestamp(milliseconds)
        found = self._offsets(partitions, spec, committed=False)
        return {key: None if offset == _ABSENT else offset for key, offset in found.items()}

    def _offsets(
        self, partitions: Iterable[KafkaPartition], spec: OffsetSpec, *, committed: bool
    ) -> dict[KafkaPartition, int]:
        asked = {TopicPartition(*each): spec for each in partitions}
        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        answers = self._ask(
            lambda admin: admin.list_offsets(
                asked, isolation_level=level, request_timeout=_TIMEOUT_S
            ),
            "offsets",
        )
        return {KafkaPartition(tp.topic, tp.partition): a.offset for tp, a in answers.items()}

    def _ask(
        self, question: Callable[[AdminClient], Mapping[Any, Future[Any]]], doing: str
    ) -> dict[Any, Any]:
        """Return the answers by key. Raises the product's errors."""
        if self._admin is None:
            raise errors.ClosedError("the connection to Kafka was closed")
        try:
            return {key: each.result(_TIMEOUT_S + 5) for key, each in question(self._admin).items()}
        except KafkaException as error:
            self._admin.poll(0)
            raise self.failure(error.args[0], doing) from None
        except TimeoutError:
            raise errors.RpcTimeout(f"{doing}: no answer in {_TIMEOUT_S} s") from None

    def failure(self, error: KafkaError, doing: str) -> errors.TubeMQError:
        """Return the product's error for `error`, with what the connection last reported."""
        return error_of(error, f"{doing} at {self._settings.servers}", self._last_error)

    def _remember(self, error: KafkaError) -> None:
        if error.code() in (*_AUTHENTICATION, KafkaError._SSL):  # noqa: SLF001
            self._last_error = error

    def _made(self, make: Callable[[], Any]) -> Any:
        """Return a client. Raises `ConfigError` for options that librdkafka refuses."""
        try:
            return make()
        except (KafkaException, TypeError, ValueError) as error:
            cause = error.args[0] if error.args else error
            text = cause.str() if isinstance(cause, KafkaError) else str(cause)
            raise errors.ConfigError(
                self._settings.without_secrets(text), subject="kafka options"
            ) from None
