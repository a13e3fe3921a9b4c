from tubemq_client import COLUMNS
from tubemq_provider.sources.tubemq.columns import RECORDS


def test_the_table_names_what_the_client_fills_in_its_order() -> None:
    assert RECORDS.names == COLUMNS


def test_every_column_has_an_arrow_type_and_a_spark_type_of_the_same_name() -> None:
    schema = RECORDS.arrow_schema()

    assert schema.names == list(RECORDS.names)
    assert [part.split(" ")[0] for part in RECORDS.ddl().split(", ")] == schema.names


def test_a_choice_of_columns_gets_only_its_own_dictionaries_and_statistics() -> None:
    assert RECORDS.repeating(("value", "attributes")) == [
        "attributes.key_value.key",
        "attributes.key_value.value",
    ]
    assert RECORDS.ranged(("value", "offset", "topic")) == ["topic", "offset"]
    assert RECORDS.spark_type("nothing") is None
