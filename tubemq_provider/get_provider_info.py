"""Manifest of the provider, which Airflow reads at the start of every process.

It lists hooks, links, notifications and modules by their paths. It imports nothing, as every
command of Airflow pays for it.
"""

from __future__ import annotations

__all__ = ["get_provider_info"]

_INTEGRATION = "Apache InLong TubeMQ"
_ROCKETMQ = "Apache RocketMQ"


def get_provider_info() -> dict[str, object]:
    """Return the manifest, in the form of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "airflow-provider-tubemq",
        "name": "Apache InLong TubeMQ",
        "description": "Exact, exactly-once windows from Apache InLong TubeMQ, run by Airflow.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://inlong.apache.org/docs/modules/tubemq/overview/",
                "tags": ["service"],
            },
            _ROCKETMQ_INTEGRATION,
        ],
        "hooks": _modules("hooks.tubemq", "hooks.admin", "hooks.aio")
        + _modules("hooks.rocketmq", integration=_ROCKETMQ),
        "operators": _modules(
            "operators.ingest",
            "operators.sample",
            "operators.produce",
            "operators.consume",
            "operators.planning",
            "operators.offsets",
        )
        + _modules("operators.rocketmq", integration=_ROCKETMQ),
        "cli": ["tubemq_provider.cli.definition.get_tubemq_commands"],
        "sensors": _modules("sensors.lag", "sensors.ready", "sensors.coverage")
        + _modules("sensors.rocketmq", integration=_ROCKETMQ),
        "triggers": _modules(*(f"triggers.{name}" for name in _TRIGGERS)),
        "queues": ["tubemq_provider.queues.tubemq.TubeMQMessageQueueProvider"],
        "asset-uris": [_ASSET_URIS],
        "task-decorators": [_DECORATOR],
        "notifications": ["tubemq_provider.notifications.TubeMQNotifier"],
        "extra-links": [f"tubemq_provider.links.TubeMQ{name}Link" for name in _LINKS],
        "connection-types": [_CONNECTION_TYPE, _ROCKETMQ_CONNECTION],
        "config": {"tubemq": {"description": "The web page.", "options": _PAGE_OPTIONS}},
    }


_TRIGGERS = ("lag", "offsets", "messages", "applications", "rocketmq")

_LINKS = ("Offsets", "Page", "Sink", "Topic", "Spark")

_ASSET_URIS: dict[str, object] = {
    "schemes": ["tubemq", "rocketmq"],
    "handler": "tubemq_provider.assets.sanitize_uri",
    "factory": "tubemq_provider.assets.create_asset",
    "to_openlineage_converter": "tubemq_provider.assets.to_openlineage",
}

_DECORATOR: dict[str, object] = {
    "name": "tubemq_window",
    "class-name": "tubemq_provider.decorators.tubemq_window_task",
}


_ROCKETMQ_INTEGRATION: dict[str, object] = {
    "integration-name": _ROCKETMQ,
    "external-doc-url": "https://rocketmq.apache.org/docs/",
    "tags": ["service"],
}


_PAGE_OPTIONS: dict[str, object] = {
    "page": {
        "description": "Whether there is a page on groups under Browse, and a tab on each Dag.",
        "version_added": "0.1.0",
        "type": "boolean",
        "example": None,
        "default": "True",
    },
    "page_lag": {
        "description": "Whether the page asks brokers for the ends of logs, and so shows lag.",
        "version_added": "0.1.0",
        "type": "boolean",
        "example": None,
        "default": "True",
    },
    "page_connections": {
        "description": (
            "Ids of the connections that the page may ask, separated by commas. Empty: those of "
            "the metadata database and of the API server's environment; a secrets backend cannot "
            "be listed, so connections that only it has must be named here."
        ),
        "version_added": "0.1.0",
        "type": "string",
        "example": "tubemq_default,tubemq_west",
        "default": "",
    },
}


def _modules(*names: str, integration: str = _INTEGRATION) -> list[dict[str, object]]:
    modules = [f"tubemq_provider.{name}" for name in names]
    return [{"integration-name": integration, "python-modules": modules}]


_CONN_FIELDS: dict[str, object] = {
    "cluster": {
        "label": "Cluster alias",
        "description": (
            "Names the cluster in offsets assets and window ids; tasks name it as 'cluster'. Keep "
            "it when masters move. A task under another alias does not continue where the old one "
            "was: it is refused. Default: the connection id."
        ),
        "schema": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"},
    },
    "default_group": {
        "label": "Default group",
        "description": "Consumer group for look-ups that are not told one.",
        "schema": {"type": ["string", "null"]},
    },
    "admin_url": {
        "label": "Master's HTTP address",
        "description": (
            "For positions that brokers keep, such as http://master1:8080. "
            "Default: port 8080 of each master."
        ),
        "schema": {"type": ["string", "null"], "format": "url"},
    },
    "admin_token": {
        "label": "Administration token",
        "description": "The masters' confModAuthToken; only changes over HTTP need it.",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "admin_ca_file": {
        "label": "Authorities to trust for HTTPS (PEM)",
        "description": "For an https:// address of a master. Default: those of the system.",
        "schema": {"type": ["string", "null"]},
    },
    "admin_cert_file": {
        "label": "Client certificate for HTTPS (PEM)",
        "schema": {"type": ["string", "null"]},
    },
    "admin_key_file": {
        "label": "Its key (PEM)",
        "description": "Default: it is in the file of the certificate.",
        "schema": {"type": ["string", "null"]},
    },
    "admin_key_password": {
        "label": "Password of that key",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "rpc_timeout_ms": {
        "label": "Request timeout (ms)",
        "schema": {
            "type": ["integer", "null"],
            "default": 10000,
            "minimum": 1000,
            "maximum": 600000,
        },
    },
    "connect_timeout_ms": {
        "label": "Connect timeout (ms)",
        "schema": {"type": ["integer", "null"], "default": 3000, "minimum": 100, "maximum": 60000},
    },
    "tls": {
        "label": "TLS",
        "description": "Encrypt connections. The files below must exist wherever tasks run.",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
    "tls_ca_file": {
        "label": "Authorities to trust (PEM)",
        "description": "Default: those of the system.",
        "schema": {"type": ["string", "null"]},
    },
    "tls_cert_file": {
        "label": "Client certificate (PEM)",
        "description": "For clusters that ask for one.",
        "schema": {"type": ["string", "null"]},
    },
    "tls_key_file": {
        "label": "Its key (PEM)",
        "description": "Default: it is in the file of the certificate.",
        "schema": {"type": ["string", "null"]},
    },
    "tls_key_password": {
        "label": "Password of the key",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "tls_check_hostname": {
        "label": "Verify host names",
        "schema": {"type": ["boolean", "null"], "default": True},
    },
}

_CONNECTION_TYPE: dict[str, object] = {
    "connection-type": "tubemq",
    "hook-class-name": "tubemq_provider.hooks.tubemq.TubeMQHook",
    "hook-name": _INTEGRATION,
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema"],
        "relabeling": {"host": "Masters", "login": "User", "password": "Password"},
        "placeholders": {"host": "master1:8715,master2:8715"},
    },
    "conn-fields": _CONN_FIELDS,
}

_ROCKETMQ_CONNECTION: dict[str, object] = {
    "connection-type": "rocketmq",
    "hook-class-name": "tubemq_provider.hooks.rocketmq.RocketMQHook",
    "hook-name": _ROCKETMQ,
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema"],
        "relabeling": {"host": "Name servers", "login": "Access key", "password": "Secret key"},
        "placeholders": {"host": "ns1:9876;ns2:9876"},
    },
    "conn-fields": {
        name: field for name, field in _CONN_FIELDS.items() if not name.startswith("admin_")
    }
    | {
        "security_token": {
            "label": "Security token",
            "description": "Of a temporary key.",
            "schema": {"type": ["string", "null"], "format": "password"},
        }
    },
}
