"""`TubeMQStateBackend`: Airflow's metastore backend, with compare-and-set for the ledger's keys.

Configured as ``[state_store] backend`` of the API server. Other keys, and all task state, pass
through unchanged. A key of the ledger is read from and written to the ledger's tables, and each
successful write is copied into the stock table, so that Airflow's UI and REST API still show it;
edits there never reach the ledger. A write of an outdated revision is answered with 409.

Airflow's clean-up of unused assets empties the stock table only. The overridden methods are private
ones of Airflow: tests run against each supported version.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow.models.asset import AssetModel
from sqlalchemy import select

from tubemq_provider._airflow import AssetScope, MetastoreBackend
from tubemq_provider.offsets.ledger.envelope import PIECE, PREFIX, PROBE, Envelope
from tubemq_provider.offsets.ledger.service import delete_value, get_value, set_value
from tubemq_provider.offsets.ledger.tables import LedgerTables
from tubemq_provider.windows.errors import StoreConflict

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["TubeMQStateBackend", "ledger_of"]


def ledger_of(session: Session) -> LedgerTables:
    """Return the ledger's tables over a session of Airflow's metadata database."""
    return LedgerTables(session, session.get_bind().dialect.name)


class TubeMQStateBackend(MetastoreBackend):
    """State backend with the ledger. Set ``AIRFLOW__STATE_STORE__BACKEND`` to this class, and add
    its tables with the DB manager `tubemq_provider.offsets.ledger.db_manager.LedgerDBManager`."""

    # Sync, as the API server calls them

    def _get_asset_state_store(
        self, scope: AssetScope, key: str, *, session: Session
    ) -> str | None:
        if not key.startswith(PREFIX):
            return super()._get_asset_state_store(scope, key, session=session)
        asset = "" if key == PROBE else _name(scope, session)
        value = get_value(ledger_of(session), asset, key)
        return json.dumps(value) if value else None

    def _store_asset_state(
        self, scope: AssetScope, key: str, value: str, *, session: Session, **writer: Any
    ) -> None:
        if not key.startswith(PREFIX):
            super()._store_asset_state(scope, key, value, session=session, **writer)
            return
        envelope = self._store(scope, key, value, session)
        if not key.startswith(PIECE):
            shown = json.dumps(envelope.document)
            super()._store_asset_state(scope, key, shown, session=session, **writer)

    def _delete_asset_state_store(self, scope: AssetScope, key: str, *, session: Session) -> None:
        if key.startswith(PREFIX):
            delete_value(ledger_of(session), _name(scope, session), key)
        super()._delete_asset_state_store(scope, key, session=session)

    # Async, as watchers may

    async def _aget_asset_state_store(
        self, scope: AssetScope, key: str, *, session: AsyncSession
    ) -> str | None:
        if not key.startswith(PREFIX):
            return await super()._aget_asset_state_store(scope, key, session=session)
        return await session.run_sync(
            lambda sync: self._get_asset_state_store(scope, key, session=sync)
        )

    async def _aset_asset_state_store(
        self, scope: AssetScope, key: str, value: str, *, session: AsyncSession, **writer: Any
    ) -> None:
        if not key.startswith(PREFIX):
            await super()._aset_asset_state_store(scope, key, value, session=session, **writer)
            return
        await session.run_sync(
            lambda sync: self._store_asset_state(scope, key, value, session=sync, **writer)
        )

    async def _adelete_asset_state_store(
        self, scope: AssetScope, key: str, *, session: AsyncSession
    ) -> None:
        await session.run_sync(
            lambda sync: self._delete_asset_state_store(scope, key, session=sync)
        )

    @staticmethod
    def _store(scope: AssetScope, key: str, value: str, session: Session) -> Envelope:
        try:
            return set_value(ledger_of(session), _name(scope, session), key, json.loads(value))
        except StoreConflict as exc:
            raise _answer(409, "conflict", str(exc)) from exc
        except ValueError as exc:
            raise _answer(422, "invalid", str(exc)) from exc


def _answer(status: int, reason: str, message: str) -> Exception:
    """Return an error answer of the API server. Commands use the backend without FastAPI."""
    from fastapi import HTTPException

    return HTTPException(status, {"reason": reason, "message": message})


def _name(scope: AssetScope, session: Session) -> str:
    name = session.scalar(select(AssetModel.name).where(AssetModel.id == scope.asset_id))
    if name is None:
        raise _answer(404, "not_found", f"{scope} is unknown")
    return str(name)
