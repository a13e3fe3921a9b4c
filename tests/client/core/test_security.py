"""Signatures and tokens that a client sends to masters and brokers, and when."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import _pb, errors
from tubemq_client._core.effects import Call, WallClock
from tubemq_client._core.master import MasterSession
from tubemq_client._core.registration import Registration
from tubemq_client._core.security import NO_TOKEN, Access, signature
from tubemq_client._wire import methods
from tubemq_client.model import BrokerNode, ClientSettings, Credentials, Partition, TlsSettings

USER = Credentials("u1", "p1")
MASTER = ("master", 8715)
CLOCK = 1_700_000_000_000
OK: dict[str, Any] = {"success": True, "errCode": 200, "errMsg": "OK!"}


def perform(conversation: Any, replies: list[Any]) -> tuple[list[Any], Any]:
    """Run it against `replies` in order, at a time of day that advances a second per look-up."""
    calls, answers, clock = [], iter(replies), itertools.count(CLOCK, 1_000)
    answer = None
    while True:
        try:
            effect = conversation.send(answer)
        except StopIteration as stop:
            return calls, stop.value
        if isinstance(effect, WallClock):
            answer = next(clock)
        else:
            assert isinstance(effect, Call)
            sent = type(effect.request)()
            sent.CopyFrom(effect.request)
            calls.append((effect.method, sent))
            answer = next(answers)


def session(credentials: Credentials | None = USER) -> MasterSession:
    return MasterSession.of(ClientSettings((MASTER,), auth=credentials), "h", 12_345)


def test_the_signature_is_the_one_of_the_reference_vector() -> None:
    assert signature("u1", "p1", CLOCK, 12_345) == "wu%2FtGdHcx7iccCHomudrLOjapVo%3D"


@given(st.text(min_size=1), st.text(), st.integers(0, 2**62), st.integers(0, 2**31 - 2))
def test_a_server_with_the_password_computes_the_same_signature(
    user: str, password: str, now: int, nonce: int
) -> None:
    digest = hmac.digest(password.encode(), f"{user}{now}{nonce}".encode(), hashlib.sha1)
    expected = base64.b64encode(digest).decode()
    signed = signature(user, password, now, nonce)
    assert unquote(signed) == expected
    assert not set(signed) & set("+/= ")


@pytest.mark.parametrize(
    "message",
    [
        _pb.RegisterRequestP2M,
        _pb.HeartRequestP2M,
        _pb.CloseRequestP2M,
        _pb.RegisterRequestC2M,
        _pb.HeartRequestC2M,
        _pb.CloseRequestC2M,
        _pb.RegisterRequestC2MV2,
        _pb.HeartRequestC2MV2,
        _pb.GetPartMetaRequestC2M,
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
def test_every_request_to_a_master_is_signed_afresh(message: Any) -> None:
    master = session()
    signatures = []
    for now in (CLOCK, CLOCK + 1_000):
        request = message()
        stamping = master.access.stamp(request)
        assert isinstance(next(stamping), WallClock)
        with pytest.raises(StopIteration):
            stamping.send(now)
        signatures.append(request.authInfo.authInfo)
    assert [item.timestamp for item in signatures] == [CLOCK, CLOCK + 1_000]
    assert [item.userName for item in signatures] == ["u1", "u1"]
    assert signatures[0].nonce != signatures[1].nonce
    assert signatures[0].signature != signatures[1].signature


def test_a_call_to_the_master_carries_the_time_of_day_and_a_signature_over_it() -> None:
    reply = _pb.HeartResponseM2CV2(errCode=200, errMsg="")
    conversation = session().heartbeat_consumer("c", "g", [], report=False)
    ((_, request),), _ = perform(conversation, [reply])
    signed = request.authInfo.authInfo
    assert (signed.timestamp, signed.nonce) == (CLOCK, 12_345)
    assert signed.signature == "wu%2FtGdHcx7iccCHomudrLOjapVo%3D"


def test_without_credentials_nothing_is_signed_and_no_clock_is_read() -> None:
    reply = _pb.HeartResponseM2CV2(errCode=200, errMsg="")
    conversation = session(None).heartbeat_consumer("c", "g", [], report=False)
    assert isinstance(next(conversation), Call)
    with pytest.raises(StopIteration):
        conversation.send(reply)


def test_tokens_of_a_reply_are_sent_to_brokers() -> None:
    token = _pb.MasterAuthorizedInfo(visitAuthorizedToken=77, authAuthorizedToken="let me in")
    reply = _pb.HeartResponseM2CV2(errCode=200, errMsg="", authorizedInfo=token)
    master = session(None)
    perform(master.heartbeat_consumer("c", "g", [], report=False), [reply])
    auth_info = master.broker_auth()
    assert (auth_info.visitAuthorizedToken, auth_info.authAuthorizedToken) == (77, "let me in")
    # A later answer without the second token does not change it.
    reply.authorizedInfo.CopyFrom(_pb.MasterAuthorizedInfo(visitAuthorizedToken=78))
    perform(master.heartbeat_consumer("c", "g", [], report=False), [reply])
    assert (master.visit_token, master.access.authorized_token) == (78, "let me in")


def test_a_broker_sees_user_time_nonce_and_signature() -> None:
    access = Access(USER, itertools.count(12_345))
    perform(access.read_signing_time(), [])
    auth_info = access.broker_auth()
    assert auth_info.visitAuthorizedToken == NO_TOKEN
    assert auth_info.authAuthorizedToken == f"u1 {CLOCK} 12345 wu%2FtGdHcx7iccCHomudrLOjapVo%3D"


def registration(master: MasterSession) -> Registration:
    broker = BrokerNode(1, "b", 8123)
    return Registration(broker, Partition(1, "orders", 0), "g", "c", access=master.access)


def refusal(text: str) -> Any:
    return _pb.RegisterResponseB2C(success=False, errCode=415, errMsg=text)


def test_a_reader_renews_an_expired_visit_token_and_continues() -> None:
    master = session()
    token = _pb.MasterAuthorizedInfo(visitAuthorizedToken=77)
    calls, registered = perform(
        registration(master).register(0),
        [
            refusal("Visit Authorized Token is invalid!"),
            _pb.RegisterResponseM2P(**OK, brokerCheckSum=1, authorizedInfo=token),
            _pb.CloseResponseM2P(**OK),
            _pb.RegisterResponseB2C(**OK, currOffset=28, maxOffset=56),
        ],
    )
    assert [method for method, _ in calls] == [
        methods.REGISTER_PARTITION,
        methods.REGISTER_PRODUCER,
        methods.CLOSE_PRODUCER,
        methods.REGISTER_PARTITION,
    ]
    tokens = [request.authInfo.visitAuthorizedToken for _, request in (calls[0], calls[-1])]
    assert tokens == [NO_TOKEN, 77]
    assert registered.current == 28


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("authAuthorizedToken is Blank!", "auth.username"),
        ("Illegal value: authInfo.userName is Blank!", "auth.username"),
        ("Illegal value: timestamp out of effective period in authenticateToken!", "clock"),
    ],
)
def test_a_refusal_names_the_option_to_change(text: str, hint: str) -> None:
    with pytest.raises(errors.AuthenticationFailed, match=hint):
        perform(registration(session(None)).register(0), [refusal(text)])


def test_a_token_that_no_master_renews_ends_with_the_refusal() -> None:
    again = _pb.MasterAuthorizedInfo(visitAuthorizedToken=NO_TOKEN)
    replies = [
        refusal("Visit Authorized Token is invalid!"),
        _pb.RegisterResponseM2P(**OK, brokerCheckSum=1, authorizedInfo=again),
        _pb.CloseResponseM2P(**OK),
    ]
    with pytest.raises(errors.AuthenticationFailed, match="visit token"):
        perform(registration(session()).register(0), replies)


def test_over_tls_brokers_without_a_port_are_at_the_tls_port() -> None:
    plain, encrypted = session(None), session(None)
    encrypted.tls = MasterSession.of(ClientSettings((MASTER,), tls=TlsSettings()), "h", 0).tls
    assert plain.parse_brokers(["1:b: "])[1].port == 8123
    assert encrypted.parse_brokers(["1:b: "])[1].port == 8124
    assert encrypted.parse_brokers(["1:b:9"])[1].port == 9


def test_secrets_are_not_shown() -> None:
    master = session(Credentials("u1", "hunter2"))
    master.access.authorized_token = "hunter3"
    tls = TlsSettings(key_password="hunter4")
    text = f"{master!r} {master.access!r} {ClientSettings((MASTER,), auth=USER, tls=tls)!r}"
    assert "hunter" not in text
    assert "p1" not in text
