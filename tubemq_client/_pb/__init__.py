"""TubeMQ's protobuf messages, one attribute per class: ``_pb.RegisterRequestC2B(clientId=...)``.

The classes live in a private descriptor pool (see `descriptors`), so they never clash with
other copies of the same messages in the process. They are built once, on import, in milliseconds.

Nothing else belongs here: no defaults, no semantics, no helper. The names are the names on the
wire. Editors see them as `Any`; `schema` is the list of fields.
"""

from __future__ import annotations

from typing import Any

from tubemq_client._pb.descriptors import build_classes
from tubemq_client._pb.schema import MESSAGES

__all__ = [
    "ApprovedClientConfig",
    "AuthenticateInfo",
    "AuthorizedInfo",
    "ClientSubRepInfo",
    "CloseRequestC2M",
    "CloseRequestP2M",
    "CloseResponseM2C",
    "CloseResponseM2P",
    "CommitOffsetRequestC2B",
    "CommitOffsetResponseB2C",
    "EventProto",
    "GetMessageRequestC2B",
    "GetMessageResponseB2C",
    "GetPartMetaRequestC2M",
    "GetPartMetaResponseM2C",
    "HeartBeatRequestC2B",
    "HeartBeatResponseB2C",
    "HeartRequestC2M",
    "HeartRequestC2MV2",
    "HeartRequestP2M",
    "HeartResponseM2C",
    "HeartResponseM2CV2",
    "HeartResponseM2P",
    "MasterAuthorizedInfo",
    "MasterCertificateInfo",
    "OpsTaskInfo",
    "RegisterRequestC2B",
    "RegisterRequestC2M",
    "RegisterRequestC2MV2",
    "RegisterRequestP2M",
    "RegisterResponseB2C",
    "RegisterResponseM2C",
    "RegisterResponseM2CV2",
    "RegisterResponseM2P",
    "RequestBody",
    "RequestHeader",
    "ResponseHeader",
    "RpcConnHeader",
    "RspExceptionBody",
    "RspResponseBody",
    "SendMessageRequestP2B",
    "SendMessageResponseB2P",
    "TransferedMessage",
]

_CLASSES = build_classes(MESSAGES, "tubemq_client/_pb/messages.proto")

RpcConnHeader: type[Any] = _CLASSES["RpcConnHeader"]
RequestHeader: type[Any] = _CLASSES["RequestHeader"]
RequestBody: type[Any] = _CLASSES["RequestBody"]
ResponseHeader: type[Any] = _CLASSES["ResponseHeader"]
RspResponseBody: type[Any] = _CLASSES["RspResponseBody"]
RspExceptionBody: type[Any] = _CLASSES["RspExceptionBody"]
EventProto: type[Any] = _CLASSES["EventProto"]
AuthenticateInfo: type[Any] = _CLASSES["AuthenticateInfo"]
MasterCertificateInfo: type[Any] = _CLASSES["MasterCertificateInfo"]
MasterAuthorizedInfo: type[Any] = _CLASSES["MasterAuthorizedInfo"]
AuthorizedInfo: type[Any] = _CLASSES["AuthorizedInfo"]
ApprovedClientConfig: type[Any] = _CLASSES["ApprovedClientConfig"]
TransferedMessage: type[Any] = _CLASSES["TransferedMessage"]
ClientSubRepInfo: type[Any] = _CLASSES["ClientSubRepInfo"]
OpsTaskInfo: type[Any] = _CLASSES["OpsTaskInfo"]
RegisterRequestP2M: type[Any] = _CLASSES["RegisterRequestP2M"]
RegisterResponseM2P: type[Any] = _CLASSES["RegisterResponseM2P"]
HeartRequestP2M: type[Any] = _CLASSES["HeartRequestP2M"]
HeartResponseM2P: type[Any] = _CLASSES["HeartResponseM2P"]
CloseRequestP2M: type[Any] = _CLASSES["CloseRequestP2M"]
CloseResponseM2P: type[Any] = _CLASSES["CloseResponseM2P"]
RegisterRequestC2M: type[Any] = _CLASSES["RegisterRequestC2M"]
RegisterResponseM2C: type[Any] = _CLASSES["RegisterResponseM2C"]
HeartRequestC2M: type[Any] = _CLASSES["HeartRequestC2M"]
HeartResponseM2C: type[Any] = _CLASSES["HeartResponseM2C"]
CloseRequestC2M: type[Any] = _CLASSES["CloseRequestC2M"]
CloseResponseM2C: type[Any] = _CLASSES["CloseResponseM2C"]
RegisterRequestC2MV2: type[Any] = _CLASSES["RegisterRequestC2MV2"]
RegisterResponseM2CV2: type[Any] = _CLASSES["RegisterResponseM2CV2"]
HeartRequestC2MV2: type[Any] = _CLASSES["HeartRequestC2MV2"]
HeartResponseM2CV2: type[Any] = _CLASSES["HeartResponseM2CV2"]
GetPartMetaRequestC2M: type[Any] = _CLASSES["GetPartMetaRequestC2M"]
GetPartMetaResponseM2C: type[Any] = _CLASSES["GetPartMetaResponseM2C"]
SendMessageRequestP2B: type[Any] = _CLASSES["SendMessageRequestP2B"]
SendMessageResponseB2P: type[Any] = _CLASSES["SendMessageResponseB2P"]
RegisterRequestC2B: type[Any] = _CLASSES["RegisterRequestC2B"]
RegisterResponseB2C: type[Any] = _CLASSES["RegisterResponseB2C"]
HeartBeatRequestC2B: type[Any] = _CLASSES["HeartBeatRequestC2B"]
HeartBeatResponseB2C: type[Any] = _CLASSES["HeartBeatResponseB2C"]
GetMessageRequestC2B: type[Any] = _CLASSES["GetMessageRequestC2B"]
GetMessageResponseB2C: type[Any] = _CLASSES["GetMessageResponseB2C"]
CommitOffsetRequestC2B: type[Any] = _CLASSES["CommitOffsetRequestC2B"]
CommitOffsetResponseB2C: type[Any] = _CLASSES["CommitOffsetResponseB2C"]
