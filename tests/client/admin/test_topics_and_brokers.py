"""Topics, brokers, masters: listing, changes, and the errors of refused changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.admin.conftest import Make, Site
from tests.system.behaviour.sites import SHARED, WIDE
from tubemq_client import errors
from tubemq_client.admin import TopicProperties


def test_topics_with_their_partitions(site: Site, admin: Any) -> None:
    (wide_topic,) = admin.topics([WIDE])
    assert (wide_topic.name, wide_topic.partitions, wide_topic.accepts_publish) == (WIDE, 6, True)
    assert [p.partition_id for p in wide_topic.partition_list()] == [
        0,
        1,
        2,
        10_000,
        10_001,
        10_002,
    ]
    (deployed,) = wide_topic.deployments
    assert (deployed.broker_id, deployed.status) == (site.broker_id, "normal")
    assert deployed.publishing is True
    assert (deployed.properties.stores, deployed.properties.partitions) == (2, 3)
    assert {SHARED, WIDE} <= {topic.name for topic in admin.topics()}
    assert admin.topics(["nowhere"]) == []
    with pytest.raises(errors.UnknownTopic, match="nowhere"):
        admin.topic("nowhere")


def test_brokers_and_how_they_run(site: Site, admin: Any) -> None:
    (broker,) = [b for b in admin.brokers() if b.broker_id == site.broker_id]
    assert (broker.host, broker.manage_status) == ("127.0.0.1", "online")
    assert admin.broker_urls()[site.broker_id] == broker.web_url
    (status,) = [s for s in admin.broker_status() if s.broker_id == site.broker_id]
    assert (status.run_status, status.online, status.accepts_publish) == ("running", True, True)
    assert (status.abnormal, status.forbidden) == (False, False)
    assert admin.server_version()
    masters = admin.master_group()
    assert [node.status for node in masters.nodes] == ["Master"]


def test_a_topic_from_creation_to_deletion(site: Site, admin: Any, new_topic: str) -> None:
    properties = TopicProperties(partitions=2, retention="delete,2h")
    assert admin.create_topic(new_topic, properties, [site.broker_id]) == [site.broker_id]
    (deployed,) = admin.topic(new_topic).deployments
    assert (deployed.properties.partitions, deployed.properties.retention) == (2, "delete,2h")

    with pytest.raises(errors.AdminError, match=rf"{site.broker_id}:{new_topic}: code 402"):
        admin.create_topic(new_topic, broker_ids=[site.broker_id])
    assert admin.modify_topic(new_topic, TopicProperties(partitions=3)) == [site.broker_id]
    admin.modify_topic(new_topic, TopicProperties(partitions=3))  # no change is no error
    with pytest.raises(errors.AdminError) as refused:
        admin.modify_topic(new_topic, TopicProperties(partitions=1))
    assert [failure.code for failure in refused.value.failures] == [407]

    admin.delete_topic(new_topic)
    assert admin.topic(new_topic).deployments[0].status == "deleted"
    admin.delete_topic(new_topic, remove_data=True)
    left = [d.status for topic in admin.topics([new_topic]) for d in topic.deployments]
    assert set(left) <= {"removing"}


def test_a_partial_failure_lists_both_parts(site: Site, admin: Any, new_topic: str) -> None:
    with pytest.raises(errors.AdminError) as refused:
        admin.create_topic(new_topic, broker_ids=[site.broker_id, 4_711])
    (failure,) = refused.value.failures
    assert (failure.item, failure.code) == (f"4711:{new_topic}", 401)
    assert refused.value.done == (f"{site.broker_id}:{new_topic}",)
    admin.delete_topic(new_topic, remove_data=True)


def test_changes_need_the_right_token(make: Make, site: Site, new_topic: str) -> None:
    with pytest.raises(errors.ConfigError, match="--admin-token"):
        make(site.web).create_topic(new_topic)
    with pytest.raises(errors.BadRequest, match="unauthorized") as refused:
        make(site.web, token="quite-wrong").create_topic(new_topic)
    assert "quite-wrong" not in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (TopicProperties(partitions=0, cache_mb=1), ["partitions: 0", "cache_mb: 1"]),
        (TopicProperties(retention="keep"), ["retention: 'keep'"]),
        (TopicProperties(retention="delete,169h"), ["at most 168 h"]),
    ],
)
def test_properties_out_of_range_are_refused_here(
    admin: Any, new_topic: str, properties: TopicProperties, words: list[str]
) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        admin.create_topic(new_topic, properties)
    assert all(word in str(refused.value) for word in words)


def test_a_broker_from_draft_to_deleted(site: Site, admin: Any) -> None:
    del site
    assert admin.add_broker("10.9.8.7", 987) == 987
    try:
        assert status_of(admin, 987) == "draft"
        with pytest.raises(errors.BadRequest, match="Duplicated"):
            admin.add_broker("10.9.8.7", 988)
        admin.modify_broker(987, web_port=8099, properties=TopicProperties(partitions=2))
        (broker,) = [b for b in admin.brokers() if b.broker_id == 987]
        assert (broker.web_port, broker.properties.partitions) == (8099, 2)
        admin.online_brokers([987])
        assert status_of(admin, 987) == "online"
        admin.online_brokers([987])  # no change is no error
        admin.set_broker_access([987], publish=False)
        assert status_of(admin, 987) == "only-read"
        admin.offline_brokers([987])
        assert status_of(admin, 987) == "offline"
    finally:
        admin.delete_brokers([987], with_topics=True)
    assert [b for b in admin.brokers() if b.broker_id == 987] == []
    with pytest.raises(errors.AdminError, match="401"):
        admin.offline_brokers([4_711])
    with pytest.raises(errors.ConfigError, match="IPv4"):
        admin.add_broker("localhost")


def status_of(admin: Any, broker_id: int) -> str:
    (broker,) = [b for b in admin.brokers() if b.broker_id == broker_id]
    return str(broker.manage_status)
