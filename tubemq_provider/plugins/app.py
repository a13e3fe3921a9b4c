"""Application of the page: HTML, script and style sheet, and JSON routes.

Every route authenticates the user, and every group is checked against the user's rights; nothing is
written, and no route waits for a broker. Routes are plain functions, which the API server runs in
threads. Answers are bounded: groups, windows and partitions come in pages or up to a documented
number.
"""

from __future__ import annotations

from importlib.resources import files
from itertools import islice
from typing import Annotated, Any, Final

from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from fastapi import Depends, FastAPI, Path, Query, Response

from tubemq_client import errors
from tubemq_provider.offsets.commit_events import RECENT
from tubemq_provider.offsets.metadata_db import Group, RunningTask, reading
from tubemq_provider.overview.accepted_windows import window_rows
from tubemq_provider.overview.event_coverage import covered
from tubemq_provider.overview.group_progress import GroupProgress, group_position
from tubemq_provider.overview.routed_tables import table_rows
from tubemq_provider.plugins.access import Reader, ReaderDep
from tubemq_provider.plugins.clusters import ends_of
from tubemq_provider.plugins.lag import Answer, LagRequests
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.lag import lag_between, regressed, with_ends
from tubemq_provider.windows.spaces import space_of

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""Headers of every answer: only the page's script runs, and only Airflow may frame it."""

_GROUPS: Final = 50
_WINDOWS: Final = 50
_PARTITIONS: Final = 500
_CLAIMS: Final = 50
_MOST_SKIPPED: Final = 10_000

AssetId = Annotated[int, Path(ge=0, lt=2**31)]
"""Range of asset ids in databases."""
_NO_NUL: Final = r"^[^\x00]*$"
"""PostgreSQL text cannot contain NUL."""

_STATIC: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
}


def build(lags: LagRequests | None = None) -> Any:
    """Return the application, to be mounted in Airflow's API server."""
    app = FastAPI(
        title="TubeMQ windows",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(get_user)],
    )
    for path, (file, kind) in _STATIC.items():
        app.get(f"/{path}")(_file(file, kind))
    app.get("/api/groups")(_list)
    app.get("/api/groups/{asset_id}")(_show)
    app.get("/api/groups/{asset_id}/windows")(_windows)
    app.get("/api/groups/{asset_id}/coverage")(_coverage)
    app.get("/api/groups/{asset_id}/tables")(_tables)
    app.get("/api/groups/{asset_id}/running")(_running)
    app.get("/api/groups/{asset_id}/lag")(_lag(lags or LagRequests()))
    return _with_headers(app)


def _with_headers(app: Any) -> Any:
    """Return `app` with `HEADERS` on all answers, errors included."""
    encoded = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                others = [
                    pair for pair in message.get("headers", ()) if pair[0] not in dict(encoded)
                ]
                message = {**message, "headers": [*others, *encoded]}
            await send(message)

        await app(scope, receive, send_with)

    return answering


def _file(name: str, kind: str) -> Any:
    content = files("tubemq_provider.plugins").joinpath("static", name).read_bytes()

    def answer() -> Response:
        return Response(content, media_type=kind)

    return answer


# Groups -------------------------------------------------------------------------------------------


def _list(
    reader: ReaderDep,
    after: Annotated[str, Query(max_length=1_500, pattern=_NO_NUL)] = "",
    q: Annotated[str, Query(max_length=200, pattern=_NO_NUL)] = "",
    dag_id: Annotated[str | None, Query(max_length=250)] = None,
) -> dict[str, Any]:
    """Return a page of groups by name.

    With `dag_id`, those that tasks of the Dag write, if the user may read it.
    """
    if dag_id is not None and dag_id not in reader.dags:
        return {"groups": [], "next": None}
    with reading() as session:
        groups = reader.groups(session, after=after, containing=q, dag_id=dag_id)
        page = list(islice(groups, _GROUPS + 1))
        rows = [_row(reader, group) for group in page[:_GROUPS]]
    return {"groups": rows, "next": page[_GROUPS - 1].name if len(page) > _GROUPS else None}


def _row(reader: Reader, group: Group) -> dict[str, Any]:
    cluster, topic, name = group.parts
    facts = {"id": group.asset_id, "source": group.source, "cluster": cluster, "topic": topic}
    facts |= {"group": name}
    try:
        now = group_position(group, most=RECENT)
        return {**now.row(), **facts, **_by(reader, now)}
    except errors.TubeMQError as exc:
        # Edited by hand, or of a newer release: still show the other groups.
        return {**facts, "trouble": str(exc)}


def _by(reader: Reader, now: GroupProgress) -> dict[str, Any]:
    """Return the task that wrote the cursor, unless it is of a Dag that the user may not read."""
    by = str((now.cursor or {}).get("by", ""))
    dag_id, bar, _ = by.partition("|")
    return {"by": by if not bar or dag_id in reader.dags else ""}


def _show(reader: ReaderDep, asset_id: AssetId) -> dict[str, Any]:
    """Return one group: its row, the stored position of each partition, and claimed windows."""
    with reading() as session:
        group = reader.group(session, asset_id)
        row = _row(reader, group)
        if "trouble" in row:
            return row
        now = group_position(group, most=RECENT)
    following = space_of(group.source).by_key(now.next)
    claims = [
        {"window": key, "since": claim.get("at", ""), "taken": bool(claim.get("by"))}
        for key, claim in islice(now.claims.items(), _CLAIMS)
    ]
    positions = [{"partition": k, "next": n} for k, n in islice(following.items(), _PARTITIONS)]
    return {**row, "positions": positions, "claimed": claims}


def _windows(
    reader: ReaderDep,
    asset_id: AssetId,
    skip: Annotated[int, Query(ge=0, le=_MOST_SKIPPED)] = 0,
) -> dict[str, Any]:
    """Return a page of windows, the newest first, up to the first ten thousand."""
    with reading() as session:
        page = window_rows(reader.group(session, asset_id), skip=skip, most=_WINDOWS)
    return page if (page["next"] or 0) <= _MOST_SKIPPED else {**page, "next": None}


def _coverage(reader: ReaderDep, asset_id: AssetId) -> dict[str, Any]:
    """Return holes, gaps and replays among the newest windows."""
    with reading() as session:
        return covered(reader.group(session, asset_id))


def _tables(reader: ReaderDep, asset_id: AssetId) -> dict[str, Any]:
    """Return the tables of routed windows among the newest ones, failed tables first."""
    with reading() as session:
        return table_rows(reader.group(session, asset_id))


def _running(reader: ReaderDep, asset_id: AssetId) -> dict[str, Any]:
    """Return the group's tasks that run or wait, with their progress, and those that failed."""
    with reading() as session:
        group = reader.group(session, asset_id)
        tasks, failed = group.tasks(), group.failed_tasks()
    dag_ids = {task.dag_id for task in (*tasks, *failed)}
    allowed = {dag_id for dag_id in dag_ids if reader.may_see_tasks(dag_id)}
    return {
        "tasks": [_task(task) for task in tasks if task.dag_id in allowed],
        "failed": [_task(task) for task in failed if task.dag_id in allowed],
    }


def _task(task: RunningTask) -> dict[str, Any]:
    return {**task._asdict(), "since": rfc3339(task.since) if task.since else None}


_NO_POSITION = (
    "No cursor of this group has a position, so it has no lag. Windows of time: see the coverage."
)

# Lag ----------------------------------------------------------------------------------------------


def _lag(lags: LagRequests) -> Any:
    def answer(reader: ReaderDep, asset_id: AssetId) -> dict[str, Any]:
        """Return the cached lag by partition, and start a query if it is old."""
        with reading() as session:
            group = reader.group(session, asset_id)
            try:
                position = group_position(group, most=RECENT).next
            except errors.TubeMQError as exc:
                return {"state": "unreachable", "note": str(exc), "partitions": []}
        if not position:
            return {"state": "none", "note": _NO_POSITION, "partitions": []}
        if not conf.getboolean("tubemq", "page_lag", fallback=True):
            return {"state": "off", "note": "[tubemq] page_lag is off.", "partitions": []}
        cluster, topic, _ = group.parts
        answer_ = lags.look(
            (group.source, cluster, topic),
            (group.source, cluster),
            lambda: ends_of(group.source, cluster, topic),
        )
        return _lag_rows(answer_, position, group.source)

    return answer


def _lag_rows(answer: Answer, position: dict[str, int], source: str) -> dict[str, Any]:
    """Return rows of the partitions, those with the largest lag first."""
    space = space_of(source)
    if answer.state != "known":
        return {"state": answer.state, "note": answer.note, "partitions": []}
    rows = with_ends(position, answer.ends, space)
    rows.sort(key=lambda row: -lag if isinstance(lag := row.get("lag"), int) else 1)
    starts = {partition: position.get(partition.key) for partition in answer.ends}
    return {
        "state": "known",
        "note": "",
        "total": lag_between(answer.ends, starts, space).total,
        "away": sum(row.get("lag") == "unknown" for row in rows),
        "shorter": len(regressed(answer.ends, starts)),
        "partitions": rows[:_PARTITIONS],
    }
