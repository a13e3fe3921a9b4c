"""Who may see what: the rights that Airflow itself asks for, asked of the same auth manager.

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

__all__ = ["Reader", "ReaderDep"]


@dataclass
class Reader:
    """The user of one request."""

    user: Any

    @cached_property
    def dags(self) -> frozenset[str]:
        """Dags that the user may read."""
        return frozenset(get_auth_manager().get_authorized_dag_ids(user=self.user, method="GET"))

    def may_see(self, asset_id: int) -> bool:
        """Whether the user may read the asset."""
        details = AssetDetails(id=str(asset_id))
        found = get_auth_manager().is_authorized_asset(
            method="GET", user=self.user, details=details
        )
        return bool(found)

    def may_see_tasks(self, dag_id: str) -> bool:
        """Whether the user may read task instances of the Dag."""
        found = get_auth_manager().is_authorized_dag(
            method="GET",
            user=self.user,
            access_entity=DagAccessEntity.TASK_INSTANCE,
            details=DagDetails(id=dag_id),
        )
        return bool(found)

    def groups(self, session: Any, **how: Any) -> Iterator[Group]:
        """The groups that the user may see, of those that `find_groups` finds."""
        for group in find_groups(session, readable=self.dags, **how):
            if self.may_see(group.asset_id):
                yield group

    def group(self, session: Any, asset_id: int) -> Group:
        """The group of an asset. Raises `HTTPException`: 403 without the right, whether or not
        there is such an asset, 404 for one that is no group's."""
        if not self.may_see(asset_id):
            raise HTTPException(403, "Forbidden")
        found = next(find_groups(session, asset_id=asset_id, readable=self.dags), None)
        if found is None:
            raise HTTPException(404, "No group has this asset")
        return found


def _reader(user: Annotated[Any, Depends(get_user)]) -> Reader:
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(_reader)]
