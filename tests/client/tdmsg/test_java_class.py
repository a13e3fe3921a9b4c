"""Both directions against the published Java class, one JVM run each."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.client.tdmsg import published
from tests.client.tdmsg.published import comparable
from tests.client.tdmsg.raw import CREATED
from tools.devkit.tubemq.artifacts import cached_artifacts
from tubemq_client import TDMsgBuilder, TDMsgPacketBuilder, parse_tdmsg
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


def required(reason: str) -> NoReturn:
    if os.environ.get("TUBEMQ_REQUIRE_GENUINE") == "1":
        pytest.fail(f"the Java class is required here: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def java() -> JavaRuntime:
    if not published.jar().is_file():
        reason = published.why_not()
        if reason is not None:
            pytest.skip(reason)
        required("no jar; run: python -m tests.client.tdmsg.published")
    if cached_artifacts() is None:
        required("no TubeMQ jars; run: python -m tools.devkit.tubemq.artifacts")
    try:
        return find_java()
    except JavaUnavailable as error:
        required(str(error))


def test_the_committed_vectors_are_what_the_class_builds(java: JavaRuntime):
    again = [published.parse_line(line) for line in published.run(java)]
    committed = published.committed()
    # Which bytes snappy chooses depends on the processor; what they hold does not.
    assert [reading._replace(message=b"") for reading in again] == [
        reading._replace(message=b"") for reading in committed
    ]
    assert [reading.message for reading in again if reading.name.endswith("-raw")] == [
        reading.message for reading in committed if reading.name.endswith("-raw")
    ]
    for reading in again:
        assert comparable(parse_tdmsg(reading.message)) == reading.groups, reading.name


def built() -> dict[str, bytes]:
    messages = {}
    for compress in (False, True):
        suffix = "snappy" if compress else "raw"
        for version in (0, 1, 2):
            messages[f"v{version}-{suffix}"] = items(version, compress=compress)
        messages[f"v3-{suffix}"] = nested(compress=compress)
        messages |= {f"{name}-{suffix}": raw for name, raw in packets(compress=compress).items()}
    return messages


def items(version: int, *, compress: bool) -> bytes:
    builder = TDMsgBuilder(version, compress=compress)
    for number in range(200):
        builder.add({"groupId": "g", "streamId": f"s{number % 3}"}, b"record %d " % number * 9)
    builder.add("s=\u65e5\U0001f600\0z", b"characters")
    builder.add("", b"no attributes")
    builder.add("empty=1", b"")
    builder.add("k" * 65_535, b"long")
    return builder.build(CREATED if version else None)


def nested(*, compress: bool) -> bytes:
    builder = TDMsgBuilder(3, compress=compress)
    for number in range(200):
        body = b"record %d " % number * 9
        own = f"k={number % 2}&n=\u65e5\U0001f600"
        builder.add(f"m={number % 3}", body, record_attributes=own)
    builder.add("", b"no common attributes", record_attributes="k=1")
    return builder.build(CREATED)


def packets(*, compress: bool) -> dict[str, bytes]:
    common = {"rt": "1", "x": "\u65e5\U0001f600"}
    plain = TDMsgPacketBuilder(data_time_s=CREATED // 1000, attributes=common, compress=compress)
    own = TDMsgPacketBuilder(
        data_time_s=0x7FFFFFFF,
        numeric_ids=(0x7FFF, 1),
        unique_id=0xFFFFFFFF,
        compress=compress,
    )
    for number in range(200):
        plain.add(b"record %d " % number * (number % 5))
        own.add(b"record %d " % number, {"k": str(number % 3), "o": "\u65e5"})
    return {"v4-common": plain.build(), "v4-own": own.build()}


def test_the_class_reads_what_is_built_here(java: JavaRuntime):
    messages = built()
    readings = [published.parse_line(line) for line in published.run(java, messages)]
    assert [reading.name for reading in readings] == list(messages)
    for reading in readings:
        parsed = parse_tdmsg(messages[reading.name])
        created = -1 if parsed.create_time_ms is None else parsed.create_time_ms
        assert (reading.version, reading.created) == (parsed.version, created), reading.name
        assert reading.count == (parsed.declared_count or 0), reading.name
        assert reading.groups == comparable(parsed), reading.name
        assert sum(map(len, reading.groups.values())) == len(parsed) >= 200, reading.name
