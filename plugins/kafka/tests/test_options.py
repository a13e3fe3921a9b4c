"""Options, errors and keys; no broker."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tubemq_client import errors
from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.validation import parse
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.windows.spaces import space_of

SECRET = "correct-horse"


def settings(**options: Any) -> Any:
    given = {"bootstrap.servers": "127.0.0.1:1", **options}
    return config_of("kafka").parse(given).settings()


def test_a_connection_of_airflows_kafka_provider_is_taken_as_it_is() -> None:
    own = settings(**{"group.id": "x", "socket.timeout.ms": 10_000, "enable.auto.commit": False})

    assert own.client() == {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": "2",
        "group.id": "x",
        "socket.timeout.ms": "10000",
        "enable.auto.commit": "false",
    }
    fields = {"host": "broker", "port": 9093, "login": "u", "password": SECRET}
    plain = config_of("kafka").parse(fields).settings()
    assert plain.servers == "broker:9093"
    assert dict(plain.options) == {"sasl.username": "u", "sasl.password": SECRET}


def test_secrets_are_in_no_repr_but_travel() -> None:
    names = {"identity": "main", "topic": "orders", "group": "lake"}
    own = settings(**{"sasl.password": SECRET, "ssl.key.password": SECRET})

    assert SECRET not in repr(own) + repr(open_source("kafka", own, **names))
    assert pickle.loads(pickle.dumps(own)).client()["sasl.password"] == SECRET


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers: missing"),
        ({"sasl.mechanismm": "PLAIN"}, 'No such configuration property: "sasl.mechanismm"'),
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"oauth_cb": "module.function"}, "oauth_cb: callbacks and objects are not taken"),
        ({"deadline_ms": "soon"}, "deadline_ms: not a number"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings(**options)


def test_what_librdkafka_says_of_an_option_has_no_secret() -> None:
    broken = {"security.protocol": "SSL", "ssl.key.pem": SECRET}
    with pytest.raises(ConfigError) as caught:
        settings(**broken)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, errors.ConnectError),
        (KafkaError.NOT_LEADER_FOR_PARTITION, errors.ConnectError),
        (KafkaError.SASL_AUTHENTICATION_FAILED, errors.AuthenticationFailed),
        (KafkaError._SSL, errors.TlsError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.NotAuthorized),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.UnknownTopic),
        (KafkaError.INVALID_REQUEST, errors.ServerError),
    ],
)
def test_errors_of_kafka_are_those_of_the_provider(code: int, kind: type[Exception]) -> None:
    from tubemq_provider_kafka.cluster import error_of

    assert type(error_of(KafkaError(code), "offsets")) is kind
    refused = KafkaError(KafkaError._AUTHENTICATION)
    timed_out = error_of(KafkaError(KafkaError._TIMED_OUT), "offsets", refused)
    assert isinstance(timed_out, errors.AuthenticationFailed)


def test_keys_and_names_are_kafkas() -> None:
    space = space_of("kafka")

    assert space.ordered(["10", "9", "0"]) == ["0", "9", "10"]
    assert [space.is_key(key) for key in ("0", "07", "1:0", "-1", 3)] == [True, *[False] * 4]
    with pytest.raises(ValueError, match="is not '<partition number>'"):
        space.partition("orders", "07")


def test_arguments_are_judged_when_a_dag_is_parsed() -> None:
    given = {"group": "lake", "cluster": "main", "source": "kafka", "path": "/lake"}
    with pytest.raises(ConfigError, match="is no topic name"):
        parse(IngestArguments, {**given, "topic": "a b"})
    with pytest.raises(ConfigError, match="Kafka has no filters"):
        parse(IngestArguments, {**given, "topic": "orders", "filters": ["a"]})
    window = {"mode": "time", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
    with pytest.raises(ConfigError, match="offsets_for_times"):
        parse(IngestArguments, {**given, "topic": "orders", "resolver": "store_time", **window})


def test_a_tasks_consumer_config_wins_over_the_connection() -> None:
    own = settings(**{"fetch.wait.max.ms": 500, "sasl.password": SECRET, "deadline_ms": 90_000})
    source: Any = open_source("kafka", own, identity="main", topic="orders", group="lake")

    source.configure({"fetch.wait.max.ms": 20, "socket.keepalive.enable": True})

    found = source.settings()
    assert (found.servers, found.deadline_s) == ("127.0.0.1:1", 90)
    assert dict(found.options) == {
        "fetch.wait.max.ms": "20",
        "socket.keepalive.enable": "true",
        "sasl.password": SECRET,
    }
    source.configure({"deadline_ms": 1500})
    assert source.settings().deadline_s == 1.5
    assert SECRET not in repr(source.settings())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fetch.wait.max.mss": 1}, "did you mean fetch.wait.max.ms?"),
        ({"fetch.wait.max.ms": -1}, r"fetch.wait.max.ms: -1: .*\(allowed: 0 to 30000\)"),
        ({"deadline_ms": "soon"}, "deadline_ms: 'soon': "),
        ({"group.id": "x"}, "group.id: say group="),
        ({"isolation.level": "read_uncommitted"}, "isolation.level: windows have committed"),
        ({"bootstrap.servers": "x:1"}, "bootstrap.servers: give it in the extra"),
        ({"sasl.password": SECRET}, "sasl.password: belongs into the connection"),
        ({"ssl.key.password": SECRET}, "ssl.key.password: belongs into the connection"),
    ],
)
def test_consumer_config_is_judged_when_a_dag_is_parsed(
    options: dict[str, Any], problem: str
) -> None:
    given = {"group": "lake", "cluster": "main", "source": "kafka", "sink": "/lake"}
    both = {"fetch.min.bytes": 0, **options}
    with pytest.raises(ConfigError, match=problem) as caught:
        parse(IngestArguments, {**given, "topic": "orders", "consumer_config": both})
    assert "fetch.min.bytes: 0" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_librdkafka_takes_every_option_at_both_ends_of_its_range() -> None:
    from tubemq_provider_kafka.cluster import Cluster
    from tubemq_provider_kafka.consumer import _RANGES, CONSUMER

    chosen: list[dict[str, Any]] = [{name: end} for name, ends in _RANGES.items() for end in ends]
    chosen += [{"client.id": "x", "client.rack": "a", "socket.keepalive.enable": False}]
    for options in chosen:
        cluster = Cluster(CONSUMER.applied(settings(), options))
        cluster.consumer("lake").close()
        cluster.close()
    assert CONSUMER.names == {*_RANGES, *chosen[-1]}
