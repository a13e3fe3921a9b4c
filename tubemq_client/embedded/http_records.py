"""Methods of the master's administration that change records: parameters, changes and replies.

A table names a method, its parameters, in the order in which a real master checks them, and the
change to one record; `changes` makes callables of it, and `batches` those that take lists of
records. `RecordKind` has the replies that records of a kind share. Storage, and the meaning of a
change, belong to the modules that have the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

from tubemq_client.embedded.http_params import Params
from tubemq_client.embedded.http_reply import item_result, rows

__all__ = ["ChangeOne", "Method", "RecordKind", "Reply", "batches", "change", "changes"]

Reply = dict[str, Any]
Method = Callable[[Params], Reply]
ChangeOne = Callable[..., Reply | None]
"""Function that changes one record: from parameters, user and key to the row of the reply, or None.
"""

_KEYS: dict[str, Callable[..., list[Any]]] = {
    "groupName": Params.groups,
    "topicName": Params.topics,
    "brokerId": Params.broker_ids,
}
"""Parameters that name records, in the order in which their values are combined."""

_BATCHES = {
    "admin_batch_add_group_csmctrl_info": ("add_group_csmctrl_info", "groupName topicName"),
    "admin_batch_update_group_csmctrl_info": ("update_group_csmctrl_info", "groupName topicName"),
    "admin_batch_delete_group_csmctrl_info": ("delete_group_csmctrl_info", "groupName"),
    "admin_batch_add_group_resctrl_info": ("add_group_resctrl_info", "groupName"),
    "admin_batch_update_group_resctrl_info": ("update_group_resctrl_info", "groupName"),
    "admin_batch_add_topic_control_info": ("add_topic_control_info", "topicName"),
    "admin_batch_update_topic_control_info": ("update_topic_control_info", "topicName"),
    "admin_bath_add_topic_authorize_control": ("set_topic_authorize_control", "topicName"),
    "admin_batch_add_broker_configure": ("add_broker_configure", "brokerIp"),
    "admin_bath_add_broker_configure": ("add_broker_configure", "brokerIp"),
    "admin_batch_update_broker_configure": ("update_broker_configure", "brokerId"),
    "admin_bath_add_topic_deploy_info": ("add_topic_deploy_info", "topicName brokerId"),
    "admin_bath_add_new_topic_record": ("add_topic_deploy_info", "topicName brokerId"),
    "admin_batch_update_topic_deploy_info": ("update_topic_deploy_info", "topicName brokerId"),
}
"""Methods for lists (some misspelt, as on real masters): the single change, required parameters."""

_LISTS = {
    "csmctrl": "groupCsmJsonSet",
    "resctrl": "groupResCtrlJsonSet",
    "topic_control": "topicCtrlJsonSet",
    "broker_configure": "brokerJsonSet",
    "topic": "topicJsonSet",
}
"""Parameter with the list, by the first of these words in a method's name."""

_DEFAULTS = {"admin_batch_add_topic_control_info": {"topicNameId": "0"}}
"""Defaults of the items of a list."""


class RecordKind(NamedTuple):
    """Names of one kind of record in replies. `where` is a format for the key."""

    keys: tuple[str, ...]
    where: str
    noun: str
    title: str

    def ok(self, *key: object) -> Reply:
        return self.refused(200, "Ok!", *key)

    def exists(self, *key: object) -> Reply:
        return self.refused(402, f"Existed record found for {self.where.format(*key)}!", *key)

    def missing(self, *key: object) -> Reply:
        return self.refused(401, f"Not found {self.noun} for {self.where.format(*key)}!", *key)

    def unchanged(self, *key: object) -> Reply:
        return self.refused(403, f"{self.title} not changed!", *key)

    def refused(self, code: int, text: str, *key: object) -> Reply:
        return item_result(dict(zip(self.keys, key, strict=True)), code, text)


def changes(table: Mapping[str, tuple[str, ChangeOne]]) -> dict[str, Method]:
    """Return the methods of a table, by name: their parameters (see `change`) and their change."""
    return {name: change(needs, one) for name, (needs, one) in table.items()}


def change(
    needs: str, one: ChangeOne, *, check: Callable[[Params], object] | None = None
) -> Method:
    """Return a method that applies `one` to every record that a request names.

    `needs` are names of parameters; one with ``?`` may be missing. `check` validates all parameters
    once these are there, before anything changes.
    """

    def answer(params: Params) -> Reply:
        user, parts = "", {}
        for need in needs.split():
            name = need.removesuffix("?")
            if name.endswith("User"):
                user = params.user(name)
            else:
                parts[name] = _KEYS[name](params, required=name == need) or [""]
        if check is not None:
            check(params)
        keys = product(*(parts[name] for name in _KEYS if name in parts))
        replies = [one(params, user, *key) for key in keys]
        return rows([reply for reply in replies if reply is not None])

    return answer


def batches(singles: Mapping[str, Method]) -> dict[str, Method]:
    """Return the methods for lists of records, by name.

    A list without the required parameters is refused before anything changes; a value out of range
    is found only when its item is applied.
    """
    return {
        name: _for_each(name, singles[f"admin_{single}"], needs.split())
        for name, (single, needs) in _BATCHES.items()
    }


def _for_each(name: str, single: Method, needs: list[str]) -> Method:
    parameter = next(parameter for word, parameter in _LISTS.items() if word in name)

    def answer(params: Params) -> Reply:
        items = params.batch(parameter, _DEFAULTS.get(name, {}))
        for item in items:
            for need in needs:
                item.required(need)
        return rows([row for item in items for row in single(item)["data"]])

    return answer
