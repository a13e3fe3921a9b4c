"""Documents in Airflow's asset and task state, which have only get, set and delete.

The accessors come from the task's context and are used by shape only, so this module imports
neither Airflow nor a store. A document that is too long for one value is stored in chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tubemq_provider.offsets.chunking import ChunksMissing, chunk_names, read_whole, split
from tubemq_provider.windows.errors import DocumentError

if TYPE_CHECKING:
    from tubemq_provider.windows.protocols import Document

__all__ = ["DocumentState", "FirstTryState", "StateAccessor", "TaskStatePlan"]

_TASK_PLAN = "plan"
_LOOKS = 20


class StateAccessor(Protocol):
    """Common interface of Airflow's asset and task state accessors."""

    def get(self, key: str, default: Any = None) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...

    def delete(self, key: str) -> None: ...


class DocumentState:
    """Documents over Airflow's get and set; long ones are stored in chunks (see `chunking`)."""

    def __init__(self, state: StateAccessor) -> None:
        self._state = state
        self._heads: dict[str, Any] = {}

    def load(self, key: str) -> Document | None:
        """Return the document, or None. Raises `DocumentError` for another value, and
        `ChunksMissing` if chunks of it are missing."""
        for _ in range(_LOOKS):
            head = self._heads[key] = _document(self._state.get(key), key)
            whole = head and read_whole(self._state.get, key, head)
            if whole is not None:
                return whole
            if head is None:
                return None
        raise ChunksMissing(f"offsets asset state key {key!r}")

    def store(self, key: str, document: Document) -> None:
        """Replace the document, in one write of its head. Raises `TypeError` for values that
        Airflow would alter silently, such as a nested NaN, which becomes null."""
        head, chunks = split(document)
        for name, chunk in chunks.items():
            self._state.set(f"{key}~{name}", chunk)
        self._state.set(key, head)
        old = set(chunk_names(self._heads.get(key))) - set(chunks)
        for name in sorted(old):
            self._state.delete(f"{key}~{name}")
        self._heads[key] = head

    def delete(self, key: str) -> None:
        """Remove the document, if there is one."""
        names = chunk_names(self._state.get(key))
        for name in ["", *(f"~{name}" for name in names)]:
            self._state.delete(key + name)
        self._heads.pop(key, None)


class FirstTryState:
    """State of a task run in its first try, which holds nothing but what this try has set: other
    keys are answered without a request."""

    def __init__(self, state: StateAccessor) -> None:
        self._state = state
        self._set: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value that this try has set, or the default."""
        return self._state.get(key, default) if key in self._set else default

    def set(self, key: str, value: Any) -> None:
        """Set the value."""
        self._set.add(key)
        self._state.set(key, value)

    def delete(self, key: str) -> None:
        """Remove the value."""
        self._state.delete(key)


class TaskStatePlan:
    """Plan of a task run for its tries: key ``plan`` of its task state."""

    def __init__(self, task_state: StateAccessor) -> None:
        self._documents = DocumentState(task_state)

    def load(self) -> Document | None:
        """Return the plan that an earlier try stored, or None."""
        return self._documents.load(_TASK_PLAN)

    def store(self, document: Document) -> None:
        """Replace the plan."""
        self._documents.store(_TASK_PLAN, document)


def _document(value: Any, key: str) -> Document | None:
    if value is None or isinstance(value, dict):
        return value
    problem = f"holds {type(value).__name__}, not a document: it was edited by hand"
    remedy = "delete the key; progress is rebuilt from commit events and the sink"
    raise DocumentError(f"offsets asset state key {key!r}", [problem, remedy])
