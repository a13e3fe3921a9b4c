"""Configurations of the other clients under our names: the C++ SDK's INI file, Go's address.

Both explicit options *and* defaults are converted: where a default differs from ours, theirs is
used and logged (`consume_position` as a warning: it decides which records a new group gets).
Options without a counterpart here are ignored if they only tune, and refused if they request
something that would not happen.
"""

from __future__ import annotations

import configparser
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from tubemq_client import errors

__all__ = ["GO_IDLE", "GO_KEYS", "INI_IDLE", "INI_KEYS", "is_go_address", "of_go", "of_ini"]

_log = logging.getLogger("tubemq_client.config")

_OFF: Final = frozenset({"false", "no", "off", "0", "f", ""})
_POSITIONS: Final = {"-1": "earliest", "0": "latest", "1": "always_latest"}

INI_KEYS: Final = {
    "master_addrinfo": "masters",
    "usr_name": "auth.username",
    "usr_passwd": "auth.password",
    "rpc_read_timeout_ms": "rpc_timeout_ms",
    "heartbeat_period_ms": "heartbeat_period_ms",
    "max_heartbeat_retry_times": "max_heartbeat_failures",
    "heartbeat_period_afterfail_ms": "heartbeat_period_after_failures_ms",
    "dns_xfs_period_ms": "dns_refresh_ms",
    "group_name": "group",
    "topics": "topics",
    "session_key": "bound.session_key",
    "source_count": "bound.source_count",
    "is_select_big": "bound.select_big",
    "consume_position": "consume_position",
    "max_subinfo_report_intvl": "report_every_beats",
    "max_part_check_period_ms": "ready_wait_ms",
    "msg_notfound_wait_period_ms": "not_found_wait_ms",
    "is_rollback_if_confirm_timeout": "rollback_on_rebalance",
    "reb_confirm_wait_period_ms": "rebalance_confirm_wait_ms",
    "max_confirm_wait_period_ms": "confirm_timeout_ms",
    "shutdown_reb_wait_period_ms": "close_wait_ms",
}
"""Keys of the C++ SDK's section ``[TubeMQ]``, with their names here."""

INI_IDLE: Final = (
    *("auth_enable", "log_level", "log_num", "log_path", "log_size", "network_threads"),
    *("part_check_slice_ms", "signal_threads", "timer_threads", "tls_enabled"),
)
"""Switches, logs, threads and polling of that SDK, which have no counterpart here."""

GO_KEYS: Final = {
    "readTimeout": "rpc_timeout_ms",
    "CACertFile": "tls.ca_file",
    "tlsCertFile": "tls.cert_file",
    "tlsKeyFile": "tls.key_file",
    "tlsServerName": "tls.server_hostname",
    "authUserName": "auth.username",
    "group": "group",
    "topic": "topics",
    "topics": "topics",
    "filters": "topics",
    "consumePosition": "consume_position",
    "sessionKey": "bound.session_key",
    "sourceCount": "bound.source_count",
    "selectBig": "bound.select_big",
    "rollbackIfConfirmTimeout": "rollback_on_rebalance",
    "maxSubInfoReportInterval": "report_every_beats",
    "maxPartCheckPeriod": "ready_wait_ms",
    "msgNotFoundWait": "not_found_wait_ms",
    "rebConfirmWait": "rebalance_confirm_wait_ms",
    "maxConfirmWait": "confirm_timeout_ms",
    "shutdownRebWait": "close_wait_ms",
    "heartbeatInterval": "heartbeat_period_ms",
    "heartbeatMaxRetryTimes": "max_heartbeat_failures",
    "heartbeatAfterFail": "heartbeat_period_after_failures_ms",
}
"""Keys behind the question mark of Go's address, with their names here."""

GO_IDLE: Final = (
    *("authEnable", "boundConsume", "logLevel", "logPath", "maxPubInfoInterval"),
    *("partCheckSlice", "tlsEnable"),
)

_GO_TIMES: Final = frozenset(name for name, ours in GO_KEYS.items() if ours.endswith("_ms"))
_DURATION: Final = re.compile(r"-?(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_LONGEST_DURATION: Final = 100
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

Put = Callable[[dict[str, Any], str, str], None]


class _ForeignFormat(NamedTuple):
    """Format of another client's options: its keys, ignored keys, and the key of the position."""

    keys: Mapping[str, str]
    idle: tuple[str, ...]
    position: str
    defaults: Mapping[str, str]
    """Their defaults that differ from ours, by their names."""


_CPP = _ForeignFormat(
    INI_KEYS,
    INI_IDLE,
    "consume_position",
    {"rpc_read_timeout_ms": "15000", "max_part_check_period_ms": "60000", "consume_position": "0"},
)
_GO = _ForeignFormat(
    GO_KEYS,
    GO_IDLE,
    "consumePosition",
    {"readTimeout": "15000", "maxPartCheckPeriod": "60000", "consumePosition": "0"},
)
_OF_GROUPS = frozenset({"consume_position", "ready_wait_ms"})


def of_ini(source: str, text: str, put: Put) -> dict[str, Any]:
    """Return options of an INI file. Raises `errors.ConfigError`."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text, source=source)
        keys = dict(parser["TubeMQ"])
    except configparser.Error as error:
        message = f"{source}: {_unreadable(error)}"
        raise errors.ConfigError(message, subject="option file") from None
    except KeyError:
        raise errors.ConfigError(f"{source}: no section [TubeMQ]", subject="option file") from None
    problems = _problems(keys, _CPP)
    if _is_on(keys.get("tls_enabled", "")):
        problems.append("tls_enabled: Java key stores are not read; use a TOML file with [tls]")
    if problems:
        raise errors.ConfigError(
            [f"{source}: {problem}" for problem in problems], subject="options"
        )
    if not _is_on(keys.get("auth_enable", "true")):
        keys = {name: value for name, value in keys.items() if not name.startswith("usr_")}
    return _converted(source, keys, _CPP, put)


def _unreadable(error: configparser.Error) -> str:
    """Return the error without the line itself, which may be the one with the password."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f"line {error.lineno} stands before any section"
    if isinstance(error, configparser.ParsingError):
        return f"not 'key = value': line {', '.join(str(line) for line, _ in error.errors)}"
    return str(error).replace("\n", " ")


def is_go_address(text: str) -> bool:
    """Return True for a text that is no URL, but masters with options behind a question mark."""
    return "://" not in text and "?" in text


def of_go(text: str, put: Put) -> dict[str, Any]:
    """Return options of an address of Go's client,
    ``m1:8715,m2:8715?topic=orders&filters=a&topic=clicks&group=g&msgNotFoundWait=400``.

    A filter belongs to the topic before it; times are ms, or have a unit. Raises
    `errors.ConfigError`, also for a password: addresses end up in logs.
    """
    masters, _, query = text.partition("?")
    pairs = [token.partition("=") for token in query.split("&")]
    nameless = [name for name, equals, _ in pairs if not equals]
    # An '&' in a password starts a second pair.
    hidden = "@" in text or "authPassword" in text
    problems = [f"{'…' if hidden else repr(name)}: no value" for name in nameless]
    pairs_given = [(name, unquote_plus(value)) for name, equals, value in pairs if equals]
    if "@" in masters or any(name == "authPassword" for name, _ in pairs_given):
        problems.append("credentials do not belong into an address; pass them as options")
        pairs_given = [(name, value) for name, value in pairs_given if name != "authPassword"]
    keys = {name: value for name, value in pairs_given if name not in ("topic", "filters")}
    names = Counter(name for name, _ in pairs_given if name not in ("topic", "topics", "filters"))
    problems += [f"{name}: is there more than once" for name, count in names.items() if count > 1]
    topics = _topics_of(pairs_given, problems)
    for name in _GO_TIMES & keys.keys():
        keys[name] = _milliseconds(name, keys[name], problems)
    problems += _problems(keys, _GO)
    if problems:
        raise errors.ConfigError(problems, subject="address")
    options = _converted("address", _without_switched_off(keys), _GO, put)
    options["masters"] = masters
    if topics:
        options["topics"] = topics
    if _is_on(keys.get("tlsEnable", "")):
        options.setdefault("tls", True)
    return options


def _topics_of(pairs: Iterable[tuple[str, str]], problems: list[str]) -> dict[str, list[str]]:
    """Return topics with their filters: ``topic=A&filters=x``, or ``topics=A,B`` as the first
    releases of Go's client had it, whose filters are those of its last topic."""
    topics: dict[str, list[str]] = {}
    newest = None
    for name, value in pairs:
        if name in ("topic", "topics"):
            for topic in value.split(",") if name == "topics" else (value,):
                newest = topic.strip()
                topics.setdefault(newest, [])
                if not newest:
                    problems.append(f"{name}: {value!r} has an empty name")
        elif name == "filters":
            if newest is None:
                problems.append(f"filters: {value!r} stands before any topic")
            else:
                topics[newest].append(value)
    return topics


def _without_switched_off(keys: Mapping[str, str]) -> dict[str, str]:
    """Drop options of groups that are switched off; Go has a switch for each group."""
    switches = (
        ("tlsEnable", ("CACertFile", "tlsCertFile", "tlsKeyFile", "tlsServerName")),
        ("authEnable", ("authUserName",)),
        ("boundConsume", ("sessionKey", "sourceCount", "selectBig")),
    )
    off = {n for switch, names in switches if not _is_on(keys.get(switch, "")) for n in names}
    return {name: value for name, value in keys.items() if name not in off}


def _problems(keys: Mapping[str, str], theirs: _ForeignFormat) -> list[str]:
    known_keys = (*theirs.keys, *theirs.idle)
    problems = [
        f"{key}: means nothing here; known: {', '.join(sorted(known_keys))}"
        for key in keys
        if key not in known_keys
    ]
    position = keys.get(theirs.position, "0")
    if position not in _POSITIONS:
        problems.append(f"{theirs.position}: {position!r} is not -1, 0 or 1")
    return problems


def _converted(
    source: str, keys: Mapping[str, str], theirs: _ForeignFormat, put: Put
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    group = next(name for name, ours in theirs.keys.items() if ours == "group")
    absent = {
        name: value
        for name, value in theirs.defaults.items()
        if name not in keys and (theirs.keys[name] not in _OF_GROUPS or group in keys)
    }
    for name, value in {**keys, **absent}.items():
        ours = theirs.keys.get(name)
        if ours is not None:
            put(options, ours, _value(ours, value))
    for name in absent:
        ours = theirs.keys[name]
        level = logging.WARNING if ours == "consume_position" else logging.INFO
        _log.log(
            level,
            "%s has no %s: %s is %s, the default of the client that it was written for, which "
            "differs from the one here",
            *(source, name, ours, options[ours]),
        )
    return options


def _value(ours: str, text: str) -> str:
    if ours == "consume_position":
        return _POSITIONS[text]
    if ours == "ready_wait_ms" and text.lstrip().startswith("-"):
        return "-1"  # any negative time means forever there
    return text


def _milliseconds(name: str, text: str, problems: list[str]) -> str:
    """Convert one of Go's durations: a number is ms, else each part has its unit."""
    if re.fullmatch(r"-?\d+", text):
        return text
    if not _DURATION.fullmatch(text) or len(text) > _LONGEST_DURATION:
        problems.append(f"{name}: {text!r} is neither ms nor a duration such as 1m30s")
        return "0"
    total = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    return f"{'-' if text.startswith('-') else ''}{round(total)}"


def _is_on(text: str) -> bool:
    return text.strip().lower() not in _OFF
