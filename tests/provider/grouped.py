"""Arguments of the ingest operators from the plain names of `IngestArguments`.

Tests that vary one argument after the other name it as errors, plans and Dagster do; the operators
accept policies, settings of Spark and options of resolvers as value objects.
"""

from __future__ import annotations

from typing import Any

from tubemq_provider.ingest.values import VALUES, IngestPolicies, Value


def grouped(**arguments: Any) -> dict[str, Any]:
    """Return `arguments` with those that are members of a value object in one."""
    policies = _taken(IngestPolicies, arguments)
    if policies:
        arguments["policies"] = IngestPolicies(**policies)
    for holder in ("engine", "resolver"):
        word = arguments.get(holder, "session" if holder == "engine" else None)
        for kind in VALUES[holder]:
            if kind.fixed[holder] == word and (members := _taken(kind, arguments)):
                arguments[holder] = kind(**members)
    return arguments


def _taken(kind: type[Value], arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the members of `kind` from `arguments`, and return them."""
    names = {name: kind.names.get(name, name) for name in kind().template_fields}
    return {member: arguments.pop(name) for member, name in names.items() if name in arguments}
