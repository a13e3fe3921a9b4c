import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.TreeSet;
import org.apache.inlong.common.msg.InLongMsg;

/**
 * The published Java class for packed bodies, as writer and as reader.
 *
 * <p>Standard input: lines of a name and a message in hexadecimal. Each is read by the class and printed
 * as tab-separated name, message, version, create time, message count, and the groups
 * {@code attribute:body,body,;attribute:body,} (hexadecimal again, sorted by attribute); or as name,
 * message, "refused" and the exception. With the argument {@code write} the messages are those which
 * the class builds here, instead of standard input.
 */
public final class PackedBodies {

    private static final long CREATED = 1_700_000_000_000L;
    private static final HexFormat HEX = HexFormat.of();

    private PackedBodies() {
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length > 0 && arguments[0].equals("write")) {
            write();
            return;
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            print(words[0], HEX.parseHex(words[1]));
        }
    }

    private static void print(String name, byte[] message) {
        String facts;
        try {
            facts = read(message);
        } catch (RuntimeException | OutOfMemoryError problem) {
            facts = "refused\t" + problem.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + HEX.formatHex(message) + "\t" + facts);
    }

    private static String read(byte[] message) {
        InLongMsg parsed = InLongMsg.parseFrom(message);
        if (parsed == null) {
            return "refused\tnull";
        }
        List<String> groups = new ArrayList<>();
        for (String attribute : new TreeSet<>(parsed.getAttrs())) {
            StringBuilder bodies = new StringBuilder();
            Iterator<byte[]> items = parsed.getIterator(attribute);
            while (items.hasNext()) {
                bodies.append(HEX.formatHex(items.next())).append(',');
            }
            groups.add(HEX.formatHex(utf8(attribute)) + ":" + bodies);
        }
        return parsed.getVersion() + "\t" + parsed.getCreatetime() + "\t" + parsed.getMsgCnt() + "\t"
                + String.join(";", groups);
    }

    private static void write() throws IOException {
        for (boolean compress : new boolean[] {false, true}) {
            String suffix = compress ? "-snappy" : "-raw";
            for (int version = 1; version <= 2; version++) {
                writeItems("v" + version, suffix, version, compress);
            }
            writeNested(suffix, compress);
            writePackets(suffix, compress);
        }
    }

    private static void writeItems(String prefix, String suffix, int version, boolean compress) {
        InLongMsg one = InLongMsg.newInLongMsg(compress, version);
        one.addMsg("m=0", utf8("a"));
        finish(prefix + "-one" + suffix, one);

        InLongMsg groups = InLongMsg.newInLongMsg(compress, version);
        groups.addMsg("groupId=g&streamId=s", utf8("a"));
        groups.addMsg("groupId=g&streamId=t", utf8("other"));
        groups.addMsg("groupId=g&streamId=s", new byte[0]);
        groups.addMsg("groupId=g&streamId=s", utf8("d".repeat(60)));
        finish(prefix + "-groups" + suffix, groups);

        InLongMsg characters = InLongMsg.newInLongMsg(compress, version);
        characters.addMsg("s=\u65e5\ud83d\ude00\u0000z", utf8("y"));
        characters.addMsg("", utf8("no attribute"));
        finish(prefix + "-characters" + suffix, characters);

        InLongMsg many = InLongMsg.newInLongMsg(1 << 20, compress, version);
        for (int number = 0; number < 300; number++) {
            many.addMsg("k=" + number % 3, utf8("r" + number));
        }
        finish(prefix + "-many" + suffix, many);

        finish(prefix + "-empty" + suffix, InLongMsg.newInLongMsg(compress, version));
    }

    private static void writeNested(String suffix, boolean compress) throws IOException {
        InLongMsg nested = InLongMsg.newInLongMsg(compress, 3);
        nested.addMsg("m=0", records("a", "k=1", "bc", "k=2", "d", "k=1"));
        finish("v3-one-call" + suffix, nested);

        InLongMsg calls = InLongMsg.newInLongMsg(compress, 3);
        calls.addMsg("m=0", records("a", "k=1", "bc", "k=\u65e5\ud83d\ude00"));
        calls.addMsg("m=9", records("e", "k=1"));
        calls.addMsg("m=0", records("d", "k=1"));
        calls.addMsg("", records("f", "k=1"));
        finish("v3-several-calls" + suffix, calls);
    }

    private static void writePackets(String suffix, boolean compress) throws IOException {
        finishPacket("v4-own" + suffix, compress, packet(1, "rt=1", records("a", "k=1", "bc", "k=2")));
        finishPacket("v4-common" + suffix, compress, packet(0, "rt=1&x=\u65e5", items("a", "", "bc")));
        finishPacket("v4-string-ids" + suffix, compress,
                packet(4, "groupId=g&streamId=s", items("a".repeat(60))));
        finishPacket("v4-lines" + suffix, compress, packet(0x20, "rt=1", items("a\nb\nc")));
        finishPacket("v4-no-attribute" + suffix, compress, packet(0, "", items("a")));
        finishPacket("v4-same-key" + suffix, compress, packet(1, "k=0&dt=7&cnt=8&groupId=9",
                records("a", "k=1", "b", "dt=3&cnt=4&streamId=5")));
    }

    private static void finish(String name, InLongMsg message) {
        print(name, message.buildArray(CREATED));
    }

    private static void finishPacket(String name, boolean compress, byte[] packet) {
        InLongMsg message = InLongMsg.newInLongMsg(compress, 4);
        if (!message.addMsg(packet)) {
            throw new IllegalStateException(name);
        }
        finish(name, message);
    }

    private static byte[] packet(int extension, String attributes, byte[] body) throws IOException {
        byte[] attribute = utf8(attributes);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(25 + body.length + attribute.length);
        out.writeByte(7);
        out.writeShort(10);
        out.writeShort(20);
        out.writeShort(extension);
        out.writeInt((int) (CREATED / 1000));
        out.writeShort(3);
        out.writeInt(9);
        out.writeInt(body.length);
        out.write(body);
        out.writeShort(attribute.length);
        out.write(attribute);
        out.writeShort(0xee01);
        return bytes.toByteArray();
    }

    /** Bodies, each with its length before it. */
    private static byte[] items(String... bodies) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        for (String body : bodies) {
            out.writeInt(utf8(body).length);
            out.write(utf8(body));
        }
        return bytes.toByteArray();
    }

    /** Body and attribute alternate, as items do. */
    private static byte[] records(String... bodiesAndAttributes) throws IOException {
        return items(bodiesAndAttributes);
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
