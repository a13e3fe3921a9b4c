// An unmodified Java client that makes a pass for each line of its input, and prints what it took.
// "send <topic> <count> <bytes>" (asynchronous, one message a request), "sync <topic> <count>
// <bytes>" (each waits for its receipt), "batch <topic> <count>
// <bytes> <messages a request>", "consume <topic> <count>" (a push consumer of a new group, from the
// first record on; its time begins with the first record it is given).
// Started with the name servers it is to use. Prints "PASS <records> <bytes> <seconds>".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class SnodePasses {
    private static String servers;
    private static DefaultMQProducer producer;

    public static void main(String[] words) throws Exception {
        servers = words[0];
        producer = new DefaultMQProducer("bench-" + System.nanoTime());
        producer.setNamesrvAddr(servers);
        producer.setSendMsgTimeout(20000);
        producer.setCompressMsgBodyOverHowmuch(1 << 22);
        producer.start();
        System.out.println("READY");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] asked = line.trim().split(" ");
            int count = Integer.parseInt(asked[2]);
            long began = System.nanoTime();
            long bytes;
            if (asked[0].equals("send")) {
                bytes = send(asked[1], count, Integer.parseInt(asked[3]));
            } else if (asked[0].equals("sync")) {
                byte[] body = new byte[Integer.parseInt(asked[3])];
                for (int number = 0; number < count; number++) {
                    producer.send(new Message(asked[1], body));
                }
                bytes = (long) count * body.length;
            } else if (asked[0].equals("batch")) {
                int size = Integer.parseInt(asked[3]);
                bytes = batch(asked[1], count, size, Integer.parseInt(asked[4]));
            } else {
                long[] found = consume(asked[1], count);
                began = found[0];
                bytes = found[1];
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("PASS " + count + " " + bytes + " " + seconds);
        }
        System.exit(0);
    }

    private static long send(String topic, int count, int size) throws Exception {
        Semaphore underWay = new Semaphore(200);
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger failures = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                underWay.release();
                left.countDown();
            }

            @Override
            public void onException(Throwable failure) {
                failures.incrementAndGet();
                underWay.release();
                left.countDown();
            }
        };
        byte[] body = new byte[size];
        for (int number = 0; number < count; number++) {
            underWay.acquire();
            producer.send(new Message(topic, body), callback);
        }
        left.await();
        if (failures.get() > 0) {
            throw new IllegalStateException(failures + " sends failed");
        }
        return (long) count * size;
    }

    private static long batch(String topic, int count, int size, int together) throws Exception {
        byte[] body = new byte[size];
        for (int number = 0; number < count; number += together) {
            List<Message> messages = new ArrayList<>();
            for (int each = 0; each < together; each++) {
                messages.add(new Message(topic, body));
            }
            producer.send(messages);
        }
        return (long) count * size;
    }

    private static long[] consume(String topic, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(servers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        CountDownLatch left = new CountDownLatch(count);
        AtomicLong first = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            messages.forEach(message -> {
                bytes.addAndGet(message.getBody().length);
                left.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        long[] found = {first.get(), bytes.get()};
        new Thread(consumer::shutdown).start();
        return found;
    }
}
