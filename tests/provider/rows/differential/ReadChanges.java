// Reads change records by Flink's published formats, for the differential test: a line of format,
// row type, "true" where the envelope has its schema, and the hex of a body, with tabs between;
// answers a line of JSON, the rows with their kind, or "!" and the error.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.format.DateTimeFormatter;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.json.canal.CanalJsonDeserializationSchema;
import org.apache.flink.formats.json.debezium.DebeziumJsonDeserializationSchema;
import org.apache.flink.formats.json.maxwell.MaxwellJsonDeserializationSchema;
import org.apache.flink.formats.json.ogg.OggJsonDeserializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.util.Collector;

public class ReadChanges {
  static final ObjectMapper JSON = new ObjectMapper();
  static final DateTimeFormatter CLOCK = DateTimeFormatter.ofPattern("HH:mm:ss.SSSSSS");
  static final DateTimeFormatter INSTANT = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSS");

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    Map<String, DeserializationSchema<RowData>> readers = new HashMap<>();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split("\t", -1);
      try {
        RowType type = (RowType) LogicalTypeParser.parse(parts[1], ReadChanges.class.getClassLoader());
        String key = parts[0] + parts[1] + parts[2];
        if (!readers.containsKey(key)) {
          DeserializationSchema<RowData> made = reader(parts[0], type, parts[2].equals("true"));
          made.open(null);
          readers.put(key, made);
        }
        ArrayNode rows = JSON.createArrayNode();
        byte[] body = HexFormat.of().parseHex(parts[3]);
        readers.get(key).deserialize(body, new Collector<RowData>() {
          public void collect(RowData row) {
            ArrayNode cells = rows.addArray();
            cells.add(row.getRowKind().shortString());
            add(cells, row, type);
          }

          public void close() {}
        });
        out.println(JSON.writeValueAsString(rows));
      } catch (Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) cause = cause.getCause();
        out.println("!" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ")
            + " / " + String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
      }
    }
    out.flush();
  }

  static DeserializationSchema<RowData> reader(String format, RowType type, boolean hasSchema) {
    DataType row = TypeConversions.fromLogicalToDataType(type);
    TypeInformation<RowData> info = InternalTypeInfo.of(type);
    switch (format) {
      case "debezium":
        return new DebeziumJsonDeserializationSchema(
            row, Collections.emptyList(), info, hasSchema, false, TimestampFormat.ISO_8601);
      case "canal":
        return CanalJsonDeserializationSchema.builder(row, Collections.emptyList(), info)
            .setTimestampFormat(TimestampFormat.SQL)
            .build();
      case "maxwell":
        return new MaxwellJsonDeserializationSchema(
            row, Collections.emptyList(), info, false, TimestampFormat.SQL);
      default:
        return new OggJsonDeserializationSchema(
            row, Collections.emptyList(), info, false, TimestampFormat.SQL);
    }
  }

  static void add(ArrayNode cells, RowData row, RowType type) {
    for (int at = 0; at < type.getFieldCount(); at++) {
      LogicalType of = type.getTypeAt(at);
      add(cells, of, RowData.createFieldGetter(of, at).getFieldOrNull(row));
    }
  }

  static void add(ArrayNode cells, LogicalType type, Object value) {
    if (value == null) {
      cells.addNull();
      return;
    }
    switch (type.getTypeRoot()) {
      case BINARY:
      case VARBINARY:
        cells.add(HexFormat.of().formatHex((byte[]) value));
        return;
      case DATE:
        cells.add(LocalDate.ofEpochDay((Integer) value).toString());
        return;
      case TIME_WITHOUT_TIME_ZONE:
        cells.add(LocalTime.ofNanoOfDay((Integer) value * 1_000_000L).format(CLOCK));
        return;
      case TIMESTAMP_WITHOUT_TIME_ZONE:
        cells.add(((TimestampData) value).toLocalDateTime().format(INSTANT));
        return;
      case DOUBLE:
        cells.add((Double) value);
        return;
      case FLOAT:
        cells.add((Float) value);
        return;
      case ROW:
        add(cells.addArray(), (RowData) value, (RowType) type);
        return;
      case ARRAY:
        ArrayNode items = cells.addArray();
        LogicalType of = ((ArrayType) type).getElementType();
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(of);
        for (int at = 0; at < ((ArrayData) value).size(); at++) {
          add(items, of, getter.getElementOrNull((ArrayData) value, at));
        }
        return;
      default:
        cells.add(value.toString());
    }
  }
}
