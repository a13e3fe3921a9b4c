"""The TubeMQ messages as tables: one line a field, ``<number> <label> <type> <name>``.

Labels are ``!`` required, ``?`` optional, ``*`` repeated; a type that is no scalar is another
message of this table. The tables are the only place where field numbers stand.

Nothing here touches protobuf: `descriptors` turns the tables into message classes. Unknown fields
are skipped by every peer, so a field that a newer server adds needs no change here.

Three places invite mistakes: `CommitOffsetRequestC2B` orders its names differently from
`GetMessageRequestC2B`, `GetPartMetaResponseM2C` carries topics (5) before brokers (6), and
`GetMessageResponseB2C.errMsg` is optional where all other replies require theirs.
"""

from __future__ import annotations

__all__ = ["MESSAGES"]

_ENVELOPE: dict[str, str] = {
    "RpcConnHeader": """
        1 ! int32 flag
        2 ? int64 traceId
        3 ? int64 spanId
        4 ? int64 parentId
    """,
    "RequestHeader": """
        1 ? int32 serviceType
        2 ? int32 protocolVer
    """,
    "RequestBody": """
        1 ! int32 method
        2 ? int64 timeout
        3 ? bytes request
    """,
    # `status` is an enum upstream. A closed enum would drop values it does not know and leave a
    # required field missing; as int32 every non-zero status still reads as a failure.
    "ResponseHeader": """
        1 ! int32 status
        2 ? int32 serviceType
        3 ? int32 protocolVer
    """,
    "RspResponseBody": """
        1 ! int32 method
        2 ! bytes data
    """,
    "RspExceptionBody": """
        1 ! string exceptionName
        2 ? string stackTrace
    """,
}

_SHARED: dict[str, str] = {
    "EventProto": """
        1 ? int64 rebalanceId
        2 ? int32 opType
        3 ? int32 status
        4 * string subscribeInfo
    """,
    "AuthenticateInfo": """
        1 ! string userName
        2 ! int64 timestamp
        3 ! int32 nonce
        4 ! string othParams
        5 ! string signature
    """,
    "MasterCertificateInfo": """
        1 ? AuthenticateInfo authInfo
        2 ? string authorizedToken
    """,
    "MasterAuthorizedInfo": """
        1 ! int64 visitAuthorizedToken
        2 ? string authAuthorizedToken
    """,
    "AuthorizedInfo": """
        1 ! int64 visitAuthorizedToken
        2 ? string authAuthorizedToken
    """,
    "ApprovedClientConfig": """
        1 ! int64 configId
        2 ? int32 maxMsgSize
    """,
    "TransferedMessage": """
        1 ! int64 messageId
        2 ! int32 checkSum
        3 ! bytes payLoadData
        4 ! int32 flag
    """,
    "ClientSubRepInfo": """
        1 ! int64 brokerConfigId
        2 ! int64 topicMetaInfoId
        3 ? int64 lstAssignedTime
        4 ? bool reportSubInfo
        5 * string partSubInfo
    """,
    "OpsTaskInfo": """
        1 ? int64 groupFlowCheckId
        2 ? int64 defFlowCheckId
        3 ? int32 qryPriorityId
        4 ? int64 csmFrmMaxOffsetCtrlId
        5 ? bool requireAuth
        6 ? string defFlowControlInfo
        7 ? string groupFlowControlInfo
    """,
}

_PRODUCER_MASTER: dict[str, str] = {
    "RegisterRequestP2M": """
        1 ! string clientId
        2 * string topicList
        3 ! int64 brokerCheckSum
        4 ! string hostName
        5 ? MasterCertificateInfo authInfo
        6 ? string jdkVersion
        7 ? ApprovedClientConfig appdConfig
    """,
    "RegisterResponseM2P": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ! int64 brokerCheckSum
        5 * string brokerInfos
        6 ? MasterAuthorizedInfo authorizedInfo
        7 ? ApprovedClientConfig appdConfig
    """,
    "HeartRequestP2M": """
        1 ! string clientId
        2 ! int64 brokerCheckSum
        3 ! string hostName
        4 * string topicList
        5 ? MasterCertificateInfo authInfo
        6 ? ApprovedClientConfig appdConfig
    """,
    "HeartResponseM2P": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ! int64 brokerCheckSum
        5 * string topicInfos
        6 * string brokerInfos
        7 ? bool requireAuth
        8 ? MasterAuthorizedInfo authorizedInfo
        9 ? ApprovedClientConfig appdConfig
    """,
    "CloseRequestP2M": """
        1 ! string clientId
        2 ? MasterCertificateInfo authInfo
    """,
    "CloseResponseM2P": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
    """,
}

_CONSUMER_MASTER: dict[str, str] = {
    "RegisterRequestC2M": """
        1 ! string clientId
        2 ! string groupName
        3 ! string hostName
        4 * string topicList
        5 * string subscribeInfo
        6 * string topicCondition
        7 ? bool requireBound
        8 ? int64 sessionTime
        9 ? string sessionKey
        10 ? int32 totalCount
        11 ? string requiredPartition
        12 ? bool notAllocated
        13 ? bool selectBig
        14 ? int64 groupFlowCheckId
        15 ? int64 defFlowCheckId
        16 ? int64 ssdStoreId
        17 ? int32 qryPriorityId
        18 ? MasterCertificateInfo authInfo
        19 ? string jdkVersion
    """,
    "RegisterResponseM2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 * string topicInfo
        5 ? bool notAllocated
        6 ? int64 defFlowCheckId
        7 ? string defFlowControlInfo
        8 ? int64 groupFlowCheckId
        9 ? string groupFlowControlInfo
        10 ? int64 ssdStoreId
        11 ? int32 qryPriorityId
        12 ? MasterAuthorizedInfo authorizedInfo
    """,
    "HeartRequestC2M": """
        1 ! string clientId
        2 ! string groupName
        3 * string subscribeInfo
        4 ! bool reportSubscribeInfo
        5 ? EventProto event
        6 ? int64 defFlowCheckId
        7 ? int64 groupFlowCheckId
        8 ? int64 ssdStoreId
        9 ? int32 qryPriorityId
        10 ? MasterCertificateInfo authInfo
    """,
    "HeartResponseM2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ? EventProto event
        5 ? bool notAllocated
        6 ? int64 defFlowCheckId
        7 ? string defFlowControlInfo
        8 ? int64 groupFlowCheckId
        9 ? string groupFlowControlInfo
        10 ? int64 ssdStoreId
        11 ? int32 qryPriorityId
        12 ? bool requireAuth
        13 ? MasterAuthorizedInfo authorizedInfo
    """,
    "CloseRequestC2M": """
        1 ! string clientId
        2 ! string groupName
        3 ? MasterCertificateInfo authInfo
    """,
    "CloseResponseM2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
    """,
    "RegisterRequestC2MV2": """
        1 ! string clientId
        2 ! string groupName
        3 ! string hostName
        4 ! int32 sourceCount
        5 ! int32 nodeId
        6 * string topicList
        7 * string topicCondition
        8 ? ClientSubRepInfo subRepInfo
        9 ? OpsTaskInfo opsTaskInfo
        10 ? MasterCertificateInfo authInfo
        11 ? string jdkVersion
    """,
    "RegisterResponseM2CV2": """
        1 ! int32 errCode
        2 ! string errMsg
        3 ? int64 brokerConfigId
        4 * string brokerConfigList
        5 ? OpsTaskInfo opsTaskInfo
        6 ? MasterAuthorizedInfo authorizedInfo
    """,
    "HeartRequestC2MV2": """
        1 ! string clientId
        2 ! string groupName
        3 ? ClientSubRepInfo subRepInfo
        4 ? OpsTaskInfo opsTaskInfo
        5 ? MasterCertificateInfo authInfo
    """,
    "HeartResponseM2CV2": """
        1 ! int32 errCode
        2 ! string errMsg
        3 ? int64 brokerConfigId
        4 * string brokerConfigList
        5 ? int64 topicMetaInfoId
        6 * string topicMetaInfoList
        7 ? OpsTaskInfo opsTaskInfo
        8 ? MasterAuthorizedInfo authorizedInfo
    """,
    "GetPartMetaRequestC2M": """
        1 ! string clientId
        2 ! string groupName
        3 ! int64 brokerConfigId
        4 ! int64 topicMetaInfoId
        5 ? MasterCertificateInfo authInfo
    """,
    "GetPartMetaResponseM2C": """
        1 ! int32 errCode
        2 ! string errMsg
        3 ? int64 brokerConfigId
        4 ? int64 topicMetaInfoId
        5 * string topicMetaInfoList
        6 * string brokerConfigList
    """,
}

_BROKER: dict[str, str] = {
    "SendMessageRequestP2B": """
        1 ! string clientId
        2 ! string topicName
        3 ! int32 partitionId
        4 ! bytes data
        5 ! int32 flag
        6 ! int32 checkSum
        7 ! int32 sentAddr
        8 ? string msgType
        9 ? string msgTime
        10 ? AuthorizedInfo authInfo
    """,
    "SendMessageResponseB2P": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ? bool requireAuth
        5 ? int64 messageId
        6 ? int64 appendTime
        7 ? int64 appendOffset
    """,
    "RegisterRequestC2B": """
        1 ! int32 opType
        2 ! string clientId
        3 ! string groupName
        4 ! string topicName
        5 ! int32 partitionId
        6 ! int32 readStatus
        7 * string filterCondStr
        8 ? int64 currOffset
        9 ? string sessionKey
        10 ? int64 sessionTime
        11 ? int64 ssdStoreId
        12 ? int32 qryPriorityId
        13 ? AuthorizedInfo authInfo
    """,
    "RegisterResponseB2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ? int64 currOffset
        5 ? int64 maxOffset
    """,
    "HeartBeatRequestC2B": """
        1 ! string clientId
        2 ! string groupName
        3 ! int32 readStatus
        4 * string partitionInfo
        5 ? int64 ssdStoreId
        6 ? int32 qryPriorityId
        7 ? AuthorizedInfo authInfo
    """,
    "HeartBeatResponseB2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ? bool hasPartFailure
        5 * string failureInfo
        6 ? bool requireAuth
    """,
    "GetMessageRequestC2B": """
        1 ! string clientId
        2 ! int32 partitionId
        3 ! string groupName
        4 ! string topicName
        5 ? bool lastPackConsumed
        6 ? bool manualCommitOffset
        7 ? bool escFlowCtrl
    """,
    "GetMessageResponseB2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ? string errMsg
        4 * TransferedMessage messages
        5 ? int64 currOffset
        6 ? int32 minLimitTime
        7 ? bool escFlowCtrl
        8 ? int64 currDataDlt
        9 ? bool requireSlow
        10 ? int64 maxOffset
    """,
    "CommitOffsetRequestC2B": """
        1 ! string clientId
        2 ! string topicName
        3 ! int32 partitionId
        4 ! string groupName
        5 ? bool lastPackConsumed
    """,
    "CommitOffsetResponseB2C": """
        1 ! bool success
        2 ! int32 errCode
        3 ! string errMsg
        4 ? int64 currOffset
        5 ? int64 maxOffset
    """,
}

MESSAGES: dict[str, str] = {
    **_ENVELOPE,
    **_SHARED,
    **_PRODUCER_MASTER,
    **_CONSUMER_MASTER,
    **_BROKER,
}
"""Every message of the client's two services and of the RPC envelope, by its bare proto name."""
