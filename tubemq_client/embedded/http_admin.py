"""The master's HTTP administration (``/webapi.htm``): a method name and parameters in, JSON out.

Plain calls without a web framework; `web` puts them on HTTP. Queries need no token, modifications
need the one of `Switches.admin_token`. Bodies are those of a real master, field by field; errors of
single records come back under ``result: true``, as there. Topics take effect at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tubemq_client.embedded.http_brokers import BrokersAdmin
from tubemq_client.embedded.http_controls import ControlAdmin
from tubemq_client.embedded.http_deployments import DeploymentAdmin
from tubemq_client.embedded.http_groups import GroupAdmin
from tubemq_client.embedded.http_limits import LimitAdmin
from tubemq_client.embedded.http_params import BadParameter, Params
from tubemq_client.embedded.http_records import Method, Reply, batches
from tubemq_client.embedded.http_reply import VERSION, refusal, rows, to_text
from tubemq_client.embedded.master import Master

__all__ = ["MasterAdmin"]

_BAD_REQUEST = "Bad request from client, "
_CALLBACK = re.compile(r"[_A-Za-z0-9]{1,128}", re.ASCII)


class _Method(NamedTuple):
    run: Method
    needs_token: bool


class MasterAdmin:
    """Answers administration requests against one master's state."""

    def __init__(self, master: Master) -> None:
        self._master = master
        reads: dict[str, Method] = {
            "admin_query_server_version": lambda _: rows([{"version": VERSION}]),
            "admin_get_methods": self._list_methods,
        }
        writes: dict[str, Method] = {}
        for kind in (DeploymentAdmin, BrokersAdmin, GroupAdmin, ControlAdmin, LimitAdmin):
            part = kind(master)
            reads |= part.reads
            writes |= part.writes
        writes |= batches(writes)
        self._methods = {name: _Method(run, needs_token=False) for name, run in reads.items()} | {
            name: _Method(run, needs_token=True) for name, run in writes.items()
        }

    def reply(self, values: Mapping[str, str]) -> tuple[str, str | None]:
        """Return body and content type for a request's parameters; errors are bodies too."""
        params = Params(values)
        text = to_text(self._answer(params))
        callback = params.text("callback")
        if callback is not None and _CALLBACK.fullmatch(callback):
            return f"{callback}({text})", "text/plain;charset=utf-8"
        return text, None

    def _answer(self, params: Params) -> Reply:
        try:
            method = self._authorised(params)
        except BadParameter as error:
            return refusal(f"{_BAD_REQUEST}{error}")
        try:
            return method.run(params)
        except BadParameter as error:
            return refusal(str(error))

    def _authorised(self, params: Params) -> _Method:
        name = params.text("method")
        if name is None:
            raise BadParameter("Please take with method parameter!")
        method = self._methods.get(name)
        if method is None:
            raise BadParameter("unsupported method!")
        if method.needs_token:
            token = params.required("confModAuthToken")
            if token != self._master.switches.admin_token:
                raise BadParameter("illegal access, unauthorized request!")
        return method

    def _list_methods(self, _params: Params) -> Reply:
        return rows(
            [
                {"method": name, "needAuth": method.needs_token}
                for name, method in self._methods.items()
            ]
        )
