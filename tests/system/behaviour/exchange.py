"""One of each operation of a client, for tests of permissions: send, look up, read a range,
consume."""

from __future__ import annotations

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import bodies, eventually
from tubemq_client import ClientSettings, OffsetRange, Partition


def exchange(shell: Shell, settings: ClientSettings, partition: Partition, group: str) -> None:
    """Send and read a record; raise any error, and assert that both are equal."""
    body = group.encode()
    with shell.Producer(settings) as producer:
        receipt = producer.send(partition.topic, body, partition=partition)
    with shell.Metadata(settings) as metadata:
        ends = metadata.ends(partition.topic, group, [partition], stable=False)[partition]
    assert ends.max_offset >= receipt.offset + 28
    range_ = OffsetRange(partition, receipt.offset, receipt.offset + 28)
    with shell.RangeReader(settings, group=group) as reader:
        read = [record for batch in reader.read(range_) for record in bodies(batch)]
    assert read == [body]
    with shell.AssignedConsumer(settings, group, {partition.topic: ()}) as consumer:
        consumer.assign(partition, receipt.offset)
        batch = eventually(lambda: consumer.pull(partition))
        assert bodies(batch) == [body]
        assert consumer.confirm(batch) == receipt.offset + 28
