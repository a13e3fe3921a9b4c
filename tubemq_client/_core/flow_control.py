"""Flow control: the rules that operators set, and the fetch rate of one partition under them.

The master sends two rule sets as JSON, one of the whole cluster ("default") and one of the group;
where both apply the group's wins. Clients obey by waiting between fetches, and a broker enforces
the data limit of the default set with code 452. Hours in a rule are Beijing time (UTC+8) whatever
the zone of a host. Pure state: both times, monotonic and of day, are arguments.
`docs/protocol/flow-control.md` has the format, the units and how the reference clients differ.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tubemq_client import errors
from tubemq_client._core import event_log

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MIB",
    "NO_CHECK",
    "Allowance",
    "DataLimit",
    "EmptyPause",
    "FetchPauses",
    "Fetched",
    "FlowControl",
    "FlowRules",
    "Pace",
    "reply_delay_ms",
]

MIB = 2**20

NO_CHECK = -2
"""Id of a rule set that is switched off, and of "no priority" (`META_VALUE_UNDEFINED`)."""

STAGE_MS = 60_000
"""Period, in milliseconds, in which a data limit counts bytes before the rules are read again."""

SLICE_MS = 5_000
"""Slice of a stage; no slice may use more than its twelfth of the limit."""

_SLICES = STAGE_MS // SLICE_MS
_ZONE_MINUTES = 8 * 60
_DAY_MINUTES = 24 * 60
_LONGEST_PAUSE_MS = 300_000
_SMALLEST_LAG = 20
_SMALLEST_FREQUENCY_MS = 200
_TIME = re.compile(r"([01]?\d|2[0-4]):([0-5]?\d)", re.ASCII)

_UNKNOWN_LAG_BYTES = 2**31 - 1
_UNKNOWN_LAG_WAIT_MS = 20

_WAITS_MS = {200: 0, 301: 200, 403: 2_000}
_FAILED_WAIT_MS = 300
"""Waits of a reader after answers with these codes, and after any other failure
(`docs/protocol/errors.md`)."""


def reply_delay_ms(code: int, limit_ms: int = 0, *, not_found_ms: int = 400) -> int:
    """Return the wait of a partition after a fetch was answered with `code`, apart from rules.

    `limit_ms` is the reply's `minLimitTime`, which is a time only with 452 (with 404 it is part of
    a position). `not_found_ms` is the caller's wait after "nothing to read".
    """
    if code == errors.NOT_FOUND:
        return not_found_ms
    if code == errors.SPEED_LIMIT:
        return max(0, limit_ms)
    return _WAITS_MS.get(code, _FAILED_WAIT_MS)


class DataLimit(NamedTuple):
    """Rule type 0: a byte limit per minute for readers that lag, within hours of the day.

    From `start` to `end` (hours times 100 plus minutes, both inclusive), a reader more than `lag`
    behind gets `limit_bytes` a minute and then waits `wait_ms` between fetches. `lag` is the
    rule's bare number: MiB to clients, bytes to a genuine broker (`FlowRules.limit`).
    """

    start: int
    end: int
    lag: int
    limit_bytes: int
    wait_ms: int


class EmptyPause(NamedTuple):
    """Rule type 1: from the `empty`-th fetch without data in a row, wait `wait_ms`."""

    empty: int
    wait_ms: int


class FetchPauses(NamedTuple):
    """Rule type 3: waits (ms) after every fetch with data.

    For topics read whole, for filtered topics, and for filtered topics with little left to read
    (the broker's `requireSlow`).
    """

    normal_ms: int
    filtered_ms: int
    slow_ms: int


@dataclass(frozen=True, slots=True)
class FlowRules:
    """Rule set; limits are sorted by `start`, pauses by `empty` from the largest down."""

    limits: tuple[DataLimit, ...] = ()
    empty_pauses: tuple[EmptyPause, ...] = ()
    fetch_pauses: FetchPauses | None = None

    @classmethod
    def parse(cls, text: str) -> FlowRules:
        """Parse the rules in `text`, a JSON array of ``{"type": …, "rule": […]}``.

        A later entry of a type replaces an earlier one; types other than 0, 1 and 3 are ignored, as
        servers and clients do. Raises `errors.ConfigError` with every problem.
        """
        problems: list[str] = []
        rules: dict[int, list[Any]] = {}
        for kind, where, items in _entries(text, problems):
            rules[kind] = [
                rule
                for number, item in enumerate(items)
                if (rule := _rule(kind, item, f"{where}.rule[{number}]", problems)) is not None
            ]
        if problems:
            raise errors.ConfigError(problems, subject="flow-control rules")
        limits = sorted(rules.get(0, ()), key=lambda limit: limit.start)
        pauses = sorted(rules.get(1, ()), key=lambda pause: -pause.empty)
        return cls(tuple(limits), tuple(pauses), rules[3][0] if rules.get(3) else None)

    def limit(self, lag_bytes: int, wall_ms: int, *, lag_unit: int = MIB) -> DataLimit | None:
        """Return the data limit in force at `wall_ms` (epoch ms) for a reader `lag_bytes` behind.

        `lag_unit` is the size of one unit of a rule's `dltInM`: a MiB by its name and to this
        client, a single byte to a genuine broker.
        """
        now = _clock_time(wall_ms)
        for limit in self.limits:
            if limit.start <= now <= limit.end and lag_bytes > limit.lag * lag_unit:
                return limit
        return None

    def empty_wait_ms(self, empty: int) -> int | None:
        """Return the wait after `empty` fetches in a row without data; None without a rule."""
        for pause in self.empty_pauses:
            if empty >= pause.empty:
                return pause.wait_ms
        return None


def _clock_time(wall_ms: int) -> int:
    """Return the time of day in Beijing as hours times 100 plus minutes, as rules state times."""
    hours, minutes = divmod((wall_ms // 60_000 + _ZONE_MINUTES) % _DAY_MINUTES, 60)
    return hours * 100 + minutes


# -- reading rules ---------------------------------------------------------------------------------


def _entries(text: str, problems: list[str]) -> Iterator[tuple[int, str, list[Any]]]:
    """Yield type, location and items of each entry of a known type."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.append(f"not JSON: {error}")
        return
    if not isinstance(document, list):
        problems.append("not a list of rules")
        return
    for number, entry in enumerate(document):
        where = f"[{number}]"
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not _is_int(kind):
            problems.append(f'{where}: needs an integer "type"')
        elif kind in _READERS:
            items = entry.get("rule")
            if not isinstance(items, list) or not items:
                problems.append(f'{where}: needs a list "rule" with at least one item')
            elif kind == 3 and len(items) != 1:
                problems.append(f"{where}: type 3 takes exactly one item, not {len(items)}")
            else:
                yield kind, where, items


def _rule(kind: int, item: Any, where: str, problems: list[str]) -> Any:
    """Return the rule in `item`, or None after adding to `problems`."""
    if not isinstance(item, dict):
        problems.append(f"{where}: not an object")
        return None
    fields = _Fields(item, where, problems)
    before = len(problems)
    rule = _READERS[kind](fields)
    return rule if len(problems) == before else None


@dataclass(frozen=True, slots=True)
class _Fields:
    """Fields of one item; problems with them are added to `problems`."""

    item: dict[str, Any]
    where: str
    problems: list[str]

    def number(
        self, name: str, least: int, most: int | None = None, *, default: int | None = None
    ) -> int:
        value = self.item.get(name, default)
        if not _is_int(value):
            self.wrong(f"{name} {value!r} is not an integer" if value is not None else f"no {name}")
            return least
        if value < least or (most is not None and value > most):
            allowed = f"at least {least}" if most is None else f"within {least} to {most}"
            self.wrong(f"{name} {value} is not {allowed}")
        return value

    def time(self, name: str) -> int:
        value = self.item.get(name)
        match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            self.wrong(f"{name} {value!r} is no time of day HH:MM" if value else f"no {name}")
            return -1
        return int(match[1]) * 100 + int(match[2])

    def wrong(self, what: str) -> None:
        self.problems.append(f"{self.where}: {what}")


def _data_limit(fields: _Fields) -> DataLimit:
    start, end = fields.time("start"), fields.time("end")
    if start >= end >= 0:
        fields.wrong(f"start {fields.item['start']} is not before end {fields.item['end']}")
    return DataLimit(
        start,
        end,
        fields.number("dltInM", _SMALLEST_LAG + 1),
        fields.number("limitInM", 0) * MIB,
        fields.number("freqInMs", _SMALLEST_FREQUENCY_MS),
    )


def _empty_pause(fields: _Fields) -> EmptyPause:
    return EmptyPause(fields.number("zeroCnt", 1), fields.number("freqInMs", 0))


def _fetch_pauses(fields: _Fields) -> FetchPauses:
    pair = ("filterFreqInMs", "minDataFilterFreqInMs")
    if sum(name in fields.item for name in pair) == 1:
        fields.wrong(f"{pair[0]} and {pair[1]} must be given together")
    normal, filtered, slow = (
        fields.number(name, 0, _LONGEST_PAUSE_MS, default=0) for name in ("normFreqInMs", *pair)
    )
    if slow < filtered and all(name in fields.item for name in pair):
        fields.wrong(f"{pair[1]} {slow} is less than {pair[0]} {filtered}")
    return FetchPauses(normal, filtered, slow)


_READERS = {0: _data_limit, 1: _empty_pause, 3: _fetch_pauses}


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


# -- what is in force ------------------------------------------------------------------------------


@dataclass(slots=True)
class FlowControl:
    """Rules of a consumer, with the ids by which the master knows which of them it has.

    `priority` is the group's `qryPriorityId`, `NO_CHECK` for none. Share one object between all
    partitions: they apply new rules when their minute ends.
    """

    default: FlowRules = field(default_factory=FlowRules)
    group: FlowRules = field(default_factory=FlowRules)
    default_id: int = NO_CHECK
    group_id: int = NO_CHECK
    priority: int = NO_CHECK

    def fill(self, request: Any) -> None:
        """Put the ids of the known rules into a request.

        A master answers with rules only to a request that carries ids, the "none" of -2 included
        (register and heartbeat of both kinds of consumer).
        """
        request.defFlowCheckId = self.default_id
        request.groupFlowCheckId = self.group_id
        if self.priority != NO_CHECK:
            request.qryPriorityId = self.priority

    def learn(self, reply: Any) -> None:
        """Apply the rules of a reply: a register or heartbeat reply (RPC 4, 5) or an `opsTaskInfo`.

        Replies of RPC 20 and 21 carry the `opsTaskInfo`, whose fields have the same names.

        An id below 0 switches the set off. A text that cannot be parsed leaves the rules in force
        with their id, so that the master sends it again: a client that is too old for new rules
        must not lose the current ones silently.
        """
        if reply.HasField("defFlowCheckId"):
            self.default, self.default_id = _updated(
                "the cluster",
                (self.default, self.default_id),
                (reply.defFlowCheckId, reply.defFlowControlInfo),
            )
        if reply.HasField("groupFlowCheckId"):
            self.group, self.group_id = _updated(
                "the group",
                (self.group, self.group_id),
                (reply.groupFlowCheckId, reply.groupFlowControlInfo),
            )
        if reply.HasField("qryPriorityId"):
            self.priority = reply.qryPriorityId

    def limit(self, lag_bytes: int, wall_ms: int) -> DataLimit | None:
        """Return the data limit in force: the group's, else the cluster's."""
        return self.group.limit(lag_bytes, wall_ms) or self.default.limit(lag_bytes, wall_ms)

    def empty_wait_ms(self, empty: int) -> int | None:
        """Return the wait after empty fetches; a group with its own rules ignores the cluster's."""
        rules = self.group if self.group.empty_pauses else self.default
        return rules.empty_wait_ms(empty)

    @property
    def fetch_pauses(self) -> FetchPauses | None:
        return self.group.fetch_pauses or self.default.fetch_pauses


def _updated(
    whose: str, current: tuple[FlowRules, int], new: tuple[int, str]
) -> tuple[FlowRules, int]:
    new_id, text = new
    if new_id == current[1]:
        return current
    try:
        rules = FlowRules() if new_id < 0 else FlowRules.parse(text)
    except errors.ConfigError as error:
        event_log.rules_not_understood(whose, new_id, error)
        return current
    if rules != current[0]:
        event_log.rules_changed(whose, new_id)
    return rules, new_id


# -- keeping to it ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Meter:
    """Bytes of the running minute and of its running slice, against a limit (None: unlimited)."""

    limit_bytes: int | None = None
    stage: int = 0
    slice: int = 0
    stage_end: int | None = None
    slice_end: int = 0

    def add(self, count: int) -> None:
        self.stage += count
        self.slice += count

    def stage_is_over(self, now: int) -> bool:
        """Return whether a limit must be chosen again (`restart`); begin a new slice if needed."""
        if self.stage_end is None or now > self.stage_end:
            return True
        if now > self.slice_end:
            self.slice, self.slice_end = 0, now + SLICE_MS
        return False

    def restart(self, now: int, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.stage = self.slice = 0
        self.stage_end, self.slice_end = now + STAGE_MS, now + SLICE_MS

    @property
    def spent(self) -> bool:
        limit = self.limit_bytes
        return limit is not None and (self.stage >= limit or self.slice >= limit // _SLICES)


class Fetched(NamedTuple):
    """Result of a fetch, as far as the fetch rate depends on it.

    `size` is the sum of body lengths in bytes, `lag_bytes` the reply's `currDataDlt` (below 0:
    unknown), `exempt` its `escFlowCtrl`, `slow` its `requireSlow`, `otherwise_ms` the wait where no
    rule applies (`reply_delay_ms`).
    """

    code: int
    size: int = 0
    lag_bytes: int = -1
    exempt: bool = False
    slow: bool = False
    otherwise_ms: int = 0


@dataclass(slots=True)
class Pace:
    """Fetch rate of one partition; call `delay_ms` once for every fetch that was answered.

    `ruled` tells whether a rule for empty fetches set the last delay.
    """

    control: FlowControl
    filtered: bool = False
    ruled: bool = False
    _lag: int = -1
    _empty: int = 0
    _wait_ms: int = 0
    _pauses: FetchPauses | None = None
    _meter: _Meter = field(default_factory=_Meter)

    def delay_ms(self, fetched: Fetched, now: int, wall_ms: int) -> int:
        """Return the wait before the next fetch; `now` is monotonic, `wall_ms` since the epoch."""
        if fetched.lag_bytes >= 0:
            self._lag = fetched.lag_bytes
        self._meter.add(fetched.size)
        if self._meter.stage_is_over(now):
            self._choose(now, wall_ms)
        if fetched.code == errors.NOT_FOUND:
            self._empty += 1
            wait = self.control.empty_wait_ms(self._empty)
            self.ruled = wait is not None
            return fetched.otherwise_ms if wait is None else wait
        if fetched.code != errors.SUCCESS:
            return fetched.otherwise_ms
        self._empty = 0
        if fetched.exempt:
            return 0
        if self._meter.spent:
            return max(self._wait_ms, fetched.otherwise_ms)
        return self._pause_ms(fetched)

    def _choose(self, now: int, wall_ms: int) -> None:
        """Begin a minute; the fetch that ends a minute counts for neither."""
        if self._lag < 0:  # nothing read yet: a bound against runaway fetches only
            self._wait_ms = _UNKNOWN_LAG_WAIT_MS
            self._meter.restart(now, _UNKNOWN_LAG_BYTES)
            return
        limit = self.control.limit(self._lag, wall_ms)
        self._pauses = self.control.fetch_pauses
        self._wait_ms = limit.wait_ms if limit else 0
        self._meter.restart(now, limit.limit_bytes if limit else None)

    def _pause_ms(self, fetched: Fetched) -> int:
        pauses = self._pauses
        if pauses is None:
            return fetched.otherwise_ms
        if self.filtered:
            return pauses.slow_ms if fetched.slow else pauses.filtered_ms
        return pauses.normal_ms


@dataclass(slots=True)
class Allowance:
    """Broker-side limit of one registration: whether it may fetch now, and how much.

    Sizes are those of stored records, header included. Nothing is limited before the first
    successful fetch.
    """

    _wait_ms: int = 0
    _meter: _Meter = field(default_factory=_Meter)

    def refused_ms(self, rules: FlowRules, lag_bytes: int, now: int, wall_ms: int) -> int:
        """Return 0 to serve the fetch, else the `minLimitTime` of a refusal with 452."""
        if self._meter.stage_is_over(now):
            # A genuine broker compares its lag in bytes with the rule's bare number.
            limit = rules.limit(lag_bytes, wall_ms, lag_unit=1)
            self._wait_ms = limit.wait_ms if limit else 0
            self._meter.restart(now, limit.limit_bytes if limit else None)
        return self._wait_ms if self._meter.spent else 0

    def budget(self, transfer_bytes: int) -> int:
        """Return the number of bytes after which one fetch stops."""
        limit = self._meter.limit_bytes
        return transfer_bytes if limit is None else min(transfer_bytes, limit // _SLICES)

    def sent(self, count: int) -> None:
        """Count bytes that were sent to the client."""
        self._meter.add(count)
