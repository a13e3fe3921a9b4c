"""HTTP changes of many records at once: a JSON list, each item of which is one single change.

Beside `http_admin`, whose methods for single changes do the work: a batch is one of them for every
item, and its answer has the rows of all. A list that lacks what every item needs is refused before
anything changes; a value out of range is found when its item's turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tubemq_client.embedded.http_params import Params
from tubemq_client.embedded.http_reply import rows

__all__ = ["batch_methods"]

Method = Callable[[Params], dict[str, Any]]


class _Batch(NamedTuple):
    """Names of a batch, the parameter with its list, the single change, what an item needs, and
    what it says unless it says otherwise."""

    names: tuple[str, ...]
    parameter: str
    single: str
    needs: tuple[str, ...]
    defaults: Mapping[str, str] = {}


_PERMISSION = ("groupName", "topicName")
_PLACE = ("topicName", "brokerId")

_BATCHES = (
    _Batch(
        ("admin_batch_add_group_csmctrl_info",),
        "groupCsmJsonSet",
        "admin_add_group_csmctrl_info",
        _PERMISSION,
    ),
    _Batch(
        ("admin_batch_update_group_csmctrl_info",),
        "groupCsmJsonSet",
        "admin_update_group_csmctrl_info",
        _PERMISSION,
    ),
    _Batch(
        ("admin_batch_delete_group_csmctrl_info",),
        "groupCsmJsonSet",
        "admin_delete_group_csmctrl_info",
        ("groupName",),
    ),
    _Batch(
        ("admin_batch_add_group_resctrl_info",),
        "groupResCtrlJsonSet",
        "admin_add_group_resctrl_info",
        ("groupName",),
    ),
    _Batch(
        ("admin_batch_update_group_resctrl_info",),
        "groupResCtrlJsonSet",
        "admin_update_group_resctrl_info",
        ("groupName",),
    ),
    _Batch(
        ("admin_batch_add_topic_control_info",),
        "topicCtrlJsonSet",
        "admin_add_topic_control_info",
        ("topicName",),
        {"topicNameId": "0"},
    ),
    _Batch(
        ("admin_batch_update_topic_control_info",),
        "topicCtrlJsonSet",
        "admin_update_topic_control_info",
        ("topicName",),
    ),
    _Batch(
        ("admin_bath_add_topic_authorize_control",),
        "topicJsonSet",
        "admin_set_topic_authorize_control",
        ("topicName",),
    ),
    _Batch(
        ("admin_batch_add_broker_configure", "admin_bath_add_broker_configure"),
        "brokerJsonSet",
        "admin_add_broker_configure",
        ("brokerIp",),
    ),
    _Batch(
        ("admin_batch_update_broker_configure",),
        "brokerJsonSet",
        "admin_update_broker_configure",
        ("brokerId",),
    ),
    _Batch(
        ("admin_bath_add_topic_deploy_info", "admin_bath_add_new_topic_record"),
        "topicJsonSet",
        "admin_add_topic_deploy_info",
        _PLACE,
    ),
    _Batch(
        ("admin_batch_update_topic_deploy_info",),
        "topicJsonSet",
        "admin_update_topic_deploy_info",
        _PLACE,
    ),
)


def batch_methods(singles: Mapping[str, Method]) -> dict[str, Method]:
    """Every batch by name, made from the methods for single changes."""
    return {
        name: _for_each(batch, singles[batch.single]) for batch in _BATCHES for name in batch.names
    }


def _for_each(batch: _Batch, single: Method) -> Method:
    def answer(params: Params) -> dict[str, Any]:
        items = params.batch(batch.parameter, batch.defaults)
        for item in items:
            for name in batch.needs:
                item.required(name)
        return rows([row for item in items for row in single(item)["data"]])

    return answer
