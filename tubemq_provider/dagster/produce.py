"""Asset that sends records to a topic: the counterpart of the produce operators.

Sends at least once: a run that failed has sent what its log says, and another run sends again.
"""

from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg

from tubemq_provider.dagster.resource import SourceResource


def build_produce_asset(
    name: str,
    *,
    topic: str,
    records: Callable[[dg.AssetExecutionContext], Iterable[Any]],
    resource_key: str = "tubemq",
    **options: Any,
) -> dg.AssetsDefinition:
    """Return an asset that sends `records` to `topic`, in order.

    :param records: called in the run; returns bodies, or records of the client: `Record` of
        `tubemq_client`, `OutgoingMessage` of `rocketmq_client`.

    Metadata: the number of ``records``, and ``ends`` with the offset after the last one of each
    partition, as `build_ready_sensor` waits for. `options` are passed to `dagster.asset`.
    """
    other_keys = options.pop("required_resource_keys", None) or ()

    def produced(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        resource: SourceResource = getattr(context.resources, resource_key)
        count, last = 0, dict[str, int]()
        try:
            for partition, offset in resource.send(topic, records(context)):
                count, last[partition] = count + 1, offset
        finally:
            context.log.info("sent %s records to %s, the last ones at %s", count, topic, last)
        step = resource.source(topic, "none").space.step
        ends = {partition: offset + step for partition, offset in last.items()}
        return dg.MaterializeResult(
            metadata={"records": count, "topic": topic, "ends": dg.MetadataValue.json(ends)}
        )

    return dg.asset(  # type: ignore[no-any-return]
        name=name, required_resource_keys={resource_key, *other_keys}, **options
    )(produced)
