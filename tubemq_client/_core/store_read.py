"""Narrow ranges of all partitions of a store, read together: one proof in place of one for each.

The partitions of a store share its log, so each entry of `[start, end)` is a record of one of them.
Once their reads have as many records as there are entries, all have been read, wherever the
positions are: no partition needs to be followed to `end`, which near the end of a file takes a
fetch for each halving of what is left, nor to be asked where it stopped. It must be certain that no
record lies beyond `end`: the log still ended there after the last reply, as a commit under a lease
from before the first fetch tells (a broker that was restarted meanwhile does not know the lease).

This is an attempt. A store that does not fit (its log continues after `end`, a reader group is
busy, a record is missing, anything else is odd) is given back, and its ranges are read one by one
(`range_read`), which explains what is wrong.

Source: `docs/protocol/exact-ranges.md#narrow-ranges-read-together`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tubemq_client import errors
from tubemq_client._core.batch import RawBatch
from tubemq_client._core.effects import AwaitAll, PostAll
from tubemq_client._core.retention import store_of
from tubemq_client._wire import methods
from tubemq_client._wire.fetching import size_if_delivering, whole
from tubemq_client.model import INDEX_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client._core.registration import Registration
    from tubemq_client._core.retention import SharedRetentionChecks
    from tubemq_client.model import Address, OffsetRange

    Register = Callable[[OffsetRange], Conversation[Registration]]
    """Returns the registration under which a range is read."""

    Batches = dict[OffsetRange, list[RawBatch]]

__all__ = ["StoreReads"]

T = TypeVar("T")

_NARROW: Final = 1_024
"""Entries of a store up to which its partitions are read together."""

_BYTES: Final = 4 << 20
"""Bytes of replies after which a store is read range by range, and not kept in memory."""

_ROUNDS: Final = 64

_AT_ONCE: Final = 128
"""Requests of one broker that are under way at a time: few enough for its queue."""


@dataclass(slots=True)
class _Part:
    """Range of one partition: its lease, and what was read of it."""

    range: OffsetRange
    lease: Registration
    batches: list[RawBatch] = field(default_factory=list)
    found: int = 0
    fetches: int = 0
    is_at_end: bool = False

    def take(self, reply: Any) -> bool:
        """Take a reply; return False if it is not what the range needs."""
        self.fetches += 1
        if reply.errCode == errors.NOT_FOUND:
            self.is_at_end = "reached maxOffset" in reply.errMsg
            return True
        if not reply.success or reply.errCode != errors.SUCCESS:
            return False
        if self.batches:
            last = self.batches[-1]
            known = last.start + INDEX_ENTRY_BYTES * len(last.messages)
        else:
            known = self.range.start
        # Nothing tells of the first fetch where it would have begun, but the register did.
        if reply.currOffset < known or (self.fetches == 1 and reply.currOffset != known):
            return False
        if reply.messages:
            self.batches.append(RawBatch(reply.currOffset, reply.messages))
            self.found += len(reply.messages)
        return True


@dataclass(slots=True)
class _Store:
    """Parts of one store, which have the same range; `fits` until something speaks against it."""

    parts: list[_Part]
    fits: bool = True
    nbytes: int = 0

    @property
    def missing(self) -> int:
        """Entries of the range whose record was not read yet."""
        return self.parts[0].range.entries - sum(part.found for part in self.parts)

    def next_parts(self) -> list[_Part]:
        """Return the parts to fetch from next: those with the fewest records while few are missing.

        Empty once the store is complete or does not fit.
        """
        missing = self.missing
        self.fits = self.fits and missing >= 0 and self.nbytes <= _BYTES
        if not self.fits or not missing:
            return []
        going = [part for part in self.parts if not part.is_at_end]
        self.fits = bool(going)
        if going and missing < len(going):
            fewest = min(part.found for part in going)
            going = [part for part in going if part.found == fewest]
        return going


@dataclass
class StoreReads:
    """Attempts to read stores as a whole. `release` after `read`, whatever became of it."""

    register: Register
    proofs: SharedRetentionChecks
    _held: list[_Part] = field(default_factory=list)

    def read(self, ranges: Iterable[OffsetRange]) -> Conversation[Batches]:
        """Return the batches of those `ranges` whose stores could be read as a whole.

        The others are to be read one by one.
        """
        by_store: dict[tuple[str, int, int], list[OffsetRange]] = {}
        for range_ in ranges:
            by_store.setdefault(store_of(range_.partition), []).append(range_)
        stores = []
        for of_store in by_store.values():
            if _is_candidate(of_store) and self.proofs.expects_only(of_store):
                leases = yield from _each(self.register(range_) for range_ in of_store)
                stores.append(_Store([_Part(*one) for one in zip(of_store, leases, strict=True)]))
        # One partition of each tells if the log ends where the range does.
        yield from self._take_all([(store, store.parts[:1]) for store in stores])
        yield from self._take_all([(store, store.parts[1:]) for store in stores if store.fits])
        for _ in range(_ROUNDS):
            asked = [(store, store.next_parts()) for store in stores]
            if not any(parts for _, parts in asked):
                break
            yield from self._fetch(asked)
        complete = [store for store in stores if store.fits and not store.missing]
        yield from self._check_ends(complete)
        yield from self.release()
        read = [store for store in complete if store.fits]
        for store in read:
            self.proofs.proved(store.parts[0].range.partition)
        return {part.range: part.batches for store in read for part in store.parts}

    def release(self) -> Conversation[None]:
        """Give all partitions back; where that fails, leases expire at the broker."""
        held, self._held = self._held, []
        if held:
            requests = yield from _each(part.lease.unregister_request() for part in held)
            yield from _ask(held, requests, methods.REGISTER_PARTITION)

    def _take_all(self, wanted: Sequence[tuple[_Store, list[_Part]]]) -> Conversation[None]:
        parts = [(store, part) for store, parts in wanted for part in parts]
        self._held += [part for _, part in parts]
        requests = yield from _each(p.lease.register_request(p.range.start) for _, p in parts)
        replies = yield from _ask([p for _, p in parts], requests, methods.REGISTER_PARTITION)
        for (store, part), reply in zip(parts, replies, strict=True):
            if not _succeeded(reply):
                self._held.remove(part)
                store.fits = False
            else:
                begins = reply.currOffset == part.range.start
                store.fits = store.fits and begins and reply.maxOffset == part.range.end

    def _fetch(self, wanted: Sequence[tuple[_Store, list[_Part]]]) -> Conversation[None]:
        parts = [(store, part) for store, parts in wanted for part in parts]
        requests = [part.lease.fetch_request(consumed=part.fetches > 0) for _, part in parts]
        replies = yield from _ask([p for _, p in parts], requests, methods.GET_MESSAGES_UNPARSED)
        for (store, part), answer in zip(parts, replies, strict=True):
            if isinstance(answer, errors.TubeMQError):
                store.fits = False
                continue
            store.nbytes += size_if_delivering(answer)
            try:
                store.fits = part.take(whole(answer)) and store.fits
            except errors.TubeMQError:
                store.fits = False

    def _check_ends(self, stores: Sequence[_Store]) -> Conversation[None]:
        """Ask under a lease of each store, after its last reply, if the log still ends there."""
        parts = [store.parts[0] for store in stores]
        requests = [part.lease.commit_request() for part in parts]
        replies = yield from _ask(parts, requests, methods.COMMIT_OFFSET)
        for store, reply in zip(stores, replies, strict=True):
            store.fits = _succeeded(reply) and reply.maxOffset == store.parts[0].range.end


def _is_candidate(ranges: Sequence[OffsetRange]) -> bool:
    """Return whether ranges of one store may be all of its log between their common ends."""
    first = ranges[0]
    same = all((one.start, one.end) == (first.start, first.end) for one in ranges)
    return len(ranges) > 1 and same and first.entries <= _NARROW


def _succeeded(reply: Any) -> bool:
    if isinstance(reply, errors.TubeMQError):
        return False
    return bool(reply.success) and reply.errCode == errors.SUCCESS


def _each(conversations: Iterable[Conversation[T]]) -> Conversation[list[T]]:
    """Return the results of conversations that wait for nothing."""
    results = []
    for conversation in conversations:
        results.append((yield from conversation))  # noqa: PERF401 - no comprehension may yield
    return results


def _ask(parts: Sequence[_Part], requests: Sequence[Any], method: Any) -> Conversation[list[Any]]:
    """Send the requests of all parts, `_AT_ONCE` to a broker; return replies, or errors in their
    place."""
    by_address: dict[Address, list[int]] = {}
    for index, part in enumerate(parts):
        by_address.setdefault(part.lease.broker.address, []).append(index)
    replies: list[Any] = [None] * len(parts)
    most = max(map(len, by_address.values()), default=0)
    for first in range(0, most, _AT_ONCE):
        tickets: list[tuple[Ticket, list[int]]] = []
        for address, of_broker in by_address.items():
            if not (indices := of_broker[first : first + _AT_ONCE]):
                continue
            try:
                ticket = yield PostAll(address, method, [requests[index] for index in indices])
            except errors.TubeMQError as error:
                for index in indices:
                    replies[index] = error
            else:
                tickets.append((ticket, indices))
        answers = iter((yield AwaitAll([ticket for ticket, _ in tickets])) if tickets else ())
        for _, indices in tickets:
            for index in indices:
                replies[index] = next(answers)
    return replies
