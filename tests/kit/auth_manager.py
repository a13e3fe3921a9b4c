"""Airflow's simple auth manager, with users who may not read everything.

Loaded by a disposable API server by its dotted path. One user may not read assets and Dags with
``secret`` in their name, another one no assets; the rest is Airflow's own.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.models.asset import AssetModel
from airflow.utils.session import create_session

__all__ = ["LimitingAuthManager"]


class LimitingAuthManager(SimpleAuthManager):
    """Closed login; see above."""

    def is_authorized_asset(self, *, method: Any, user: Any, details: Any = None) -> bool:
        """Return True if the user may, also by the asset's name."""
        if user.username == "nobody":
            return False
        if user.username == "limited" and details is not None and details.id is not None:
            with create_session(scoped=False) as session:
                asset = session.get(AssetModel, int(details.id))
                if asset is not None and "secret" in asset.name:
                    return False
        return super().is_authorized_asset(method=method, user=user, details=details)

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None
    ) -> bool:
        """Return True if the user may, also by the Dag's id."""
        hidden = details is not None and details.id is not None and "secret" in details.id
        if user.username == "limited" and hidden:
            return False
        return super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )
