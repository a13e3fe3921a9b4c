"""Errors of database drivers, as `DatabaseError` without statements and values.

SQLAlchemy shows a statement with its parameters, PostgreSQL the failing row, MySQL the duplicate
value, and all of them the user's name: records of producers and logins, in task logs that many
people read. What is shown instead is where, which kind of error, the database's own code, and
names of columns and constraints; its words only where they cannot repeat a value. The driver's
error is not chained, as loggers print chains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from tubemq_client.errors import TubeMQError
from tubemq_provider.windows.errors import DatabaseError

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["plain_errors"]

P = ParamSpec("P")
T = TypeVar("T")


class _Speaker(Protocol):
    """A sink in a database: where it is, and the login that must not be shown."""

    @property
    def address(self) -> str: ...

    @property
    def login(self) -> tuple[str, ...]: ...


S = TypeVar("S", bound=_Speaker)

_QUIET_CLASSES: Final = frozenset(
    ("08", "25", "28", "3D", "40", "42", "53", "54", "55", "57", "58")
)
"""Classes of SQLSTATE about connections, transactions, permissions, names, limits and locks. Data
exceptions (22), constraints (23) and what triggers raise (P0) quote values."""

_LOCK_NOT_AVAILABLE: Final = "55P03"
_WAITED: Final = (
    "; another transaction holds the window's row, perhaps that of a worker that died: a retry "
    "waits again; end its session (pg_stat_activity, pg_terminate_backend), or wait longer with "
    "lock_timeout in the address (options=-c%20lock_timeout%3D10min)"
)
_NAMES: Final = ("schema_name", "table_name", "column_name", "constraint_name", "datatype_name")


def plain_errors(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """Wrap a method of a sink so that errors of SQLAlchemy and drivers become `DatabaseError`."""

    @wraps(method)
    def plain(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return method(self, *args, **options)
        except SQLAlchemyError as exc:
            failure: TubeMQError = DatabaseError(_message_of(exc, self.address, self.login))
        except TubeMQError as exc:
            failure = exc
            if isinstance(failure.__context__, SQLAlchemyError):
                failure.__context__ = None
        # Outside of `except`, so that not even the context leads to what was caught.
        raise failure

    return plain


def _message_of(error: sa.exc.SQLAlchemyError, address: str, login: tuple[str, ...]) -> str:
    from sqlalchemy.exc import DBAPIError, StatementError

    if not isinstance(error, StatementError):
        return f"{address}: {type(error).__name__}: {_redacted(str(error), login)}"
    driver_error: Any = error.orig
    kind = type(driver_error).__name__ if driver_error is not None else type(error).__name__
    details = _details(driver_error, login) if isinstance(error, DBAPIError) else []
    shown = "".join(f"; {detail}" for detail in details if detail)
    way_out = _WAITED if _state(driver_error) == _LOCK_NOT_AVAILABLE else ""
    return f"{address}: {kind}{shown} (values of records are left out){way_out}"


def _details(driver_error: Any, login: tuple[str, ...]) -> list[str]:
    state = _state(driver_error)
    if state is not None:
        return [f"SQLSTATE {state}", *_names(driver_error), *_words(driver_error, state, login)]
    if hasattr(driver_error, "sqlite_errorname"):  # its messages name columns, never values
        return [str(driver_error.sqlite_errorname), _redacted(str(driver_error), login)]
    if _without_connection(driver_error):
        return [_redacted(str(driver_error), login)]
    first = driver_error.args[0] if getattr(driver_error, "args", ()) else None
    return [f"error {first}"] if isinstance(first, int) else []


def _state(driver_error: Any) -> str | None:
    state = getattr(driver_error, "sqlstate", None) or getattr(driver_error, "pgcode", None)
    return None if state is None else str(state)


def _without_connection(driver_error: object) -> bool:
    """Return True for an error of PostgreSQL's drivers about the connection, before any record was
    sent."""
    of_driver = type(driver_error).__module__.partition(".")[0] in ("psycopg2", "psycopg")
    return of_driver and type(driver_error).__name__ in ("OperationalError", "InterfaceError")


def _names(driver_error: Any) -> list[str]:
    diagnosis = getattr(driver_error, "diag", None)
    names = {name: getattr(diagnosis, name, None) for name in _NAMES}
    return [f"{name.removesuffix('_name')} {value}" for name, value in names.items() if value]


def _words(driver_error: Any, state: str, login: tuple[str, ...]) -> list[str]:
    if state[:2] not in _QUIET_CLASSES:
        return []
    words = getattr(getattr(driver_error, "diag", None), "message_primary", None)
    return [_redacted(words, login)] if words else []


def _redacted(text: str, login: tuple[str, ...]) -> str:
    """One line, with neither user name nor password."""
    for secret in sorted(filter(None, login), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    text = re.sub(r"\b(user|role) \"[^\"]*\"", r'\1 "***"', text)
    return " ".join(text.split())
