"""Dagster integration: the same windows, sinks and engines as assets, without Airflow.

Needs the extra `dagster`. Windows and their guarantee are defined in `tubemq_provider.windows`;
these modules turn Dagster's partitions into windows and results into metadata.
"""

from tubemq_client.errors import require_extra

try:
    import dagster  # noqa: F401 - a missing extra is reported here, once for all modules
except ImportError as exc:
    raise require_extra("dagster", exc) from exc

from tubemq_provider.dagster.ingest import (
    build_consume_asset,
    build_rocketmq_asset,
    build_tubemq_asset,
)
from tubemq_provider.dagster.maintenance import build_tubemq_upkeep_job
from tubemq_provider.dagster.observe import (
    build_coverage_check,
    build_lag_check,
    build_lag_sensor,
    build_ready_sensor,
    build_tubemq_ends_asset,
)
from tubemq_provider.dagster.planning import WindowOps, build_window_ops
from tubemq_provider.dagster.produce import build_produce_asset
from tubemq_provider.dagster.resource import (
    PluginResource,
    RocketMQResource,
    SourceResource,
    TubeMQResource,
)

__all__ = [
    "PluginResource",
    "RocketMQResource",
    "SourceResource",
    "TubeMQResource",
    "WindowOps",
    "build_consume_asset",
    "build_coverage_check",
    "build_lag_check",
    "build_lag_sensor",
    "build_produce_asset",
    "build_ready_sensor",
    "build_rocketmq_asset",
    "build_tubemq_asset",
    "build_tubemq_ends_asset",
    "build_tubemq_upkeep_job",
    "build_window_ops",
]
