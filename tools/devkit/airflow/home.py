"""Directories and environment of one disposable Airflow.

All configuration goes through `AIRFLOW__SECTION__KEY` variables, so that no `airflow.cfg` has to be
written or kept in sync with Airflow's defaults. Starts nothing; `stack` does.
"""

from __future__ import annotations

import base64
import json
import os
import random
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["AirflowHome", "free_port"]

_SHORT_PERIODS: dict[str, dict[str, str]] = {
    "scheduler": {
        # Each pass of an idle scheduler costs 50 ms of a processor.
        "scheduler_idle_sleep_time": "0.6",
        "task_instance_heartbeat_timeout": "30",
        "task_instance_heartbeat_timeout_detection_interval": "5",
        "enable_health_check": "False",
    },
    "dag_processor": {
        "refresh_interval": "3",
        # Changed files are parsed at once anyway; the others cost a third of a core.
        "min_file_process_interval": "600",
        "parsing_processes": "1",
        "print_stats_interval": "0",
    },
    "triggerer": {"job_heartbeat_sec": "2", "triggerer_health_check_threshold": "12"},
    "usage_data_collection": {"enabled": "False"},
}
"""Shorter periods for Airflow's periodic work, so that a demo does not wait for it."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago.

    It lies below the ephemeral range: the API server binds it seconds later, and again whenever it
    was killed.
    """
    for candidate in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    raise OSError("no free port between 20000 and 32000")


@dataclass(frozen=True)
class AirflowHome:
    """Files of one Airflow, and the environment of its processes.

    `connections` maps connection ids to a URI or a mapping (stored as JSON); `environment` is added
    last and may override any setting. Each home has its own random secrets.
    """

    root: Path
    database_url: str
    dags_folder: Path
    connections: Mapping[str, str | Mapping[str, object]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    parallelism: int = 2
    port: int = field(default_factory=free_port)
    jwt_secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    fernet_key: str = field(
        default_factory=lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        repr=False,
    )

    @property
    def url(self) -> str:
        """Base URL of the API server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_folder(self) -> Path:
        """Folder of task logs, one directory per Dag, run and task."""
        return self.root / "logs"

    def env(self) -> dict[str, str]:
        """Return the environment of every Airflow process: the caller's, without other Airflow
        settings."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "AIRFLOW__"))}
        env["AIRFLOW_HOME"] = str(self.root)
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
        env["PYTHONUNBUFFERED"] = "1"
        for section, options in self._settings().items():
            for option, value in options.items():
                env[f"AIRFLOW__{section}__{option}".upper()] = value
        for name, connection in self.connections.items():
            text = connection if isinstance(connection, str) else json.dumps(connection)
            env[f"AIRFLOW_CONN_{name.upper()}"] = text
        env.update({f"AIRFLOW_VAR_{k.upper()}": v for k, v in self.variables.items()})
        return {**env, **self.environment}

    def _settings(self) -> dict[str, dict[str, str]]:
        return {
            "core": {
                "dags_folder": str(self.dags_folder),
                "load_examples": "False",
                "executor": "LocalExecutor",
                "parallelism": str(self.parallelism),
                "simple_auth_manager_all_admins": "True",
                "execution_api_server_url": f"{self.url}/execution/",
                "dags_are_paused_at_creation": "True",
                "fernet_key": self.fernet_key,
            },
            "database": {
                "sql_alchemy_conn": self.database_url,
                # Only multi-team mode and the endpoint that streams a run's end use the async
                # engine; empty switches it off, which avoids the asyncpg dependency.
                "sql_alchemy_conn_async": "",
                "load_default_connections": "False",
            },
            "api": {
                "host": "127.0.0.1",
                "port": str(self.port),
                "base_url": self.url,
                "workers": "1",
            },
            "api_auth": {"jwt_secret": self.jwt_secret},
            "logging": {"base_log_folder": str(self.log_folder)},
            **_SHORT_PERIODS,
        }
