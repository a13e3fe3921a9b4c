"""Command tree of ``airflow tubemq``, in Airflow's terms.

Airflow calls `get_tubemq_commands` at the start of every command, so this module imports only
Airflow's definitions; the code of a command is loaded when it runs.
"""

from __future__ import annotations

from typing import Any, Final

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command

_arg: Any = Arg  # its constructor has no types

_OUTPUT = _arg(
    ("-o", "--output"),
    help="table (default), plain (no colours, no notes), json, jsonl (a row per line) or yaml",
    choices=("table", "plain", "json", "jsonl", "yaml"),
    default="table",
)
_VERBOSE = _arg(("-v", "--verbose"), help="also show log lines", action="store_true")
_YES = _arg(("-y", "--yes"), help="change without asking", action="store_true")
_ASSET = _arg(
    ("asset",),
    help="the offsets asset: <cluster>/<topic>/<group>, as 'offsets list' shows it; a kind other "
    "than TubeMQ is put before it with a colon",
)
_SOURCE = _arg(
    ("--source",),
    help="kind of the topic: a built-in word or that of a plug-in, see 'tubemq plugins --kind "
    "source'",
)
_ONE_ASSET = _arg(("--asset",), help="only this offsets asset, as 'offsets list' shows it")
_CONN = _arg(
    ("--conn-id",), help="the connection (default: that of the kind, such as tubemq_default)"
)
_SINK = _arg(("--sink",), help="the sink as the operator's path: its markers say what is written")
_NEEDED_SINK = _arg(("--sink",), help="the sink as the operator's path", required=True)
_SINK_CONN = _arg(("--sink-conn-id",), help="the connection with the sink's credentials")
_KIND = _arg(
    ("--kind",),
    help="only plug-ins of this kind",
    choices=("source", "sink", "engine", "offset_store", "resolver", "decoder"),
)
_WINDOW = _arg(("window_id",), help="id of the window")
_OFFSETS = _arg(
    ("--offsets",),
    help='the next offset of each partition, as JSON: {"1:0": 2800, "1:1": 0}',
    required=True,
)
_NEW_EPOCH = _arg(
    ("name",), help="a name that the group has not used: letters, digits, '.', '_', '-'"
)
_BEGIN = _arg(
    ("--begin",),
    help="where it begins: earliest (default), stable, or offsets of every partition as JSON",
    default="earliest",
)
_SEEN = _arg(
    ("--seen",),
    help="id of the last window that the failed run read, from its error: refused if the group has "
    "advanced since",
)
_CLAIM = _arg(("--window",), help="only the claim on this window")
_DROP = _arg(
    ("--drop-claims",),
    help="drop claims of unpublished windows; only while no task of the group runs",
    action="store_true",
)
_BROKER = _arg(
    ("--broker",),
    help="id of a broker, or its name where it has one; may be repeated",
    action="append",
    required=True,
)
_INSTANT = _arg(("--instant",), help="the boundary's instant, RFC 3339", required=True)
_ENDED = _arg(
    ("--ended",),
    help="the runs that planned windows touching the instant, without publishing them, have ended",
    action="store_true",
)
_FILTER = _arg(
    ("--filter",), help="one of the operator's filters; may be repeated", action="append"
)
_EPOCH = _arg(("--epoch",), help="an epoch of the group (default: the current one)")
_MAX_RECORDS = _arg(("--max-records",), help="the operator's max_records", type=int)
_WATCH = _arg(("--watch",), help="repeat at this interval (seconds), until Ctrl-C", type=float)
_LOOKS = _arg(("--looks",), help="with --watch: stop after this many checks", type=int)
_ROUTES = _arg(("--routes",), help="the operator's routes: JSON, or a file of it", required=True)
_ROUTE = _arg(("--route",), help="only this route, by its value or pattern")
_START = _arg(("--start",), help="begin of the interval, RFC 3339")
_END = _arg(("--end",), help="end of the interval, exclusive, RFC 3339")


_GROUP: Final = "main/orders/nightly"
_DELTA: Final = "delta:/data/lake/orders"
_ID: Final = "c-1-0f3a"

EXAMPLES: Final = {
    "tubemq": ("tubemq check", f"tubemq lag {_GROUP}"),
    "offsets": ("tubemq offsets list", f"tubemq offsets show {_GROUP}"),
    "windows": ("tubemq windows list", f"tubemq windows coverage --sink {_DELTA}"),
    "offsets.list_groups": ("tubemq offsets list", "tubemq offsets list -o json"),
    "offsets.show": (f"tubemq offsets show {_GROUP}", f"tubemq offsets show {_GROUP} -o jsonl"),
    "previews.diff": (
        f"tubemq offsets diff {_GROUP}",
        f"tubemq offsets diff {_GROUP} --sink {_DELTA}",
    ),
    "offsets.set_position": (
        f"""tubemq offsets set {_GROUP} --offsets '{{"1:0": 2800, "1:1": 0}}'""",
    ),
    "epochs.begin": (
        f"tubemq offsets epoch {_GROUP} second",
        f"tubemq offsets epoch {_GROUP} second --begin stable --yes",
    ),
    "offsets.adopt": (
        f"tubemq offsets adopt {_GROUP}",
        f"tubemq offsets adopt {_GROUP} --window {_ID} --yes",
    ),
    "offsets.rebuild": (
        f"tubemq offsets rebuild {_GROUP} --sink {_DELTA}",
        f"tubemq offsets rebuild {_GROUP} --drop-claims --yes",
    ),
    "boundaries.retire": (f"tubemq offsets retire {_GROUP} --sink {_DELTA} --broker 2",),
    "boundaries.unfix": (
        f"tubemq offsets unfix {_GROUP} --sink {_DELTA} --instant 2026-11-26T22:00:00Z",
    ),
    "windows.list_windows": (
        f"tubemq windows list --asset {_GROUP}",
        f"tubemq windows list --sink {_DELTA} -o jsonl",
    ),
    "windows.show": (
        f"tubemq windows show {_ID} --asset {_GROUP}",
        f"tubemq windows show {_ID} --sink {_DELTA} -o json",
    ),
    "previews.plan": (
        f"tubemq windows plan {_GROUP}",
        f"tubemq windows plan {_GROUP} --max-records 100000",
    ),
    "windows.verify": (
        f"tubemq windows verify --sink {_DELTA}",
        f"tubemq windows verify --sink s3://lake/orders --sink-conn-id lake --asset {_GROUP}",
    ),
    "windows.show_coverage": (
        f"tubemq windows coverage --sink {_DELTA}",
        f"tubemq windows coverage --sink {_DELTA} --start 2026-11-01T00:00:00Z",
    ),
    "checks.lag": (
        f"tubemq lag {_GROUP} --watch 10",
        f"tubemq lag {_GROUP} --source kafka",
    ),
    "checks.check": (
        "tubemq check --conn-id tubemq_default",
        "tubemq check --source kafka --conn-id kafka_default",
        f"tubemq check --sink {_DELTA}",
    ),
    "tables.show_tables": (f"tubemq windows tables --sink {_DELTA}",),
    "tables.show_missed": (
        f"tubemq windows missed --sink {_DELTA} --routes routes.json",
        f"tubemq windows missed --sink {_DELTA} --routes routes.json --route orders",
    ),
    "plug_ins.show_plugins": (
        "tubemq plugins",
        "tubemq plugins --kind sink",
    ),
}
"""Examples by the function of a command, or the word of a group; every `--help` ends with them."""


def _examples(key: str) -> str:
    return "\n".join(["examples:", *(f"  airflow {line}" for line in EXAMPLES[key])])


def _action(name: str, text: str, function: str, *arguments: Arg) -> ActionCommand:
    return ActionCommand(
        name=name,
        help=text,
        func=lazy_load_command(f"tubemq_provider.cli.{function}"),
        args=(*arguments, *_of_kind(arguments), _OUTPUT, _VERBOSE),
        epilog=_examples(function),
    )


def _of_kind(arguments: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """Return ``--source`` for commands on a group or a connection."""
    return (_SOURCE,) if {_ASSET, _ONE_ASSET, _CONN} & {*arguments} else ()


def _group(name: str, text: str, *commands: ActionCommand | GroupCommand) -> GroupCommand:
    return GroupCommand(name=name, help=text, subcommands=commands, epilog=_examples(name))


_OFFSETS_COMMANDS = (
    _action("list", "Groups and their positions", "offsets.list_groups", _SOURCE),
    _action(
        "show",
        "Position, end and lag, claims and newest event of a group",
        "offsets.show",
        *(_ASSET, _CONN),
    ),
    _action(
        "diff",
        "Positions of a group in cursor, events, sink and brokers",
        "previews.diff",
        *(_ASSET, _SINK, _SINK_CONN, _CONN),
    ),
    _action("set", "Set the position by hand", "offsets.set_position", _ASSET, _OFFSETS, _YES),
    _action(
        "epoch",
        "Start a new epoch of a group whose topic was recreated",
        "epochs.begin",
        *(_ASSET, _NEW_EPOCH, _BEGIN, _SEEN, _YES),
    ),
    _action(
        "adopt",
        "Free claims, so that the next run takes them over (ledger)",
        "offsets.adopt",
        *(_ASSET, _CLAIM, _YES),
    ),
    _action(
        "rebuild",
        "Rebuild the position from events and the sink's markers",
        "offsets.rebuild",
        *(_ASSET, _SINK, _SINK_CONN, _DROP, _YES),
    ),
    _action(
        "retire",
        "Retire a broker that will not come back: windows of time no longer wait for it",
        "boundaries.retire",
        *(_ASSET, _NEEDED_SINK, _SINK_CONN, _BROKER, _FILTER, _EPOCH, _YES),
    ),
    _action(
        "unfix",
        "Remove the boundary of an instant that no published or planned window touches",
        "boundaries.unfix",
        *(_ASSET, _NEEDED_SINK, _SINK_CONN, _INSTANT, _ENDED, _FILTER, _EPOCH, _YES),
    ),
)

_WINDOW_COMMANDS = (
    _action(
        "list",
        "Windows, from events or a sink",
        "windows.list_windows",
        *(_ONE_ASSET, _SINK, _SINK_CONN),
    ),
    _action(
        "show",
        "All that is known of a window",
        "windows.show",
        *(_WINDOW, _ONE_ASSET, _SINK, _SINK_CONN),
    ),
    _action(
        "plan",
        "Show the next cursor window of a group; changes nothing",
        "previews.plan",
        *(_ASSET, _MAX_RECORDS, _CONN),
    ),
    _action(
        "verify",
        "Compare a sink's markers with the accepted windows",
        "windows.verify",
        *(_NEEDED_SINK, _SINK_CONN, _ONE_ASSET),
    ),
    _action(
        "coverage",
        "Intervals and offsets that a sink has, misses, or has twice",
        "windows.show_coverage",
        *(_NEEDED_SINK, _SINK_CONN, _START, _END),
    ),
    _action(
        "tables",
        "Tables of routed windows, with their rows and the windows that they failed to take",
        "tables.show_tables",
        *(_NEEDED_SINK, _SINK_CONN),
    ),
    _action(
        "missed",
        "Windows that were done before a route was there, and how to fill them",
        "tables.show_missed",
        *(_NEEDED_SINK, _SINK_CONN, _ROUTES, _ROUTE),
    ),
)


def get_tubemq_commands() -> list[GroupCommand]:
    """Return the commands of this provider."""
    return [
        _group(
            "tubemq",
            "Progress and windows of Apache InLong TubeMQ",
            _group("offsets", "Progress of groups", *_OFFSETS_COMMANDS),
            _group("windows", "Windows that were written", *_WINDOW_COMMANDS),
            _action("lag", "Lag of a group", "checks.lag", *(_ASSET, _CONN, _WATCH, _LOOKS)),
            _action(
                "check",
                "Try configuration, cluster and sink; --conn-id may be of any kind",
                "checks.check",
                *(_CONN, _SINK, _SINK_CONN),
            ),
            _action(
                "plugins",
                "Words of sources, sinks, engines, offset stores, resolvers and decoders",
                "plug_ins.show_plugins",
                _KIND,
            ),
        )
    ]
