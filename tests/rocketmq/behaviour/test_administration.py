"""Administration of groups and topics, at brokers and through a node: settings, progress, members,
and offsets that are moved while members run or none does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rocketmq_client import (
    Admin,
    ClientSettings,
    ConsumerSettings,
    GroupSettings,
    Producer,
    Queue,
    errors,
)
from rocketmq_client._wire.commands import Command
from rocketmq_snode import SnodeSettings
from tests.rocketmq.behaviour.test_groups import own, read, send, until
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site
from tests.snode.conftest import Node
from tests.snode.raw import Raw

FIRST = ConsumerSettings(consume_from="first", commit_ms=100, hold_ms=200)


@pytest.fixture(params=["direct", "node"])
def settings(request: pytest.FixtureRequest, site: Site) -> Iterator[ClientSettings]:
    """Return settings of administration: at the brokers, or through a node in front of them."""
    if request.param == "direct":
        yield site.settings
        return
    with Node(SnodeSettings(name_servers=site.settings.name_servers)) as node:
        yield node.settings


def test_a_group_is_created_changed_disabled_and_deleted(
    shell: Shell, site: Site, settings: ClientSettings
) -> None:
    topic = group = site.topic(1)
    send(shell, site.settings, topic, range(3))
    with shell.Admin(settings) as admin:
        admin.create_group(GroupSettings(group, max_retries=3))
        assert group in admin.groups()
        assert "TOOLS_CONSUMER" not in admin.groups()
        assert admin.group_settings(group) == {"broker-a": GroupSettings(group, max_retries=3)}
        admin.create_group(GroupSettings(group, max_retries=5, retry_queues=2), broker="broker-a")
        admin.enable_group(group, enabled=False)
        (changed,) = admin.group_settings(group).values()
        assert changed == GroupSettings(group, enabled=False, max_retries=5, retry_queues=2)
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer:
            until(lambda: consumer.stats.failed_pulls)
            assert consumer.receive(0) is None
            admin.enable_group(group)
            assert read(consumer, 3) == [0, 1, 2]
            consumer.commit()
        admin.delete_group(group)
        assert group not in admin.groups()
        assert admin.group_settings(group) == {}
        with pytest.raises(errors.UnknownGroup, match="no broker has group"):
            admin.enable_group(f"{group}-none")


def test_progress_and_members_are_shown(shell: Shell, site: Site, settings: ClientSettings) -> None:
    topic = group = site.topic(2)
    send(shell, site.settings, topic, range(6))
    with shell.Admin(settings) as admin:
        assert sum(item.max_offset - item.min_offset for item in admin.topic_stats(topic)) == 6
        assert max(item.last_ms for item in admin.topic_stats(topic)) > 1_600_000_000_000
        with shell.Consumer(site.settings, group, {topic: "a"}, consumer=FIRST) as consumer:
            until(lambda: len(own(consumer)) == 2)
            found = admin.group_members(group)
            (member,) = found.members
            assert (member.client_id, member.language) == (consumer.client_id, "PYTHON")
            assert member.version == "4.9.4"
            assert member.address.rpartition(":")[2].isdecimal()
            assert (found.mode, found.subscriptions[topic]) == ("clustering", "a")
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer:
            until(lambda: len(own(consumer)) == 2)
            consumer.commit()
        moved = admin.reset_by_time(group, topic, 0)
        assert moved == {Queue("broker-a", topic, number): 0 for number in range(2)}
        assert sum(item.diff for item in admin.progress(group, topic)) == 6
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer:
            read(consumer, 6)
            consumer.commit()
        progress = {item.queue: item for item in admin.progress(group) if item.queue in moved}
        assert sum(item.committed for item in progress.values()) == 6
        assert all(item.diff == 0 and item.last_ms for item in progress.values())
        assert admin.group_members(group).members == ()


def test_a_group_without_members_is_moved_by_offset_and_by_time(
    shell: Shell, site: Site, settings: ClientSettings
) -> None:
    topic = group = site.topic(1)
    queue = Queue("broker-a", topic, 0)
    send(shell, site.settings, topic, range(5))
    time.sleep(0.05)
    between = time.time_ns() // 1_000_000
    time.sleep(0.05)
    send(shell, site.settings, topic, range(5, 8))
    with shell.Admin(settings) as admin:
        admin.create_group(GroupSettings(group))
        assert admin.reset_offsets(group, topic, {queue: 7}) == {queue: 7}
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer:
            assert read(consumer, 1) == [7]
        assert admin.reset_by_time(group, topic, between) == {queue: 5}
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer:
            assert read(consumer, 3) == [5, 6, 7]
        with pytest.raises(errors.ConfigError, match=r"offset 9 of .* is not within \[0, 8\]"):
            admin.reset_offsets(group, topic, {queue: 9})
        with pytest.raises(errors.ConfigError, match="is not a queue of topic"):
            admin.reset_offsets(group, topic, {Queue("broker-a", topic, 5): 0})


def test_running_members_are_moved(shell: Shell, site: Site, settings: ClientSettings) -> None:
    topic = group = site.topic(1)
    queue = Queue("broker-a", topic, 0)
    send(shell, site.settings, topic, range(4))
    with (
        shell.Admin(settings) as admin,
        shell.Consumer(site.settings, group, {topic: ()}, consumer=FIRST) as consumer,
    ):
        assert read(consumer, 4) == [0, 1, 2, 3]
        assert admin.reset_by_time(group, topic, 0) == {queue: 0}
        assert read(consumer, 4) == [0, 1, 2, 3]
        if site.name == "4.9.7":
            with pytest.raises(errors.ConfigError, match="stop them, or reset by time"):
                admin.reset_offsets(group, topic, {queue: 3})
        else:
            assert admin.reset_offsets(group, topic, {queue: 3}) == {queue: 3}
            assert read(consumer, 1) == [3]


def test_members_are_moved_that_have_confirmed_nothing_of_a_queue(
    shell: Shell, site: Site, settings: ClientSettings
) -> None:
    topic = group = site.topic(3)
    send(shell, site.settings, topic, range(2), queue=Queue("broker-a", topic, 1))
    seldom = replace(FIRST, commit_ms=60_000)
    with (
        shell.Admin(settings) as admin,
        shell.Consumer(site.settings, group, {topic: ()}, consumer=seldom) as consumer,
    ):
        assert read(consumer, 2) == [0, 1]
        moved = admin.reset_by_time(group, topic, 0)
        assert moved == {Queue("broker-a", topic, number): 0 for number in range(3)}
        assert read(consumer, 2) == [0, 1]


def test_a_topic_is_created_and_deleted(shell: Shell, site: Site, settings: ClientSettings) -> None:
    topic = site.topic(1)
    with shell.Admin(settings) as admin:
        admin.create_topic(topic, queues=3)
        until(lambda: len(admin.topic_stats(topic)) == 3)
        assert topic in admin.topics()
        admin.delete_topic(topic)
        until(lambda: topic not in admin.topics())


def test_a_pull_may_commit_the_groups_offset(site: Site) -> None:
    topic = group = site.topic(1)
    with Admin(site.settings) as admin, Producer(site.settings) as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number)
        address = admin.brokers().brokers["broker-a"].master
        assert address is not None
        pull = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "0",
            "queueOffset": "3",
            "maxMsgNums": "1",
            "sysFlag": "5",  # commits, and has a subscription
            "commitOffset": "3",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": "*",
            "expressionType": "TAG",
        }
        with Raw(address) as client:
            assert client.ask(Command(11, 1, pull)).code == 0
        (progress,) = admin.progress(group, topic)
    assert (progress.committed, progress.diff) == (3, 1)
