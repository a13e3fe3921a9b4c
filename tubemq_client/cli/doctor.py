"""`tubemq doctor`: connectivity step by step, each failure with a hint that names what to change.

Later steps run after a failure as far as they can still find something, so it is useful on
half-broken clusters. It registers briefly, as look-ups of other commands do, and moves no position.
"""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Annotated

import typer
from rich.console import Console

from tubemq_client import Metadata, RangeReader, errors
from tubemq_client._io.tls import secure
from tubemq_client.admin import web_urls
from tubemq_client.cli.options import (
    Group,
    JsonRows,
    Masters,
    Output,
    OutputAs,
    RpcTimeout,
    admin_client,
    client_settings,
)
from tubemq_client.model import (
    INDEX_ENTRY_BYTES,
    Address,
    ClientSettings,
    OffsetRange,
    Partition,
    TlsSettings,
    address_text,
)
from tubemq_client.sync.metadata import TopicMetadata
from tubemq_client.terminal import visible

__all__ = ["EXIT_CODES", "doctor"]

EXIT_CODES = {
    "names": 3,
    "masters": 4,
    "tls": 5,
    "register": 6,
    "topic": 7,
    "brokers": 8,
    "admin": 9,
    "clock": 10,
    "read": 11,
}
"""Exit code by the first step that failed."""

_VERSION_PAGE = "/webapi.htm?method=admin_query_server_version"
_PROBE_TOPIC = "tubemq_doctor_probe"
_TOLERATED_S = 60
_TLS_HINTS = {
    "tls.handshake_timeout_ms": "name the TLS ports (8716) in --masters, or drop the TLS options",
    "tls.server_hostname": "set tls.server_hostname to a name that the certificate holds",
    "tls.ca_file": "name the authority that signed the servers' certificates in tls.ca_file",
    "tls.cert_file": "give a certificate that the servers trust in tls.cert_file and tls.key_file",
}
"""Hints by the option that a failure names."""

_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]", "skipped": "-"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One step's outcome. `state`: ok, warning, failed or skipped."""

    step: str
    target: str
    state: str
    detail: str
    hint: str = ""


class _Diagnosis:
    """Settings, and the results of earlier steps."""

    def __init__(self, settings: ClientSettings, group: str, topic: str | None) -> None:
        self.settings = settings
        self.group = group
        self.topic = topic
        self.reachable: list[Address] = []
        self.metadata: TopicMetadata | None = None

    @property
    def timeout_s(self) -> float:
        return self.settings.connect_timeout_ms / 1000


def doctor(
    masters: Masters,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin", "-a", envvar="TUBEMQ_ADMIN", metavar="URL[,…]", help="Also check HTTP."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Also check this topic and read from it.")
    ] = None,
    group: Group = "tubemq_cli",
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Check step by step that a cluster can be used from here, and suggest what to change.

    Exit code 0: no problems. Else the first step that failed: 3 names, 4 TCP to masters, 5 TLS, 6
    registering, 7 the topic, 8 TCP to brokers, 9 HTTP administration, 10 clocks, 11 reading. (1 and
    2 as for every command.)
    """
    # A fail-over is reported, not waited for.
    settings = replace(client_settings(masters, rpc_timeout_ms), fail_over_wait_ms=0)
    diagnosis = _Diagnosis(settings, group, topic)
    failed: list[str] = []
    with nullcontext() if output is Output.TABLE else closing(JsonRows(output)) as writer:
        for finding in _findings(diagnosis, admin, rpc_timeout_ms):
            if writer is None:
                _print(finding)
            else:
                writer.add({name: getattr(finding, name) for name in Finding.__slots__})
            if finding.state == "failed":
                failed.append(finding.step)
    if failed:
        raise typer.Exit(min(EXIT_CODES[step] for step in failed))


def _print(finding: Finding) -> None:
    console = Console(highlight=False)
    console.print(_MARKS[finding.state], f"{finding.step:9}", end=" ")
    line = visible(f"{finding.target}: {finding.detail}", lines=True)
    console.print(line, markup=False, soft_wrap=True)
    if finding.hint:
        hint = visible(finding.hint, lines=True)
        console.print(f"            → {hint}", markup=False, soft_wrap=True)


def _findings(diagnosis: _Diagnosis, admin: str | None, timeout_ms: int) -> Iterator[Finding]:
    yield from _names(diagnosis)
    yield from _masters(diagnosis)
    yield from _tls(diagnosis)
    yield from _register(diagnosis)
    yield from _brokers(diagnosis)
    yield from _admin(admin, timeout_ms)
    yield from _clock(admin, diagnosis.timeout_s)
    yield from _read(diagnosis)


def _names(diagnosis: _Diagnosis) -> Iterator[Finding]:
    hosts = dict.fromkeys(host for host, _ in diagnosis.settings.masters)
    results = {host: _resolve(host) for host in hosts}
    any_resolved = any(isinstance(result, list) for result in results.values())
    for host, result in results.items():
        if isinstance(result, list):
            yield Finding("names", host, "ok", ", ".join(result))
        else:
            hint = "correct --masters, or make the name known (DNS, /etc/hosts)"
            yield Finding("names", host, "warning" if any_resolved else "failed", result, hint)


def _resolve(host: str) -> list[str] | str:
    """Return the addresses of a host, or the error text."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return str(error)
    return sorted({str(item[4][0]) for item in addresses})


def _connect(address: Address, timeout_s: float) -> str | None:
    """Return None if a TCP connection opens, else the error text."""
    try:
        socket.create_connection(address, timeout_s).close()
    except (OSError, UnicodeError) as error:
        return str(error)
    return None


def _handshake(address: Address, tls: TlsSettings, timeout_s: float) -> str | None:
    """Return None if TLS begins, else the error text. Raises `errors.ConfigError` for unusable
    files."""
    try:
        secure(socket.create_connection(address, timeout_s), address, tls).close()
    except (OSError, errors.TlsError) as error:
        return str(error)
    return None


def _masters(diagnosis: _Diagnosis) -> Iterator[Finding]:
    problems = {a: _connect(a, diagnosis.timeout_s) for a in diagnosis.settings.masters}
    diagnosis.reachable = [address for address, problem in problems.items() if problem is None]
    for (host, port), problem in problems.items():
        target = f"{host}:{port}"
        if problem is None:
            yield Finding("masters", target, "ok", "TCP connection opens")
        else:
            state = "warning" if diagnosis.reachable else "failed"
            hint = "is it the RPC port (8715, TLS 8716)? does a firewall drop it? see --masters"
            yield Finding("masters", target, state, problem, hint)


def _tls(diagnosis: _Diagnosis) -> Iterator[Finding]:
    """Do a handshake with every master that accepts TCP connections."""
    if diagnosis.settings.tls is None:
        yield Finding("tls", "masters", "skipped", "not asked for")
        return
    tls, addresses = diagnosis.settings.tls, diagnosis.reachable
    if not addresses:
        yield Finding("tls", "masters", "skipped", "no master can be reached")
    problems = {a: _handshake(a, tls, diagnosis.timeout_s) for a in addresses}
    diagnosis.reachable = [address for address, problem in problems.items() if problem is None]
    yield from _handshakes(problems)


def _handshakes(problems: Mapping[Address, str | None]) -> Iterator[Finding]:
    any_accepted = None in problems.values()
    for address, problem in problems.items():
        target = address_text(address)
        if problem is None:
            yield Finding("tls", target, "ok", "handshake done, certificate accepted")
        else:
            yield Finding(
                "tls", target, "warning" if any_accepted else "failed", problem, _hint(problem)
            )


def _hint(problem: str) -> str:
    hints = (hint for option, hint in _TLS_HINTS.items() if option in problem)
    return next(hints, "compare the TLS options with the port and the server's certificate")


def _register(diagnosis: _Diagnosis) -> Iterator[Finding]:
    target = diagnosis.topic or _PROBE_TOPIC
    if not diagnosis.reachable:
        yield Finding("register", target, "skipped", "no master can be reached")
        return
    try:
        with Metadata(diagnosis.settings) as client:
            diagnosis.metadata = client.topic(target, diagnosis.group)
    except errors.TlsError as error:  # after the handshake: the server refuses our certificate
        yield Finding("tls", "masters", "failed", str(error), _hint(str(error)))
        return
    except (errors.UnknownTopic, errors.Forbidden) as error:
        yield Finding("register", "masters", "ok", "a master answers")
        if diagnosis.topic is not None:
            hint = "tubemq topics list shows what there is; a new topic takes up to a minute"
            yield Finding("topic", target, "failed", str(error), hint)
        return
    except errors.TubeMQError as error:
        yield Finding("register", "masters", "failed", str(error), _register_hint(error, target))
        return
    yield Finding("register", "masters", "ok", "registered and left")
    yield from _topic(target, diagnosis.metadata)


def _register_hint(error: errors.TubeMQError, topic: str) -> str:
    if isinstance(error, errors.NotAuthorized):
        return (
            f"let every group read the topic: tubemq topics modify {topic} --no-authorisation; "
            "masters take no permission for the names with a dot under which ranges are read"
        )
    if isinstance(error, errors.AuthenticationFailed):
        return "check user and password"
    if isinstance(error, errors.StandbyMaster):
        return "name every master in --masters: those given are stand-bys"
    if isinstance(error, errors.NetworkError) and "tls.cert_file" in str(error):
        return _hint("tls.cert_file")
    if isinstance(error, errors.NetworkError):
        return "the port opens but no TubeMQ master answers: RPC port? TLS port? --rpc-timeout-ms?"
    if isinstance(error, errors.ProtocolViolation):
        return "name the masters' RPC port in --masters: 8715 by default, 8716 with TLS"
    return "the master's answer names what it does not accept"


def _topic(topic: str, metadata: TopicMetadata) -> Iterator[Finding]:
    ready = sum(metadata.partitions.values())
    detail = f"{ready} of {len(metadata.partitions)} partitions can be subscribed"
    if ready:
        yield Finding("topic", topic, "ok", detail)
    else:
        hint = "is a broker online (tubemq brokers list)? a new topic takes up to a minute"
        yield Finding("topic", topic, "failed", detail, hint)


def _brokers(diagnosis: _Diagnosis) -> Iterator[Finding]:
    if diagnosis.metadata is None:
        yield Finding("brokers", "-", "skipped", "needs --topic with a known topic")
        return
    for _, broker in sorted(diagnosis.metadata.brokers.items()):
        problem = _connect(broker.address, diagnosis.timeout_s)
        if problem is None:
            yield Finding("brokers", str(broker), "ok", "TCP connection opens")
            if (tls := diagnosis.settings.tls) is not None:
                refused = _handshake(broker.address, tls, diagnosis.timeout_s)
                yield from _handshakes({broker.address: refused})
        else:
            hint = "masters announce this address: is it right and reachable from here (hostName)?"
            yield Finding("brokers", str(broker), "failed", problem, hint)


def _admin(admin: str | None, timeout_ms: int) -> Iterator[Finding]:
    if admin is None:
        yield Finding("admin", "-", "skipped", "--admin is not given")
        return
    target = errors.without_credentials(admin)
    try:
        with admin_client(admin, timeout_ms) as client:
            yield Finding("admin", target, "ok", f"TubeMQ {client.server_version()}")
            for status in client.broker_status():
                name = f"broker {status.broker_id}"
                running = status.run_status == "running"
                detail = f"{status.manage_status}, {status.run_status}, {status.sub_status}"
                hint = "" if running else "is its process up? its log says why it cannot register"
                state = "ok" if running else "warning"
                yield Finding("admin", name, state, detail, hint)
    except errors.TubeMQError as error:
        hint = "give the HTTP address (8080) of every master in --admin"
        yield Finding("admin", target, "failed", str(error), hint)


def _clock(admin: str | None, timeout_s: float) -> Iterator[Finding]:
    seconds = _clock_difference_s(admin, timeout_s) if admin else None
    if seconds is None:
        yield Finding("clock", "-", "skipped", "no master reports its time (--admin)")
    elif abs(seconds) > _TOLERATED_S:
        hint = "set the clocks (NTP): signatures are refused and flow-control hours are wrong"
        yield Finding("clock", "master", "failed", f"differs by {seconds:+.0f} s", hint)
    else:
        yield Finding("clock", "master", "ok", f"differs by {seconds:+.0f} s")


def _read(diagnosis: _Diagnosis) -> Iterator[Finding]:
    if diagnosis.topic is None or diagnosis.metadata is None:
        yield Finding("read", "-", "skipped", "needs --topic with a known topic")
        return
    by_broker = {p.broker_id: p for p in sorted(diagnosis.metadata.partitions, reverse=True)}
    for _, partition in sorted(by_broker.items()):
        yield _attempt(diagnosis, partition)


def _attempt(diagnosis: _Diagnosis, partition: Partition) -> Finding:
    try:
        return Finding("read", str(partition), "ok", _read_newest(diagnosis, partition))
    except errors.TubeMQError as error:
        hint = "is the broker up (tubemq brokers list)? may the group read (--group)?"
        return Finding("read", str(partition), "failed", str(error), hint)


def _read_newest(diagnosis: _Diagnosis, partition: Partition) -> str:
    """Read the newest stable index entry of a partition; return a summary."""
    with Metadata(diagnosis.settings) as client:
        bounds = client.ends(partition.topic, diagnosis.group, [partition])[partition]
    if bounds.max_offset == bounds.min_offset:
        return "registered; the log is empty"
    start = bounds.max_offset - INDEX_ENTRY_BYTES
    with RangeReader(diagnosis.settings, group=diagnosis.group) as reader:
        for _ in reader.read(OffsetRange(bounds.partition, start, bounds.max_offset)):
            pass
        return f"read up to {bounds.max_offset}, {reader.stats.records} records"


def _clock_difference_s(admin: str, timeout_s: float) -> float | None:
    """Return the seconds a master is ahead of this machine (negative: behind), None if unknown.

    From the date of one page of its web server, in whole seconds. Follows no redirect."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in web_urls(admin):
        before = time.time()
        try:
            with opener.open(f"{url}{_VERSION_PAGE}", timeout=timeout_s) as reply:
                date = reply.headers.get("date")
        except urllib.error.HTTPError as error:
            date = error.headers.get("date")
        except (OSError, ValueError, http.client.HTTPException):  # no web server, perhaps
            continue
        try:
            # A date is truncated to its second: the middle is the best guess.
            server_time = parsedate_to_datetime(date).timestamp() + 0.5
        except (TypeError, ValueError, OverflowError):  # missing or malformed
            continue
        return server_time - (before + time.time()) / 2
    return None
