"""Names of Airflow with another module in 3.1 or 3.2, or that only 3.3 has.

This provider is written for Airflow 3.3. On 3.1 and 3.2 every module can be imported, and features
that need asset state, task state or retry policies raise an error on use
(`docs/airflow.md#airflow-versions`). Names are resolved on access, so importing this module loads
nothing of Airflow. It must not decide anything by a version number.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    from airflow.sdk.bases.decorator import determine_kwargs
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        DownstreamTasksSkipped,
        TaskDeferred,
    )
    from airflow.sdk.execution_time.context import (
        AssetStateStoreAccessor,
    )
    from airflow.sdk.lineage import get_hook_lineage_collector
    from airflow.sdk.observability.stats import Stats
    from airflow.state import AssetScope, TaskScope, get_state_backend
    from airflow.state.metastore import MetastoreBackend

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "AssetScope",
    "AssetStateStoreAccessor",
    "DownstreamTasksSkipped",
    "ExceptionRetryPolicy",
    "MetastoreBackend",
    "RetryAction",
    "RetryRule",
    "Stats",
    "TaskDeferred",
    "TaskScope",
    "conf",
    "determine_kwargs",
    "get_hook_lineage_collector",
    "get_state_backend",
    "has_asset_state",
    "needs_asset_state",
]

_EXCEPTIONS: Final = ("airflow.sdk.exceptions", "airflow.exceptions")
_MODULES: Final = {
    **dict.fromkeys(
        (
            *("AirflowException", "AirflowFailException", "AirflowNotFoundException"),
            *("AirflowSensorTimeout", "AirflowSkipException", "AirflowTaskTimeout"),
            *("DownstreamTasksSkipped", "TaskDeferred"),
        ),
        _EXCEPTIONS,
    ),
    "AssetScope": ("airflow.state",),
    "AssetStateStoreAccessor": ("airflow.sdk.execution_time.context",),
    "ExceptionRetryPolicy": ("airflow.sdk",),
    "MetastoreBackend": ("airflow.state.metastore",),
    "RetryAction": ("airflow.sdk",),
    "RetryRule": ("airflow.sdk",),
    "Stats": ("airflow.sdk.observability.stats", "airflow.stats"),
    "TaskScope": ("airflow.state",),
    "conf": ("airflow.sdk.configuration", "airflow.configuration"),
    "determine_kwargs": ("airflow.sdk.bases.decorator", "airflow.utils.operator_helpers"),
    "get_hook_lineage_collector": ("airflow.sdk.lineage", "airflow.lineage.hook"),
    "get_state_backend": ("airflow.state",),
}


class _Absent:
    """Placeholder of a name that this Airflow does not have; using it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> Any:
        raise ConfigError(
            f"{self._name} is of Airflow 3.3, and {_installed()} is installed", subject="Airflow"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _MODULES[name]:
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
        break
    else:
        # A base class must be a class; its subclass is unused as well.
        value = object if name == "MetastoreBackend" else _Absent(name)
    globals()[name] = value
    return value


@cache
def has_asset_state() -> bool:
    """Return True if this Airflow has state of assets and tasks: 3.3 and newer."""
    return find_spec("airflow.state") is not None


def needs_asset_state(what: str, instead: str = "") -> str:
    """Return the problem of a feature that is unavailable without asset state."""
    way_out = f"; {instead}" if instead else ""
    return f"{what} needs Airflow 3.3, which keeps state of assets, not {_installed()}{way_out}"


def _installed() -> str:
    from airflow import __version__

    return f"Airflow {__version__}"
