"""Access rights of the page: those of Airflow, checked by the same auth manager.

A group is its offsets asset: a user without the right to read that asset does not see the group. Of
events and tasks a user sees those of Dags that the user may read, as in Airflow's own views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AssetDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, HTTPException

from tubemq_provider.offsets.metadata_db import Group, find_groups


@dataclass
class Reader:
    """User of one request."""

    user: Any

    @cached_property
    def dags(self) -> frozenset[str]:
        """Dags that the user may read."""
        return frozenset(get_auth_manager().get_authorized_dag_ids(user=self.user, method="GET"))

    def may_see(self, asset_id: int) -> bool:
        """Return True if the user may read the asset."""
        details = AssetDetails(id=str(asset_id))
        allowed = get_auth_manager().is_authorized_asset(
            method="GET", user=self.user, details=details
        )
        return bool(allowed)

    def may_see_tasks(self, dag_id: str) -> bool:
        """Return True if the user may read task instances of the Dag."""
        allowed = get_auth_manager().is_authorized_dag(
            method="GET",
            user=self.user,
            access_entity=DagAccessEntity.TASK_INSTANCE,
            details=DagDetails(id=dag_id),
        )
        return bool(allowed)

    def groups(self, session: Any, **how: Any) -> Iterator[Group]:
        """Yield the groups that the user may see; `how` are filters of `find_groups`."""
        for group in find_groups(session, readable=self.dags, **how):
            if self.may_see(group.asset_id):
                yield group

    def group(self, session: Any, asset_id: int) -> Group:
        """Return the group of an asset.

        Raises `HTTPException`: 403 without the right, whether or not the asset exists, 404 for an
        asset that belongs to no group.
        """
        if not self.may_see(asset_id):
            raise HTTPException(403, "Forbidden")
        group = next(find_groups(session, asset_id=asset_id, readable=self.dags), None)
        if group is None:
            raise HTTPException(404, "No group has this asset")
        return group


def _reader(user: Annotated[Any, Depends(get_user)]) -> Reader:
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(_reader)]
