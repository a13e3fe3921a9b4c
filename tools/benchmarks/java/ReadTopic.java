import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;

/**
 * Reads a topic from its first record, once for each line on its input, with the published Java
 * client.
 *
 * <p>Arguments: masters, topic, records per pass. Prints one line per pass:
 * {@code pass <number> <records> <body bytes> <nanoseconds>}, and ends with its input. A pass starts
 * when every partition is registered at offset 0, so connecting and the JVM's first compilation stay
 * out of all passes but the first; whoever starts this program throws that one away.
 *
 * <p>Set up to be as fast as that client gets: it chooses its partitions itself, and confirms a
 * batch with the next fetch instead of a call of its own.
 */
public final class ReadTopic {

    private static final long IDLE_LIMIT_NS = 30_000_000_000L;

    private final ClientBalanceConsumer consumer;
    private final String topic;
    private final long wanted;

    private ReadTopic(ClientBalanceConsumer consumer, String topic, long wanted) {
        this.consumer = consumer;
        this.topic = topic;
        this.wanted = wanted;
    }

    public static void main(String[] arguments) throws Throwable {
        String masters = arguments[0];
        TubeSingleSessionFactory factory = new TubeSingleSessionFactory(new TubeClientConfig(masters));
        ConsumerConfig config = new ConsumerConfig(masters, "bench_java");
        config.setPullConfirmInLocal(true);
        ClientBalanceConsumer consumer = factory.createBalanceConsumer(config);
        ReadTopic reader = new ReadTopic(consumer, arguments[1], Long.parseLong(arguments[2]));
        try {
            Set<String> partitions = reader.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (int number = 0; input.readLine() != null; number++) {
                reader.pass(number, partitions);
            }
        } finally {
            consumer.shutdown();
            factory.shutdown();
        }
        // The client leaves threads behind that would keep the program alive.
        System.exit(0);
    }

    private Set<String> start() throws Exception {
        ProcessResult started = new ProcessResult();
        require(consumer.start(Map.of(topic, new TreeSet<>()), -1, 0, started), started.getErrMsg());
        QueryMetaResult found = new QueryMetaResult();
        require(consumer.getPartitionMetaInfo(found), found.getErrMsg());
        return found.getPartStatusMap().keySet();
    }

    private void pass(int number, Set<String> partitions) throws Exception {
        ProcessResult result = new ProcessResult();
        for (String partition : partitions) {
            require(consumer.connect2Partition(partition, 0L, result), result.getErrMsg());
        }
        long records = 0;
        long bytes = 0;
        long begun = System.nanoTime();
        long last = begun;
        ConsumeResult batch = new ConsumeResult();
        ConfirmResult confirmed = new ConfirmResult();
        while (records < wanted) {
            if (consumer.getMessage(batch)) {
                for (Message message : batch.getMessageList()) {
                    bytes += message.getData().length;
                }
                records += batch.getMessageList().size();
                consumer.confirmConsume(batch.getConfirmContext(), true, confirmed);
                last = System.nanoTime();
            } else {
                require(System.nanoTime() - last < IDLE_LIMIT_NS, "nothing more: " + batch.getErrMsg());
            }
        }
        long elapsed = System.nanoTime() - begun;
        System.out.println("pass " + number + " " + records + " " + bytes + " " + elapsed);
        System.out.flush();
        for (String partition : partitions) {
            require(consumer.disconnectFromPartition(partition, result), result.getErrMsg());
        }
    }

    private static void require(boolean done, String reason) {
        if (!done) {
            throw new IllegalStateException(reason);
        }
    }
}
