"""Resources: how Dagster's assets reach a cluster, and where their progress is stored.

Opens connections only inside its methods; Dagster creates a resource for every run.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final
from urllib.parse import quote

import dagster as dg
from pydantic import AfterValidator, ConfigDict, Field

import rocketmq_client.config
import rocketmq_client.model
import rocketmq_client.sync
from tubemq_client import ClientSettings, Record
from tubemq_client.config import ClientConfig, from_file
from tubemq_client.errors import ConfigError
from tubemq_client.model import Partition
from tubemq_client.sync import Metadata, Producer
from tubemq_provider.extensions import call, plugin_of
from tubemq_provider.files.durable import read_document
from tubemq_provider.ingest.validation import ClusterAlias
from tubemq_provider.offsets.file import CLAIMS_FILE, CURSOR_FILE, FileOffsetStore
from tubemq_provider.offsets.registry import StoreName
from tubemq_provider.sources.base import Source
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.sources.rocketmq.source import RocketMQSource
from tubemq_provider.sources.rocketmq.space import SPACE as ROCKETMQ
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.windows.protocols import OffsetStore
from tubemq_provider.windows.spaces import FIRST_SOURCE, Ends

_FOREIGN: Final = re.compile(r"[^\w.-]")


def _of_plugin(word: str) -> str:
    if plugin_of("offset_store", word).own:
        raise ValueError(f"{word!r} stores progress in Airflow; leave it out to use offsets_dir")
    return word


class SourceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Cluster of any kind, and the directory with the progress of its groups.

    `offsets_dir` must be on storage that all runs share and that outlives them. It is not the only
    record: published windows are proven by the markers in the sink. With `offset_store` it has
    nothing but samples of ends. A kind of source derives from it, with its fields, and `source`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    offsets_dir: str = Field(description="absolute path of the directory with the progress")
    cluster: ClusterAlias = Field(
        description="alias of the cluster in window ids; never change it for a group"
    )
    offset_store: Annotated[StoreName, AfterValidator(_of_plugin)] | None = Field(
        None, description="offset store of a plug-in that has the progress, by its word"
    )

    @abstractmethod
    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> Source:
        """Return the source that windows of `group` are planned from and read.

        Connects to nothing yet.
        """

    def directory(self, topic: str, group: str) -> Path:
        """Return the directory with the progress of a group on a topic."""
        names = (self.cluster, topic, group)
        current = Path(self.offsets_dir).joinpath(*map(_folder, names))
        earlier = Path(self.offsets_dir).joinpath(*(_FOREIGN.sub("_", name) for name in names))
        # Earlier releases replaced each unsafe character by an underscore.
        return earlier if earlier != current and _is_of(earlier, names) else current

    def progress(self, topic: str, group: str, *, task: str) -> OffsetStore:
        """Return the store with the progress of a group, for the task ``<asset>|<partition>``.

        A plug-in's store gets a context with nothing but ``ti``, whose ``task_id`` and ``run_id``
        are these two (the run's id without partitions), and an asset with nothing but its name.
        """
        if self.offset_store is None:
            return FileOffsetStore(self.directory(topic, group), task=task)
        name, _, run = task.partition("|")
        ti = SimpleNamespace(dag_id="dagster", task_id=name, run_id=run, map_index=-1)
        kind = self.source(topic, group).space.source
        asset = SimpleNamespace(name=f"{kind}:{self.cluster}/{topic}/{group}")
        store: OffsetStore = call("offset_store", self.offset_store, {"ti": ti}, asset)
        return store

    def send(self, topic: str, records: Iterable[Any]) -> Iterator[tuple[str, int]]:  # noqa: ARG002 - kinds that are written override it
        """Send records in order; yield partition key and offset of each. Raises `ConfigError` for a
        kind that is only read."""
        raise ConfigError(
            f"records cannot be sent to topics of {self.source(topic, 'none').space.source}",
            subject="resource",
        )

    def reachable_ends(self, topic: str, group: str, *, stable: bool) -> Mapping[Any, Ends]:
        """Return minimum and end offsets of the partitions whose brokers answer."""
        with self.source(topic, group) as source:
            return source.ends("stable" if stable else "latest")


class PluginResource(SourceResource):
    """Cluster of a source that another distribution brings, and the directory with the progress.

    `options` are those of the source's own model, as the extra of an Airflow connection has them.
    """

    kind: str = Field(description="the plug-in's word, as source= of its assets")
    options: dict[str, Any] = Field(
        default_factory=dict, description="options of the source; no secrets"
    )
    options_from_env: dict[str, str] = Field(
        default_factory=dict,
        description="further options, such as passwords, each with its environment variable",
    )

    def settings(self) -> Any:
        """Return the settings of the source, with the variables of the environment.

        Raises `errors.ConfigError` that lists every problem, without a secret.
        """
        missing = [
            f"{name}: the environment has no {variable}"
            for name, variable in self.options_from_env.items()
            if variable not in os.environ
        ]
        if missing:
            raise ConfigError(missing, subject=f"resource of {self.kind}")
        secrets = {name: os.environ[at] for name, at in self.options_from_env.items()}
        return config_of(self.kind).parse({**self.options, **secrets}).settings()

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> Source:
        """Return the source that windows of `group` are planned from and read.

        Connects to nothing yet.
        """
        names = {"identity": self.cluster, "topic": topic, "group": group}
        return open_source(self.kind, self.settings(), **names, filters=filters)


class _ClientResource(SourceResource):
    """Base with the options of a client; fields of a kind override the file."""

    options: dict[str, str] = Field(
        default_factory=dict, description="further client options, such as rpc_timeout_ms"
    )
    config_file: str | None = Field(
        None, description="file of client options (TOML), such as those of TLS"
    )

    def _client_options(self, auth: Mapping[str, str | None], **hosts: str) -> dict[str, Any]:
        options = {**(from_file(self.config_file) if self.config_file else {}), **self.options}
        options.update(hosts)
        if any(auth.values()):
            options["auth"] = {name: value or "" for name, value in auth.items()}
        return options


class TubeMQResource(_ClientResource):
    """TubeMQ cluster, and the directory with the progress of its groups."""

    masters: str = Field(description="host:port[,host:port…] of the masters")
    cluster: ClusterAlias = Field(
        "tubemq", description="alias of the cluster in window ids; never change it for a group"
    )

    username: str | None = Field(None, description="the user, if the cluster asks for one")
    password: str | None = Field(
        None, repr=False, description="signs requests; give it as an EnvVar"
    )

    def settings(self) -> ClientSettings:
        """Return the client's settings; fields here override the file.

        Raises `errors.ConfigError` that lists every problem.
        """
        auth = {"username": self.username, "password": self.password}
        options = self._client_options(auth, masters=self.masters)
        return ClientConfig.parse(options).settings()

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> TubeMQSource:
        """Return the source that windows of `group` are planned from and read.

        Connects to nothing yet.
        """
        return TubeMQSource(
            self.settings(), identity=self.cluster, topic=topic, group=group, filters=filters
        )

    def send(self, topic: str, records: Iterable[Any]) -> Iterator[tuple[str, int]]:
        """Send records of the client, or bodies, in order; yield partition key and offset of
        each."""
        made = (Record(each) if isinstance(each, bytes) else each for each in records)
        with Producer(self.settings()) as producer:
            for receipt in producer.send_many(topic, made):
                yield receipt.partition.key, receipt.offset

    def ends(self, topic: str, group: str, *, stable: bool) -> Mapping[Partition, Ends]:
        """Return minimum and end offsets: one look-up per store. See `Metadata.ends`."""
        with Metadata(self.settings()) as metadata:
            return metadata.ends(topic, group, stable=stable)

    def partitions(self, topic: str, group: str) -> list[Partition]:
        """Return the current partitions of `topic`."""
        with Metadata(self.settings()) as metadata:
            return sorted(metadata.topic(topic, group).partitions)


class RocketMQResource(_ClientResource):
    """RocketMQ cluster, and the directory with the progress of its groups."""

    name_servers: str = Field(description="host:port[;host:port…] of the name servers")
    cluster: ClusterAlias = Field(
        "rocketmq", description="alias of the cluster in window ids; never change it for a group"
    )
    access_key: str | None = Field(None, description="the key, if the brokers ask for one")
    secret_key: str | None = Field(
        None, repr=False, description="signs requests; give it as an EnvVar"
    )

    def settings(self) -> rocketmq_client.model.ClientSettings:
        """Return the client's settings; fields here override the file.

        Raises `errors.ConfigError` that lists every problem.
        """
        auth = {"access_key": self.access_key, "secret_key": self.secret_key}
        options = self._client_options(auth, name_servers=self.name_servers)
        return rocketmq_client.config.ClientConfig.parse(options).settings()

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> RocketMQSource:
        """Return the source that windows of `group` are planned from and read; filters are tags.

        Connects to nothing yet.
        """
        return RocketMQSource(
            self.settings(), identity=self.cluster, topic=topic, group=group, tags=filters
        )

    def send(self, topic: str, records: Iterable[Any]) -> Iterator[tuple[str, int]]:
        """Send messages of the client, or bodies, in order; yield queue key and offset of each."""
        message = rocketmq_client.model.OutgoingMessage
        with rocketmq_client.sync.Producer(self.settings()) as producer:
            for each in records:
                made = message(each) if isinstance(each, bytes) else each
                receipt = producer.send(topic, **made._asdict())
                yield receipt.queue.key, receipt.offset


RESOURCES: Final[Mapping[str, type[SourceResource]]] = {
    FIRST_SOURCE: TubeMQResource,
    ROCKETMQ.source: RocketMQResource,
}
"""Resources by the kind of the topic; other kinds have a `PluginResource`."""


def _folder(name: str) -> str:
    """Return a distinct folder name for each name; most are unchanged."""
    return quote(name, safe="") if _FOREIGN.search(name) else name


def _is_of(directory: Path, names: tuple[str, str, str]) -> bool:
    """Return True if the progress in `directory` is of this cluster, topic and group."""
    store = FileOffsetStore(directory, task="")
    documents = (
        read_document(directory / CURSOR_FILE),
        read_document(directory / CLAIMS_FILE),
        *store.recent_events(),
    )
    keys = ("cluster", "topic", "group")
    return any(each and tuple(each.get(key) for key in keys) == names for each in documents)
