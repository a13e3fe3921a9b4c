"""Bodies of the HTTP administration: wrappers and renderings that both sides share.

Field names, their order and the odd types (booleans as text, dashes for "unknown") are those of
real servers, because scripts parse them. Pure functions from records to plain JSON values.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from tubemq_client.embedded.cluster import Audit, TopicProps
from tubemq_client.embedded.http_params import NUMBERS_OF_TOPICS

__all__ = [
    "VERSION",
    "audit_fields",
    "item_result",
    "props_fields",
    "refusal",
    "rows",
    "to_text",
    "wrapper",
]

VERSION = "2.4.0-embedded"


def to_text(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def refusal(text: str, code: int = 400) -> dict[str, Any]:
    return {"result": False, "errCode": code, "errMsg": text}


def wrapper(text: str = "OK") -> dict[str, Any]:
    return {"result": True, "errCode": 0, "errMsg": text}


def rows(rows: Sequence[Any]) -> dict[str, Any]:
    """Return a master's list of records, or of names."""
    return {**wrapper(), "data": rows, "count": len(rows)}


def item_result(keys: dict[str, Any], code: int = 200, text: str = "Ok!") -> dict[str, Any]:
    """Return the outcome for one record of a modification."""
    return {**keys, "success": code == 200, "errCode": code, "errInfo": text}


def props_fields(props: TopicProps) -> dict[str, Any]:
    return {
        **{name: getattr(props, attribute) for name, (attribute, _) in NUMBERS_OF_TOPICS.items()},
        "acceptPublish": props.accept_publish,
        "acceptSubscribe": props.accept_subscribe,
        "deletePolicy": props.delete_policy,
        "dataStoreType": props.store_type,
        "dataPath": props.data_path,
    }


def audit_fields(audit: Audit) -> dict[str, Any]:
    return {
        "dataVersionId": audit.data_version_id,
        "serialId": audit.serial_id,
        "createUser": audit.create_user,
        "createDate": _date(audit.created_ms),
        "modifyUser": audit.modify_user,
        "modifyDate": _date(audit.modified_ms),
    }


def _date(when_ms: int) -> str:
    """Format a time as ``yyyyMMddHHmmss`` in the server's time zone, as real masters do."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(when_ms / 1000))
