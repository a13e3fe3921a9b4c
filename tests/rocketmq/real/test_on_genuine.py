"""Features of genuine servers only: access control, active retention, and limits changed at run
time.

Each test starts its own cluster, with the options it needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_client import (
    Admin,
    ClientSettings,
    Credentials,
    Metadata,
    OutgoingMessage,
    Producer,
    QueueRange,
    RangeReader,
    TlsSettings,
    errors,
)
from rocketmq_client._wire import codes
from rocketmq_snode import SnodeSettings
from tests.kit.certificates import Certificates, make_certificates
from tests.rocketmq.sites import require
from tests.rocketmq.windows.topics import Topic
from tests.snode.conftest import Node
from tools.devkit.patience import PATIENCE
from tools.devkit.rocketmq.artifacts import LINES, Line
from tools.devkit.rocketmq.genuine import GenuineRocketMQ

pytestmark = pytest.mark.real

ADMIN = Credentials("RocketMQadmin", "12345678")
READER = Credentials("reader01", "87654321")

PLAIN_ACL = """\
accounts:
- {accessKey: RocketMQadmin, secretKey: "12345678", whiteRemoteAddress: "", admin: true}
- {accessKey: reader01, secretKey: "87654321", whiteRemoteAddress: "", admin: false,
   defaultTopicPerm: SUB, defaultGroupPerm: SUB}
"""
AUTHENTICATION = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider"
    ".DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider"
    ".LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"RocketMQadmin","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"RocketMQadmin","secretKey":"12345678"}',
}


@contextmanager
def cluster(line: Line, directory: Path, **options: object) -> Iterator[GenuineRocketMQ]:
    with GenuineRocketMQ(line, directory, **require(line), **options) as mq:  # type: ignore[arg-type]
        yield mq


@pytest.mark.timeout(180)
@pytest.mark.parametrize("line", LINES)
def test_only_signed_requests_are_accepted(line: Line, tmp_path: Path) -> None:
    options = {"aclEnable": "true"} if line == "4.9.7" else AUTHENTICATION
    broker = tmp_path / "broker-a" / "conf"
    broker.mkdir(parents=True)
    (broker / "plain_acl.yml").write_text(PLAIN_ACL)
    certificates = make_certificates(tmp_path)
    cluster_options = {
        "broker_options": options,
        "credentials": ADMIN,
        "java_options": _with_tls(certificates),
    }
    with cluster(line, tmp_path, **cluster_options) as mq:
        right = replace(mq.settings, auth=ADMIN)
        with Admin(right) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_topic("other", queues=1)
        with Producer(right) as producer:
            receipt = producer.send("orders", b"x")
        _through_a_node(mq)
        _over_tls(right, certificates)
        _windows(right, READER if line == "4.9.7" else ADMIN, tmp_path / "sink")
        for wrong in (None, Credentials("RocketMQadmin", "wrong-secret")):
            settings = replace(mq.settings, auth=wrong)
            with Producer(settings) as producer, pytest.raises(errors.NoPermission):
                producer.send("orders", b"x")
            with RangeReader(settings, group="g") as reader, pytest.raises(errors.NoPermission):
                list(reader.read(QueueRange(receipt.queue, 0, 1)))
        if line == "4.9.7":  # an account that may only read
            right = replace(mq.settings, auth=READER)
            with Producer(right) as producer, pytest.raises(errors.NoPermission):
                producer.send("orders", b"x")
        time.sleep(0.5)
        with Metadata(right) as metadata, RangeReader(right, group="g") as reader:
            ends = metadata.ends("orders", stable=False)[receipt.queue]
            (batch,) = reader.read(QueueRange(receipt.queue, 0, ends.latest_offset))

    assert batch.columns.bodies == [b"x"]


def _with_tls(certificates: Certificates) -> tuple[str, ...]:
    """Return options of servers that accept TLS on their ordinary ports, with a certificate of this
    test."""
    return (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={certificates.server.cert}",
        f"-Dtls.server.keyPath={certificates.server.key}",
    )


def _over_tls(right: ClientSettings, certificates: Certificates) -> None:
    """Connect to the same port with verified TLS, from clients and from a node."""
    secured = replace(right, tls=TlsSettings(ca_file=certificates.ca))
    with Producer(secured) as producer, RangeReader(secured, group="g") as reader:
        receipt = producer.send("other", b"secret")
        place = QueueRange(receipt.queue, receipt.offset, receipt.offset + 1)
        assert [m.body for batch in reader.read(place) for m in batch.messages()] == [b"secret"]
    stranger = replace(right, tls=TlsSettings(ca_file=certificates.other_ca))
    with Producer(stranger) as producer, pytest.raises(errors.TlsError):
        producer.send("other", b"x")
    options = SnodeSettings(right.name_servers, listen=("127.0.0.1", 0), tls=secured.tls)
    with Node(options) as node, Producer(replace(node.settings, auth=right.auth)) as producer:
        assert producer.send("other", b"x").offset >= 0


def _windows(writer: ClientSettings, reader: Credentials, root: Path) -> None:
    """Run windows with the right to read only; without it nothing is stored, and no record is
    lost."""
    root.mkdir()
    topic = Topic(writer, "other", root)
    with pytest.raises(errors.NoPermission):
        topic.run(auth=replace(reader, secret_key="another-secret"))
    assert not list(root.rglob("*.parquet"))
    topic.produce(20)
    topic.settings = replace(writer, auth=reader)
    topic.catch_up()
    assert set(topic.receipts.items()) <= set(topic.rows().items())


def _through_a_node(mq: GenuineRocketMQ) -> None:
    """Send signed requests through a node; a node that verifies them signs them again for brokers
    that lack the user."""
    user = Credentials("app00001", "a-secret-of-its-own")
    plain = SnodeSettings((mq.name_server,), listen=("127.0.0.1", 0))
    signing = replace(plain, users=((user.access_key, user.secret_key),), credentials=ADMIN)
    for options, right in ((plain, ADMIN), (signing, user)):
        with Node(options) as node:
            for auth in (right, replace(right, secret_key="another-secret")):
                with Producer(replace(node.settings, auth=auth)) as producer:
                    if auth is right:
                        assert all(producer.send("other", b"x") for _ in range(3))
                    else:
                        with pytest.raises(errors.NoPermission):
                            producer.send("other", b"x")


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", LINES)
def test_records_removed_during_a_read_are_a_gap(line: Line, tmp_path: Path) -> None:
    options = {
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "fileReservedTime": "0",
        "deleteCommitLogFilesInterval": "700",
    }
    with cluster(line, tmp_path, broker_options=options) as mq:
        queue, count = _fill(mq)
        whole = QueueRange(queue, 0, count)
        shrinking: list[int] = []
        # A broker looks for expired files a minute after its start, and removes one each 700 ms.
        deadline = time.monotonic() + 180 * PATIENCE
        while len(shrinking) < 2:
            assert time.monotonic() < deadline, f"retention did not work: {shrinking}"
            _delete_expired(mq)
            left = _read_what_is_left(mq, whole)
            if left < count and left not in shrinking:
                shrinking.append(left)
        with RangeReader(mq.settings, group="g") as reader:
            with pytest.raises(errors.DataLoss) as caught:
                list(reader.read(whole))
            assert caught.value.start == 0


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", LINES)
def test_an_emptied_queue_begins_at_its_end(line: Line, tmp_path: Path) -> None:
    """4.9.7 keeps reporting its old minimum; the first of these queues has the log's very first
    record."""
    options = {
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "fileReservedTime": "0",
        "deleteCommitLogFilesInterval": "100",
    }
    with cluster(line, tmp_path, broker_options=options) as mq:
        quiet = []
        for name, count in (("first", 1), ("second", 5)):
            with Admin(mq.settings) as admin, Producer(mq.settings) as producer:
                admin.create_topic(name, queues=1)
                quiet.append([producer.send(name, b"x") for _ in range(count)][-1])
        _fill(mq)
        deadline = time.monotonic() + 180 * PATIENCE
        with Metadata(mq.settings) as metadata:
            for last in quiet:
                queue, end = last.queue, last.offset + 1
                while (ends := metadata.ends(queue.topic)[queue]).min_offset == 0:
                    assert time.monotonic() < deadline, "retention did not work"
                    _delete_expired(mq)
                    time.sleep(1)
                assert ends.min_offset == ends.max_offset == end
                assert metadata.ends(queue.topic, stable=False)[queue].min_offset == end
                now = round(time.time() * 1000) - 3_500
                assert metadata.boundary_at(queue.topic, now, grace_ms=2_000)[queue].offset == end
        with RangeReader(mq.settings, group="g", gap_policy="skip") as reader:
            assert list(reader.read(QueueRange(queue, 0, end))) == []
        assert [(gap.start, gap.end) for gap in reader.stats.gaps] == [(0, end)]


def _read_what_is_left(mq: GenuineRocketMQ, whole: QueueRange) -> int:
    with RangeReader(mq.settings, group="g", gap_policy="skip") as reader:
        offsets = [offset for batch in reader.read(whole) for offset in batch.columns.offsets]
    missing = [n for gap in reader.stats.gaps for n in range(gap.start, gap.end)]

    assert sorted(offsets + missing) == list(range(whole.end)), "delivered or named, once each"
    assert offsets == sorted(offsets)
    return len(offsets)


def _fill(mq: GenuineRocketMQ):
    with Admin(mq.settings) as admin, Producer(mq.settings) as producer:
        admin.create_topic("orders", queues=1)
        count, queue = 0, None
        while count < 20_000:
            messages = [OutgoingMessage(bytes(1_000)) for _ in range(500)]
            receipts = producer.send_batch("orders", messages)
            count, queue = receipts[-1].offset + 1, receipts[0].queue
        with Metadata(mq.settings) as metadata:
            while metadata.ends("orders", stable=False)[queue].latest_offset < count:
                time.sleep(0.1)
    return queue, count


def _delete_expired(mq: GenuineRocketMQ) -> None:
    with Admin(mq.settings) as admin:
        address = mq.addresses["broker-a"]
        admin._driver.run(admin._cluster.call(address, codes.DELETE_EXPIRED_COMMITLOG, {}))


@pytest.mark.timeout(180)
def test_limits_of_a_pull_can_be_raised_while_the_broker_runs(tmp_path: Path) -> None:
    with cluster("4.9.7", tmp_path) as mq, Admin(mq.settings) as admin:
        queue, count = _fill(mq)
        figures = []
        for records, size in ((32, 262_144), (2_000, 1_048_576)):
            admin.change_broker_config(
                {
                    "maxTransferCountOnMessageInMemory": str(records),
                    "maxTransferBytesOnMessageInMemory": str(size),
                },
                "broker-a",
            )
            with RangeReader(mq.settings, group="g") as reader:
                total = sum(len(batch) for batch in reader.read(QueueRange(queue, 0, count)))
                figures.append((total, reader.stats.fetches))

    assert [total for total, _ in figures] == [count, count]
    assert figures[1][1] * 5 < figures[0][1], "fewer, larger answers"
