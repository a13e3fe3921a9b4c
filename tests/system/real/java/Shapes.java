import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.zip.CRC32;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;

/**
 * Records of every shape, sent and received by the published Java client.
 *
 * <p>{@code send <masters> <filtered topic> <limit> <whole topic> <limit> <size>...}: sends one record of
 * each size to the filtered topic, then one that fills its limit to the last byte; to the whole topic one
 * of that limit and nothing but a body. {@code receive <masters> <filtered topic> <whole topic> <count>}:
 * reads from the first record on, of the filtered topic only streams s0 and s2, and prints topic, length
 * and CRC-32 of the body, stream id, time and the attributes "who" and "k", tab-separated ("null" if
 * absent).
 */
public final class Shapes {

    private Shapes() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            // The client's threads would keep the machine alive.
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String[] arguments) throws Throwable {
        TubeSingleSessionFactory factory =
                new TubeSingleSessionFactory(new TubeClientConfig(arguments[1]));
        if (arguments[0].equals("send")) {
            sendAll(factory, arguments);
        } else {
            receive(factory, arguments);
        }
        factory.shutdown();
    }

    private static void sendAll(TubeSingleSessionFactory factory, String[] arguments)
            throws Throwable {
        String filtered = arguments[2];
        String whole = arguments[4];
        MessageProducer producer = factory.createProducer();
        producer.publish(filtered);
        producer.publish(whole);
        int number = 0;
        for (int at = 6; at < arguments.length; at++) {
            send(producer, shaped(filtered, number++, Integer.parseInt(arguments[at])));
        }
        byte[] attributes =
                shaped(filtered, number, 1).getAttribute().getBytes(StandardCharsets.UTF_8);
        int room = Integer.parseInt(arguments[3]) - 4 - attributes.length;
        send(producer, shaped(filtered, number++, room));
        send(producer, new Message(whole, body(number, Integer.parseInt(arguments[5]))));
        producer.shutdown();
    }

    private static byte[] body(int number, int size) {
        byte[] bytes = new byte[size];
        for (int at = 0; at < size; at++) {
            bytes[at] = (byte) (at * 31 + number);
        }
        return bytes;
    }

    private static Message shaped(String topic, int number, int size) {
        Message message = new Message(topic, body(number, size));
        message.setAttrKeyVal("who", "java");
        message.setAttrKeyVal("k", "\u00e9\u6f22 " + number);
        message.putSystemHeader("s" + number % 3, "202601020304");
        return message;
    }

    private static void send(MessageProducer producer, Message message) throws Throwable {
        long deadline = System.nanoTime() + 60_000_000_000L;
        MessageSentResult result = producer.sendMessage(message);
        while (!result.isSuccess()) {
            // A broker that is busy, or was told of the topic just now, refuses for a while.
            require(System.nanoTime() < deadline, result.getErrMsg());
            Thread.sleep(500);
            result = producer.sendMessage(message);
        }
    }

    private static void receive(TubeSingleSessionFactory factory, String[] arguments)
            throws Throwable {
        ConsumerConfig config = new ConsumerConfig(arguments[1], "shapes_java");
        ClientBalanceConsumer consumer = factory.createBalanceConsumer(config);
        ProcessResult done = new ProcessResult();
        Map<String, TreeSet<String>> topics = Map.of(
                arguments[2], new TreeSet<>(List.of("s0", "s2")),
                arguments[3], new TreeSet<>());
        require(consumer.start(topics, -1, 0, done), done.getErrMsg());
        QueryMetaResult found = new QueryMetaResult();
        require(consumer.getPartitionMetaInfo(found), found.getErrMsg());
        for (String partition : found.getPartStatusMap().keySet()) {
            require(consumer.connect2Partition(partition, 0L, done), done.getErrMsg());
        }
        int count = Integer.parseInt(arguments[4]);
        ConsumeResult batch = new ConsumeResult();
        long deadline = System.nanoTime() + 60_000_000_000L;
        for (int received = 0; received < count;) {
            require(System.nanoTime() < deadline, "only " + received + ": " + batch.getErrMsg());
            if (consumer.getMessage(batch)) {
                for (Message message : batch.getMessageList()) {
                    print(message);
                    received++;
                }
                consumer.confirmConsume(batch.getConfirmContext(), true, new ConfirmResult());
            }
        }
        consumer.shutdown();
    }

    private static void print(Message message) {
        CRC32 sum = new CRC32();
        sum.update(message.getData());
        System.out.println(String.join("\t",
                message.getTopic(),
                String.valueOf(message.getData().length),
                String.valueOf(sum.getValue()),
                String.valueOf(message.getMsgType()),
                String.valueOf(message.getMsgTime()),
                String.valueOf(message.getAttrValue("who")),
                String.valueOf(message.getAttrValue("k"))));
    }

    private static void require(boolean done, String reason) {
        if (!done) {
            throw new IllegalStateException(reason);
        }
    }
}
