// Reads bodies by Avro's own Java library, for the differential test: a line of a schema's JSON, a
// tab, the hex of a body; answers a line of JSON, or "!" and the error.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

public class ReadAvro {
  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    String known = null;
    Schema schema = null;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      int tab = line.indexOf('\t');
      String text = line.substring(0, tab);
      try {
        if (!text.equals(known)) {
          known = text;
          schema = null;
          schema = new Schema.Parser().parse(text);
        }
        if (schema == null) {
          throw new IllegalArgumentException("no schema");
        }
        byte[] body = HexFormat.of().parseHex(line.substring(tab + 1));
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(body, null);
        Object datum = new GenericDatumReader<Object>(schema).read(null, decoder);
        if (!decoder.isEnd()) {
          throw new IllegalArgumentException("bytes are left");
        }
        StringBuilder made = new StringBuilder();
        write(schema, datum, made);
        out.println(made);
      } catch (Throwable error) {
        out.println("!" + String.valueOf(error).replace('\n', ' '));
      }
    }
    out.flush();
  }

  static void write(Schema schema, Object datum, StringBuilder out) {
    if (schema.getType() == Schema.Type.UNION) {
      write(schema.getTypes().get(GenericData.get().resolveUnion(schema, datum)), datum, out);
      return;
    }
    LogicalType logical = LogicalTypes.fromSchemaIgnoreInvalid(schema);
    switch (schema.getType()) {
      case NULL -> out.append("null");
      case BOOLEAN -> out.append(datum);
      case INT, LONG -> number(logical, ((Number) datum).longValue(), out);
      case FLOAT -> real(((Float) datum).doubleValue(), out);
      case DOUBLE -> real((Double) datum, out);
      case STRING, ENUM -> text(datum.toString(), out);
      case BYTES -> {
        ByteBuffer buffer = ((ByteBuffer) datum).duplicate();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        bytes(logical, data, out);
      }
      case FIXED -> bytes(logical, ((GenericFixed) datum).bytes(), out);
      case ARRAY -> {
        String comma = "[";
        out.append(((java.util.Collection<?>) datum).isEmpty() ? "[" : "");
        for (Object item : (java.util.Collection<?>) datum) {
          out.append(comma);
          write(schema.getElementType(), item, out);
          comma = ",";
        }
        out.append("]");
      }
      case MAP -> {
        Map<String, Object> sorted = new TreeMap<>();
        ((Map<?, ?>) datum).forEach((key, value) -> sorted.put(key.toString(), value));
        String comma = "";
        out.append("{");
        for (Map.Entry<String, Object> entry : sorted.entrySet()) {
          out.append(comma);
          text(entry.getKey(), out);
          out.append(":");
          write(schema.getValueType(), entry.getValue(), out);
          comma = ",";
        }
        out.append("}");
      }
      case RECORD -> {
        String comma = "";
        out.append("{");
        for (Schema.Field field : schema.getFields()) {
          out.append(comma);
          text(field.name(), out);
          out.append(":");
          write(field.schema(), ((GenericRecord) datum).get(field.pos()), out);
          comma = ",";
        }
        out.append("}");
      }
    }
  }

  static void number(LogicalType logical, long number, StringBuilder out) {
    String name = logical == null ? "" : logical.getName();
    if (name.endsWith("-millis")) {
      out.append(BigInteger.valueOf(number).multiply(BigInteger.valueOf(1000)));
    } else {
      out.append(number);
    }
  }

  static void real(double number, StringBuilder out) {
    out.append(Double.isFinite(number) ? Double.toString(number) : "\"" + number + "\"");
  }

  static void bytes(LogicalType logical, byte[] data, StringBuilder out) {
    String name = logical == null ? "" : logical.getName();
    if (name.equals("decimal")) {
      text("decimal " + (data.length == 0 ? "none" : new BigInteger(data)), out);
    } else if (name.equals("uuid")) {
      ByteBuffer both = ByteBuffer.wrap(data);
      text(new java.util.UUID(both.getLong(), both.getLong()).toString(), out);
    } else {
      text(Base64.getEncoder().encodeToString(data), out);
    }
  }

  static void text(String text, StringBuilder out) {
    out.append('"');
    for (char sign : text.toCharArray()) {
      if (sign < 32 || sign == '"' || sign == '\\' || sign > 126) {
        out.append(String.format("\\u%04x", (int) sign));
      } else {
        out.append(sign);
      }
    }
    out.append('"');
  }
}
