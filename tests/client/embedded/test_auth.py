"""Authentication of the embedded server, on the wire: codes and texts of a genuine one; tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.embedded.rpc import BrokerWire, Wire
from tests.kit.servers import embedded_tubemq
from tubemq_client import _pb
from tubemq_client._wire import methods
from tubemq_client.embedded import EmbeddedTubeMQ, Security, Switches
from tubemq_client.embedded.auth import VisitTokens
from tubemq_client.testing.clock import ManualClock

BY_HAND: dict[str, Any] = {
    "flush_interval_ms": None,
    "unflushed_records": None,
    "lease_scan_ms": None,
}
GRACE_MS = 120_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def guarded(**security: Any) -> Switches:
    return Switches(**BY_HAND, security=Security(**security))


def serve(clock: ManualClock, **security: Any) -> EmbeddedTubeMQ:
    return EmbeddedTubeMQ(1, ["lone"], http=False, switches=guarded(**security), clock=clock)


mq = embedded_tubemq(
    ["lone"], by_clock=True, switches=guarded(produce=True, consume=True, visit_tokens=True)
)


def info(clock: ManualClock, **changes: Any) -> Any:
    fields = {
        "userName": "u",
        "timestamp": clock(),
        "nonce": 1,
        "othParams": "",
        "signature": "zzz",
    }
    return _pb.MasterCertificateInfo(authInfo=_pb.AuthenticateInfo(**{**fields, **changes}))


def register(master: Wire, auth: Any = None) -> Any:
    request = _pb.RegisterRequestP2M(
        clientId="c", hostName="127.0.0.1", brokerCheckSum=-1, authInfo=auth
    )
    return master.call(methods.REGISTER_PRODUCER, request)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (None, "Illegal value: authInfo.userName is Blank!"),
        ({"userName": " "}, "Illegal value: authInfo.userName is Blank!"),
        ({"signature": ""}, "Illegal value: authInfo.signature is Blank!"),
        ({"timestamp": -25_000}, "timestamp out of effective period in authenticateToken!"),
        ({"timestamp": 25_000}, "timestamp out of effective period in authenticateToken!"),
        ({"timestamp": -18_000}, None),
        ({}, None),
    ],
)
def test_the_master_looks_at_presence_and_time_only(
    mq: EmbeddedTubeMQ, clock: ManualClock, changes: dict[str, Any] | None, text: str | None
) -> None:
    auth = None
    if changes is not None:
        late = changes.get("timestamp", 0)
        auth = info(clock, **{**changes, "timestamp": clock() + late})
    with Wire(mq.masters) as master:
        reply = register(master, auth)
    if text is None:
        assert (reply.errCode, reply.authorizedInfo.visitAuthorizedToken) == (200, clock())
    else:
        assert (reply.success, reply.errCode) == (False, 415)
        assert reply.errMsg.endswith(text)


@pytest.mark.parametrize("switch", ["produce", "consume"])
def test_producers_and_consumers_are_asked_separately(clock: ManualClock, switch: str) -> None:
    with serve(clock, **{switch: True}) as server, Wire(server.masters) as master:
        produced = register(master).errCode
        request = _pb.CloseRequestC2M(clientId="c", groupName="g")
        consumed = master.call(methods.CLOSE_CONSUMER, request).errCode
    assert (produced, consumed) == ((415, 200) if switch == "produce" else (200, 415))


def test_brokers_check_the_visit_token_first_after_their_grace(
    mq: EmbeddedTubeMQ, clock: ManualClock
) -> None:
    signed = "anything"
    token = clock()  # handed out at the start
    with BrokerWire(mq.broker(1).address) as broker:
        for at, visit, signature, text in (
            (0, 5, signed, None),
            (0, 5, "", "authAuthorizedToken is Blank!"),
            (GRACE_MS + 1, 5, signed, "Visit Authorized Token is invalid!"),
            (0, token, " ", "authAuthorizedToken is Blank!"),
            (0, token, signed, None),
        ):
            clock.advance(at)
            shown = _pb.AuthorizedInfo(visitAuthorizedToken=visit, authAuthorizedToken=signature)
            for call in (broker.register, broker.send):
                arguments: dict[str, Any] = {"authInfo": shown}
                reply = (
                    call("lone", **arguments)
                    if call == broker.register
                    else broker.send("lone", b"x", **arguments)
                )
                assert reply.errCode == (415 if text else 200)
                assert not text or reply.errMsg == text
        assert broker.get("lone").errCode == 200  # fetches carry no token
        assert broker.commit("lone", lastPackConsumed=True).errCode == 200
        assert broker.unregister("lone").errCode == 415


def test_a_broker_that_registers_again_does_not_ask_for_a_while(
    mq: EmbeddedTubeMQ, clock: ManualClock
) -> None:
    clock.advance(GRACE_MS + 1)
    shown = _pb.AuthorizedInfo(visitAuthorizedToken=5, authAuthorizedToken="x")
    with BrokerWire(mq.broker(1).address) as broker:
        assert broker.register("lone", authInfo=shown).errCode == 415
    mq.broker(1).restart()
    with BrokerWire(mq.broker(1).address) as broker:
        assert broker.register("lone", authInfo=shown).errCode == 200


def test_tokens_turn_and_the_last_six_are_recognised(clock: ManualClock) -> None:
    tokens = VisitTokens(clock, 300_000)
    first = tokens.announced_token()
    clock.advance(240_000)
    assert tokens.announced_token() == first, "the generation before the newest"
    clock.advance(240_000)
    assert tokens.announced_token() == first + 240_000
    clock.advance(3 * 240_000)
    assert tokens.recognises(first)
    clock.advance(240_000)
    assert not tokens.recognises(first)
    clock.advance(10**12)
    assert tokens.recognises(tokens.announced_token())
    assert clock() - tokens.announced_token() < 2 * 240_000
