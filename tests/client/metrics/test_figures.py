"""Metrics that OpenTelemetry's reader collects of watched clients, and of no others."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.client.io.test_forks import in_child
from tests.kit.servers import client_settings, embedded_tubemq
from tubemq_client import (
    ClientSettings,
    Consumer,
    Metadata,
    Partition,
    Producer,
    Record,
    Session,
)
from tubemq_client.metrics import ClientMetrics
from tubemq_client.model import address_text

TOPIC = "measured"


mq = embedded_tubemq([TOPIC], scope="module")
settings = client_settings(scope="module", heartbeat_period_ms=1_000)


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def metrics(reader: InMemoryMetricReader) -> ClientMetrics:
    return ClientMetrics(MeterProvider([reader], shutdown_on_exit=False))


def collected(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Return points by the name of their instrument."""
    by_instrument: dict[str, list[tuple[dict[str, Any], float]]] = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                every: Iterable[Any] = metric.data.data_points
                points = [(dict(p.attributes), p.value) for p in every]
                by_instrument[metric.name] = points
    return by_instrument


def test_metrics_of_a_producer_and_a_member(
    settings: ClientSettings, metrics: ClientMetrics, reader: InMemoryMetricReader
) -> None:
    with Producer(settings) as producer, Consumer(settings, "measures", {TOPIC: ()}) as member:
        metrics.watch(producer, role="loader")
        metrics.watch(member)
        producer.send_all(TOPIC, [Record(b"x" * 100) for _ in range(7)])
        assert member.partitions_ready(60_000)
        member.confirm(member.receive(60_000))  # type: ignore[arg-type]
        points = collected(reader)
    loader = {"messaging.system": "tubemq", "tubemq.client.kind": "Producer", "role": "loader"}
    sent = {point["outcome"]: value for point, value in points["messaging.client.sent.messages"]}
    assert sent == {"stored": 7, "failed": 0}
    assert points["tubemq.producer.bytes.stored"] == [(loader, 700)]
    requests = {p["tubemq.client.kind"] for p, n in points["tubemq.client.requests"] if n > 0}
    assert requests == {"Producer", "Consumer"}
    assert all(age < 60 for _, age in points["tubemq.client.silence"])
    [(_, received)] = points["messaging.client.consumed.messages"]
    assert received >= 1
    [(where, lag)] = points["tubemq.consumer.lag"]
    assert where["messaging.destination.name"] == TOPIC
    assert where["messaging.destination.partition.id"] == str(Partition(1, TOPIC, 0))
    assert lag >= 0
    outcomes = {point["outcome"]: n for point, n in points["tubemq.consumer.fetches"]}
    assert outcomes["batches"] >= 1
    assert outcomes["unanswered"] == 0


def test_clients_without_stats_have_connections(
    settings: ClientSettings, metrics: ClientMetrics, reader: InMemoryMetricReader
) -> None:
    with Metadata(settings) as metadata:
        metrics.watch(metadata)
        metadata.topic(TOPIC)
        points = collected(reader)
        [(point, opened)] = points["tubemq.client.connections.opened"]
        assert (point["server.address"], opened) == (address_text(settings.masters[0]), 1)
        assert "messaging.client.sent.messages" not in points
        metrics.unwatch(metadata)
        assert not collected(reader).get("tubemq.client.requests")


def test_a_garbage_collected_client_is_forgotten(
    settings: ClientSettings, metrics: ClientMetrics, reader: InMemoryMetricReader
) -> None:
    with Metadata(settings) as metadata:
        metrics.watch(metadata)
        metadata.topic(TOPIC)
    assert collected(reader)["tubemq.client.requests"]
    del metadata
    gc.collect()
    assert not collected(reader).get("tubemq.client.requests")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_reports_the_metrics_of_its_own_clients(
    settings: ClientSettings, metrics: ClientMetrics, reader: InMemoryMetricReader
) -> None:
    def roles() -> list[object]:
        with Metadata(settings) as own:
            metrics.watch(own, role="child")
            own.topic(TOPIC)
            return [point["role"] for point, _ in collected(reader)["tubemq.client.requests"]]

    with Producer(settings) as parents:
        metrics.watch(parents, role="parent")
        parents.send(TOPIC, b"x")
        assert set(ast.literal_eval(in_child(roles))) == {"child"}


def test_shared_connections_are_reported_once(
    settings: ClientSettings, metrics: ClientMetrics, reader: InMemoryMetricReader
) -> None:
    with Session(settings) as session, Producer(session) as producer, Metadata(session) as metadata:
        metrics.watch(producer, role="loader")
        metrics.watch(metadata, role="looker")
        producer.send(TOPIC, b"x")
        addresses = [
            point["server.address"] for point, _ in collected(reader)["tubemq.client.requests"]
        ]
        assert sorted(addresses) == sorted(producer.connections)
        metrics.unwatch(producer)
        assert len(collected(reader)["tubemq.client.requests"]) == len(addresses)
