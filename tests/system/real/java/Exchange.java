import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeSet;
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
 * The published Java client as the other end of an exchange.
 *
 * <p>{@code send <masters> <topic> <count>}: sends records that carry an attribute, a stream id and a
 * time, and prints {@code sent <body>}. {@code receive <masters> <topic> <count>}: reads from the first
 * record on and prints tab-separated body, stream id, time and attribute {@code k} ("null" if absent).
 */
public final class Exchange {

    private Exchange() {
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
        int count = Integer.parseInt(arguments[3]);
        if (arguments[0].equals("send")) {
            send(factory, arguments[2], count);
        } else {
            receive(factory, arguments[1], arguments[2], count);
        }
        factory.shutdown();
    }

    private static void send(TubeSingleSessionFactory factory, String topic, int count)
            throws Throwable {
        MessageProducer producer = factory.createProducer();
        producer.publish(topic);
        for (int number = 0; number < count; number++) {
            String body = "from java " + number + " \u00e9\u6f22";
            Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
            message.setAttrKeyVal("k", "v" + number);
            message.putSystemHeader("stream" + number % 2, "20260102030" + number % 10);
            MessageSentResult result = producer.sendMessage(message);
            require(result.isSuccess(), result.getErrMsg());
            System.out.println("sent " + body);
        }
        producer.shutdown();
    }

    private static void receive(
            TubeSingleSessionFactory factory, String masters, String topic, int count)
            throws Throwable {
        ConsumerConfig config = new ConsumerConfig(masters, "exchange_java");
        ClientBalanceConsumer consumer = factory.createBalanceConsumer(config);
        ProcessResult done = new ProcessResult();
        require(consumer.start(Map.of(topic, new TreeSet<>()), -1, 0, done), done.getErrMsg());
        QueryMetaResult found = new QueryMetaResult();
        require(consumer.getPartitionMetaInfo(found), found.getErrMsg());
        for (String partition : found.getPartStatusMap().keySet()) {
            require(consumer.connect2Partition(partition, 0L, done), done.getErrMsg());
        }
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
        System.out.println(String.join("\t",
                new String(message.getData(), StandardCharsets.UTF_8),
                String.valueOf(message.getMsgType()),
                String.valueOf(message.getMsgTime()),
                String.valueOf(message.getAttrValue("k"))));
    }

    private static void require(boolean done, String reason) {
        if (!done) {
            throw new IllegalStateException(reason);
        }
    }
}
