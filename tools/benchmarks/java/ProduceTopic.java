import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;

/**
 * Sends records to a topic, once for each line on its input, with the published Java client.
 *
 * <p>Arguments: masters, topic, record size, records per pass, records in flight. Prints one line per
 * pass: {@code pass <number> <records> <body bytes> <nanoseconds>}, and ends with its input. The first
 * pass warms the JVM up; whoever starts this program throws it away.
 *
 * <p>Set up to be as fast as that client gets: asynchronous sends whose callbacks only count, with a
 * bounded number of them unanswered. A record that the broker refuses (its memory is full) is sent
 * again after a pause, as the Python client does.
 */
public final class ProduceTopic {

    private static final long OVERFLOW_PAUSE_MS = 50;

    private final MessageProducer producer;
    private final String topic;
    private final byte[] body;
    private final int window;

    private ProduceTopic(MessageProducer producer, String topic, int size, int window) {
        this.producer = producer;
        this.topic = topic;
        this.window = window;
        this.body = new byte[size];
        new Random(1).nextBytes(body);
    }

    public static void main(String[] arguments) throws Throwable {
        String masters = arguments[0];
        TubeSingleSessionFactory factory = new TubeSingleSessionFactory(new TubeClientConfig(masters));
        MessageProducer producer = factory.createProducer();
        producer.publish(arguments[1]);
        ProduceTopic sender = new ProduceTopic(
                producer, arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[4]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (int number = 0; input.readLine() != null; number++) {
            sender.pass(number, Long.parseLong(arguments[3]));
        }
        producer.shutdown();
        factory.shutdown();
        // The client leaves threads behind that would keep the program alive.
        System.exit(0);
    }

    private void pass(int number, long count) throws Exception {
        Semaphore room = new Semaphore(window);
        AtomicLong stored = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        MessageSentCallback counting = new MessageSentCallback() {
            @Override
            public void onMessageSent(MessageSentResult result) {
                (result.isSuccess() ? stored : refused).incrementAndGet();
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                refused.incrementAndGet();
                room.release();
            }
        };
        long begun = System.nanoTime();
        long sent = 0;
        long refusedSeen = 0;
        while (stored.get() < count) {
            long again = refused.get();
            if (again > refusedSeen) {
                sent -= again - refusedSeen;
                refusedSeen = again;
                Thread.sleep(OVERFLOW_PAUSE_MS);
            }
            if (sent < count) {
                room.acquire();
                producer.sendMessage(new Message(topic, body), counting);
                sent++;
            } else {
                room.acquire(window);
                room.release(window);
            }
        }
        long elapsed = System.nanoTime() - begun;
        System.out.println("pass " + number + " " + count + " " + count * body.length + " " + elapsed);
        System.out.flush();
    }
}
