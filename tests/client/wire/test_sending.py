"""The hand-written send request equals the protobuf message."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import _pb
from tubemq_client._wire.sending import SendTemplate

TEXTS = st.none() | st.text(max_size=200)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(st.binary(max_size=5_000), st.integers(0, 1), TEXTS, TEXTS, INT32, INT32, st.booleans())
def test_requests_decode_to_their_values(
    data: bytes,
    flag: int,
    stream_id: str | None,
    msg_time: str | None,
    partition_id: int,
    address: int,
    verify: bool,
) -> None:
    auth = _pb.AuthorizedInfo(visitAuthorizedToken=-2)
    template = SendTemplate("client", "orders", partition_id, address, auth, verify=verify)
    message = _pb.SendMessageRequestP2B.FromString(
        template.request(data, flag, stream_id, msg_time)
    )
    expected = _pb.SendMessageRequestP2B(
        clientId="client",
        topicName="orders",
        partitionId=partition_id,
        data=data,
        flag=flag,
        checkSum=zlib.crc32(data) & 0x7FFFFFFF if verify else -1,
        sentAddr=address,
        authInfo=auth,
    )
    if stream_id is not None:
        expected.msgType = stream_id
    if msg_time is not None:
        expected.msgTime = msg_time
    assert message == expected
