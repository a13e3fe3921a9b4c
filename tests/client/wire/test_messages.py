"""The message classes coexist with any other copy of TubeMQ's messages in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from tools.devkit.patience import PATIENCE
from tubemq_client import _pb
from tubemq_client._pb.descriptors import build_classes
from tubemq_client._pb.schema import MESSAGES

pytestmark = pytest.mark.timeout(60)

CLASH = """
import importlib, sys
from google.protobuf import descriptor_pb2, descriptor_pool

def foreign(pool):
    file = descriptor_pb2.FileDescriptorProto(name="tubemq_client/_pb/messages.proto")
    file.message_type.add(name="RegisterRequestC2B").field.add(
        name="other", number=1, label=1, type=9)
    pool.Add(file)
    pool.FindMessageTypeByName("RegisterRequestC2B")

{order}
assert [f.name for f in _pb.RegisterRequestC2B.DESCRIPTOR.fields][:2] == ["opType", "clientId"]
"""
IMPORT = "from tubemq_client import _pb"
AGAIN = "del sys.modules['tubemq_client._pb']; _pb = importlib.import_module('tubemq_client._pb')"
FOREIGN = "foreign(descriptor_pool.Default())"


@pytest.mark.parametrize("order", [[FOREIGN, IMPORT, AGAIN], [IMPORT, FOREIGN, AGAIN]])
def test_a_foreign_copy_in_the_default_pool_does_not_clash(order):
    script = CLASH.format(order="\n".join(order))
    subprocess.run([sys.executable, "-c", script], check=True, timeout=50 * PATIENCE)


def test_nothing_enters_the_default_pool():
    for name in MESSAGES:
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindMessageTypeByName(name)


def test_every_message_is_an_attribute_under_its_wire_name():
    assert set(_pb.__all__) == set(MESSAGES)
    for name in MESSAGES:
        assert getattr(_pb, name).DESCRIPTOR.full_name == name


def test_field_numbers_ascend_without_gaps():
    for name in MESSAGES:
        numbers = [field.number for field in getattr(_pb, name).DESCRIPTOR.fields]
        assert numbers == list(range(1, len(numbers) + 1)), name


def test_the_three_places_that_differ_from_their_neighbours():
    def numbers(message):
        return {field.name: field.number for field in message.DESCRIPTOR.fields}

    commit, get = numbers(_pb.CommitOffsetRequestC2B), numbers(_pb.GetMessageRequestC2B)
    assert (commit["topicName"], commit["partitionId"], commit["groupName"]) == (2, 3, 4)
    assert (get["partitionId"], get["groupName"], get["topicName"]) == (2, 3, 4)
    meta = numbers(_pb.GetPartMetaResponseM2C)
    assert (meta["topicMetaInfoList"], meta["brokerConfigList"]) == (5, 6)
    assert _pb.GetMessageResponseB2C(success=False, errCode=404).IsInitialized()


def test_a_wrong_table_is_noticed_when_it_is_built():
    with pytest.raises(KeyError):
        build_classes({"M": "1 ! int31 field"}, "wrong.proto")
