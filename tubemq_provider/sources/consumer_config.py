"""Options of a task's `consumer_config`: judged by the client's own model, applied to the settings.

A kind of source that takes them has `CONSUMER`, a `ConsumerOptions`, in its module `source`. What
the connection or another argument says is refused here, with the place to say it. This module must
not name a kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tubemq_client.config import CommonOptions
from tubemq_client.errors import ConfigError
from tubemq_provider.windows.spaces import source_module

__all__ = ["ConsumerOptions", "consumer_options_of", "consumer_problems"]

_SUBJECT: Final = "consumer_config"
_MEMBER: Final = "member"
"""Field of the settings of members of a group."""
_SECRET: Final = re.compile(
    r"passw|secret|token|credential|user_?name|access_?key|^tls_|^sasl", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a client that a task may choose: those of `model`, the client's own.

    `identity` are options that it needs besides, for a judgement without a connection; `elsewhere`
    names those that are refused, with where they are said. `settings_of` returns the plain settings
    of a model.
    """

    model: type[CommonOptions]
    identity: Mapping[str, Any]
    elsewhere: Mapping[str, str]
    settings_of: Callable[[Any], Any]

    @property
    def names(self) -> frozenset[str]:
        """Names of the options."""
        return frozenset(self.model.model_fields.keys() - self.elsewhere.keys())

    def problems(self, options: Mapping[str, Any]) -> list[str]:
        """Return all problems, without the value of a secret."""
        try:
            self._model({}, options)
        except ConfigError as exc:
            return exc.problems
        return []

    def applied(self, settings: Any, options: Mapping[str, Any]) -> Any:
        """Return a client's `settings` with `options` in their place.

        Raises `ConfigError` with every problem.
        """
        if not options:
            return settings
        made = self.settings_of(self._model(_values(settings), options))
        new = {f.name for f in fields(made)} - {f.name for f in fields(settings)}
        changed = {*options, *new, _MEMBER}
        return type(made)(
            **{
                f.name: getattr(made if f.name in changed else settings, f.name)
                for f in fields(made)
            }
        )

    def _model(self, base: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        refused = {name: why for name in options if (why := self._refusal(name))}
        chosen = {name: value for name, value in options.items() if name not in refused}
        problems = [f"{name}: {why}" for name, why in refused.items()]
        try:
            model = self.model.parse({**base, **self.identity, **chosen})
        except ConfigError as exc:
            raise ConfigError([*problems, *exc.problems], subject=_SUBJECT) from None
        if problems:
            raise ConfigError(problems, subject=_SUBJECT)
        return model

    def _refusal(self, name: str) -> str | None:
        if name in self.elsewhere:
            return self.elsewhere[name]
        if _SECRET.search(name):
            return "belongs into the connection, as a Dag is shown to others"
        return None


def _values(settings: Any) -> dict[str, Any]:
    """Return numbers and words of settings, as options; neither addresses nor secrets."""
    member = getattr(settings, _MEMBER, None)
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    values |= {} if member is None else {f.name: getattr(member, f.name) for f in fields(member)}
    return {name: value for name, value in values.items() if isinstance(value, int | str)}


def consumer_options_of(kind: str) -> ConsumerOptions:
    """Return the options of a kind. Raises `ConfigError` for one that takes none."""
    options: ConsumerOptions | None = getattr(source_module(kind), "CONSUMER", None)
    if options is None:
        raise ConfigError(
            f"it is not available for {kind}, which has all options in its connection",
            subject=_SUBJECT,
        )
    return options


def consumer_problems(kind: str, options: Mapping[str, Any]) -> list[str]:
    """Return the problems of a task's `consumer_config` for a kind of source."""
    try:
        return consumer_options_of(kind).problems(options) if options else []
    except ConfigError as exc:
        return exc.problems
