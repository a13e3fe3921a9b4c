"""Options of `format("tubemq")` that read exactly the ranges of a plan.

Options appear in query plans, so settings with users or TLS need an additional file. This module
must not open anything, or depend on more of the format than its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_client.model import address_text
from tubemq_provider.spark.credentials_file import needs_access

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings
    from tubemq_provider.windows.plan import WindowPlan

__all__ = ["spark_options"]


def spark_options(
    settings: ClientSettings, plan: WindowPlan, *, config_file: str | None = None
) -> dict[str, str]:
    """Return options that read exactly `plan`: ``spark.read.format("tubemq").options(**these)``.

    Users and TLS are not passed in options: settings that have any need `config_file`, a file of
    options on the driver's host (`access.access_file` makes one). Raises `ConfigError` without it.
    """
    if config_file is None and needs_access(settings):
        raise ConfigError(
            "users and TLS are not written into options, which show in query plans: name a file "
            "that has them with config_file (option 'configFile')",
            subject="Spark options",
        )
    options = {
        "masters": ",".join(map(address_text, settings.masters)),
        "window": plan.canonical(),
        "rpcTimeoutMs": str(settings.rpc_timeout_ms),
    }
    return options if config_file is None else {**options, "configFile": config_file}
