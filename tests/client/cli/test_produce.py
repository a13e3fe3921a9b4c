"""`tubemq produce`: what arrives, in what form, and what is refused before anything is sent."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from tests.client.cli.conftest import Run
from tests.client.cli.rows import TOPIC, Outcome
from tubemq_client import ClientSettings, Message, Metadata, OffsetRange, RangeReader
from tubemq_client.cli.rows import RowSource


def everything(settings: ClientSettings, topic: str) -> list[Message]:
    """Every record of a topic up to the end in memory."""
    with Metadata(settings) as metadata:
        ends = metadata.ends(topic, "all", stable=False)
    with RangeReader(settings, group="all") as reader:
        ranges = [OffsetRange(p, end.min_offset, end.max_offset) for p, end in ends.items()]
        return [m for r in ranges for batch in reader.read(r) for m in batch.messages()]


def values(settings: ClientSettings, topic: str) -> list[dict[str, object]]:
    found = [json.loads(message.body) for message in everything(settings, topic)]
    return sorted(found, key=lambda row: int(str(row["flight"])))


def rows_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def refused(outcome: Outcome, *words: str) -> None:
    """Exit code 2 and one line with the reason."""
    assert outcome.code == 2, outcome
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


def test_every_row_arrives_once_with_stream_id_and_minute(
    run: Run, file: Path, fresh: str, settings: ClientSettings
) -> None:
    options = ("--file", file, "--stream-field", "carrier", "--time-field", "at")
    assert run("produce", fresh, *options).code == 0
    assert values(settings, fresh) == rows_of(file)
    for message in everything(settings, fresh):
        row = json.loads(message.body)
        assert message.stream_id == row["carrier"]
        assert message.msg_time == row["at"].translate(str.maketrans("", "", "-T:"))[:12]


def test_rows_are_spread_over_all_partitions(
    run: Run, file: Path, fresh: str, settings: ClientSettings
) -> None:
    run("produce", fresh, "--file", file)
    with Metadata(settings) as metadata:
        ends = metadata.ends(fresh, "all", stable=False)
    assert sorted({p.key for p in ends}) == [
        f"{b}:{n}" for b in (1, 2) for n in (0, 1, 10000, 10001)
    ]
    assert {end.max_offset for end in ends.values()} <= {44 * 28, 45 * 28, 46 * 28}


def test_a_csv_in_a_zip_gives_the_same_records_as_json_lines(
    run: Run, file: Path, fresh: str, settings: ClientSettings, tmp_path: Path
) -> None:
    rows = rows_of(file)
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]))
    table.writeheader()
    table.writerows(rows)
    packed = tmp_path / "rows.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data/rows.csv", text.getvalue())
        archive.writestr("__MACOSX/rows.csv", "junk")
    assert run("produce", fresh, "--file", packed).code == 0
    assert values(settings, fresh) == [{**row, "flight": str(row["flight"])} for row in rows]


def test_standard_input_takes_json_lines_and_json_output_names_the_ends(
    run: Run, fresh: str, settings: ClientSettings
) -> None:
    text = "".join(json.dumps({"flight": n}) + "\n\n" for n in range(16))
    outcome = run("produce", fresh, "-o", "jsonl", text=text)
    assert outcome.rows() == [
        {
            "topic": fresh,
            "records": 16,
            "until_offsets": {f"{b}:{n}": 112 for b in (1, 2) for n in (0, 1, 10000, 10001)},
        }
    ]
    assert len(values(settings, fresh)) == 16


def test_standard_input_is_utf_8_whatever_the_locale_says(monkeypatch: pytest.MonkeyPatch) -> None:
    body = '{"city": "Köln 東京"}'
    given = io.BytesIO(f"\ufeff{body}\n{body}\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given, "latin-1"))
    assert [row.record.body for row in RowSource(None).rows()] == [body.encode()] * 2


def test_a_selection_takes_from_inclusive_to_exclusive_and_a_limit(
    run: Run, file: Path, fresh: str, settings: ClientSettings
) -> None:
    days = ("--from", "2013-01-02", "--to", "2013-01-03T00:00:00+00:00")
    run("produce", fresh, "--file", file, "--time-field", "at", *days)
    assert [row["flight"] for row in values(settings, fresh)] == list(range(60, 120))
    run(
        "produce", fresh, "--file", file, "--time-field", "at", "--from", "2013-01-03", "--limit", 5
    )
    assert [row["flight"] for row in values(settings, fresh)] == list(range(60, 125))


def test_rows_out_of_order_are_refused_before_anything_is_sent(
    run: Run, file: Path, fresh: str, settings: ClientSettings
) -> None:
    rows = rows_of(file)
    rows[100], rows[101] = rows[101], rows[100]
    file.write_text("\n".join(map(json.dumps, rows)))
    refused(run("produce", fresh, "--file", file, "--time-field", "at"), "row 102", "sort the rows")
    assert values(settings, fresh) == []


def test_a_bad_row_on_standard_input_says_how_many_went_before_it(
    run: Run, fresh: str, settings: ClientSettings
) -> None:
    text = "".join(json.dumps({"flight": n}) + "\n" for n in range(150)) + "no json\n"
    outcome = run("produce", fresh, text=text)
    refused(outcome, "row 151", "150 records stored")
    assert len(values(settings, fresh)) == 150


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ('{"a": 1}', ("--stream-field", "b"), ("row 1", "no field 'b'", "fields are a")),
        ('{"a": ""}', ("--stream-field", "a"), ("empty field 'a'",)),
        ('{"a": "soon"}', ("--time-field", "a"), ("row 1", "'soon' is not an ISO 8601 time")),
        ("[1]", (), ("row 1 is not a JSON object",)),
    ],
)
def test_rows_that_cannot_be_sent_are_named(
    run: Run, content: str, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(run("produce", TOPIC, *options, text=content + "\n"), *words)


def test_a_ragged_csv_and_a_broken_zip_are_named(run: Run, tmp_path: Path) -> None:
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("a,b\n1,2\n3,4,5\n")
    refused(run("produce", TOPIC, "--file", ragged), "row 2 has not as many fields as the header")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK nothing")
    refused(run("produce", TOPIC, "--file", broken), "broken.zip", "not a zip file")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2013-01-01"), ("--time-field",)),
        (("--boundaries", "b.json"), ("--time-field",)),
        (("--time-field", "at", "--from", "soon"), ("--from: 'soon'",)),
        (("--time-field", "at", "--from", "soon", "--to", "x"), ("--from: 'soon'", "--to: 'x'")),
        (("--time-field", "at", "--from", "2013-01-02", "--to", "2013-01-01"), ("is after",)),
        (("--in-flight", "0"), ("--in-flight: 0",)),
        (("--large-records", "drop"), ("--large-records", "'refuse' or 'send'")),
        (("--masters", ""), ("--masters: '': it is empty",)),
        (("--masters", "a:b", "--rpc-timeout-ms", "1"), ("--masters", "--rpc-timeout-ms: 1:")),
        (("--file", "/nowhere/rows.csv"), ("does not exist",)),
        (("--limit", "0"), ("--limit",)),
        (("--frobnicate",), ("No such option",)),
        (("--time-field", "at", "--boundaries", "b.json", "--boundary-every", "1w"), ("'1w'",)),
    ],
)
def test_wrong_options_end_with_two(
    run: Run, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(run("produce", TOPIC, *options, text=""), *words)


def test_a_rate_is_kept_to(run: Run, fresh: str, settings: ClientSettings) -> None:
    """Slower than the time for a request: replies that wait to be fetched are no timeouts."""
    text = "".join(json.dumps({"flight": n}) + "\n" for n in range(4))
    outcome = run("produce", fresh, "--rate", "2.5", "--rpc-timeout-ms", "1000", text=text)
    assert outcome.code == 0, outcome
    assert len(values(settings, fresh)) == 4


def test_lines_of_json_are_sent_as_they_stand(
    run: Run, fresh: str, settings: ClientSettings
) -> None:
    line = '{"amount": 12345678901234567.89, "big": 1e999, "text": "\\ud800"}'
    assert run("produce", fresh, text=line + "\n").code == 0
    assert [message.body.decode() for message in everything(settings, fresh)] == [line]
    refused(run("produce", fresh, text='{"a": NaN}\n'), "row 1: NaN is no JSON")


def test_times_beyond_the_calendar_and_broken_archives_are_refused_in_one_line(
    run: Run, tmp_path: Path
) -> None:
    far = "9999-12-31T23:59:59-05:00"
    options = ("produce", TOPIC, "--time-field", "at")
    refused(run(*options, text=f'{{"at": "{far}"}}\n'), "row 1", "years 1 to 9999")
    refused(run(*options, "--to", far, text=""), "years 1 to 9999")
    text = b"n\n" + b"".join(b"%d\n" % n for n in range(5000))
    archive = tmp_path / "rows.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("rows.csv", text)
    sound = archive.read_bytes()
    archive.write_bytes(sound[:60] + b"\xff" * 30 + sound[90:])
    refused(run("produce", TOPIC, "--file", archive), "rows.zip")
    locked = bytearray(sound)
    locked[6] |= 1
    locked[sound.rfind(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(locked)
    refused(run("produce", TOPIC, "--file", archive), "rows.zip", "encrypted")


def test_a_boundaries_file_that_cannot_be_written_is_refused_before_a_row_is_sent(
    run: Run, file: Path, fresh: str, settings: ClientSettings, tmp_path: Path
) -> None:
    nowhere = tmp_path / "no" / "b.json"
    options = ("--file", file, "--time-field", "at", "--boundaries", nowhere)
    refused(run("produce", fresh, *options), "--boundaries", "No such file or directory")
    assert everything(settings, fresh) == []


def test_standard_input_is_utf_8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"town": "Zürich"}'
    given = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + line.encode() + b"\n"), "latin-1")
    monkeypatch.setattr(sys, "stdin", given)
    assert [row.record.body.decode() for row in RowSource(None).rows()] == [line]
    assert not given.closed


@pytest.mark.parametrize("option", ["--from", "--to", "--stream-field"])
def test_an_empty_option_is_refused(
    option: str, run: Run, file: Path, fresh: str, settings: ClientSettings
) -> None:
    """An unset variable of a script gives an empty time: all rows were sent."""
    refused(run("produce", fresh, "--file", file, "--time-field", "at", option, ""), "''")
    assert everything(settings, fresh) == []


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", b"id,id\n1,2\n", ("the header names 'id' twice",)),
        ("a.csv", b"id,name,\n1,2,\n", ("column 3 of the header has no name",)),
        ("a.csv", b'id,name\n1,a\n2,"b\n3,c\n4,d\n', ("row 2 (up to line 5)", "not closed")),
        ("a.csv", b'"id,name\n1,a\n', ("the header", "not closed")),
        ("a.csv", b'id,name\n1,"a"b\n', ("row 1", "expected after")),
        ("a.csv", b"id;name\n1;a\n", ("the header has one column, 'id;name'", "by ','")),
        ("a.csv", b"id\tname\n1\ta\n", ("one column", ".tsv")),
        ("a.tsv", b"id,name\n1,a\n", ("one column", "commas .csv")),
        ("a.csv", b"id,name\n1\n", ("row 1 has not as many fields", "1, not 2")),
        ("a.txt", b"id,name\n1,a\n", ("row 1: Expecting value", ".csv or .tsv are read as such")),
        ("a.csv", b"\xff\xfei\0d\0", ("a.csv: is UTF-16 text",)),
        ("a.zst", b"\x28\xb5\x2f\xfd\0\0\0\0", ("a.zst: is a zstandard archive",)),
        ("a.parquet", b"PAR1\x15\x04", ("is a Parquet file, which is not read",)),
        ("a.csv.gz", b"id,name\n1,a\n", ("a.csv.gz: Not a gzipped file",)),
        ("a.csv.gz", gzip.compress(b"id,name\n1,a\n", mtime=0)[:-9], ("a.csv.gz: ",)),
    ],
)
def test_a_file_whose_rows_would_change_is_refused_before_a_row_is_sent(
    run: Run, fresh: str, settings: ClientSettings, tmp_path: Path, name: str, data: bytes,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    file = tmp_path / name
    file.write_bytes(data)
    refused(run("produce", fresh, "--file", file), *words)
    assert everything(settings, fresh) == []


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV.GZ", "gzipped.csv", "a.tsv"])
def test_rows_are_taken_from_text_in_any_of_its_forms(
    run: Run, fresh: str, settings: ClientSettings, tmp_path: Path, name: str
) -> None:
    long = "x" * 200_000
    text = f'id,name\n1,"a, ""b""\nc"\n2,{long}\n3,\n'
    if name.endswith("tsv"):
        text = text.replace(",", "\t")
    data = text.encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(data) if "gz" in name.lower() else data)
    assert run("produce", fresh, "--file", file).code == 0
    found = [json.loads(message.body) for message in everything(settings, fresh)]
    first = 'a\t "b"\nc' if name.endswith("tsv") else 'a, "b"\nc'
    assert sorted(found, key=lambda row: str(row["id"])) == [
        {"id": "1", "name": first}, {"id": "2", "name": long}, {"id": "3", "name": ""},
    ]  # fmt: skip
