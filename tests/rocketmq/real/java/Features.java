// An unmodified Java client goes through what clients do: "<name servers> <topic> <other topic>".
// Prints "OK <feature>" or "NOT <feature> <why>" for each, and "END". Topics have four queues.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Features {
    private interface Feature {
        void run() throws Exception;
    }

    private static String servers;
    private static String topic;
    private static String other;
    private static int groups;

    public static void main(String[] words) throws Exception {
        servers = words[0];
        topic = words[1];
        other = words[2];
        attempt("sends", Features::sends);
        attempt("push", Features::push);
        attempt("retry", Features::retry);
        attempt("orderly", Features::orderly);
        attempt("broadcast", Features::broadcast);
        attempt("lite-pull", Features::litePull);
        attempt("transactions", Features::transactions);
        attempt("queries", Features::queries);
        System.out.println("END");
        System.exit(0);
    }

    private static void attempt(String name, Feature feature) {
        try {
            feature.run();
            System.out.println("OK " + name);
        } catch (Throwable failure) {
            System.out.println("NOT " + name + " " + failure.toString().replace('\n', ' '));
            failure.printStackTrace();
        }
    }

    private static String group(String name) {
        groups++;
        return name + "-" + groups + "-" + System.nanoTime();
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer made = new DefaultMQProducer(group("writers"));
        made.setNamesrvAddr(servers);
        made.start();
        return made;
    }

    private static Message message(String to, String tag, String key) {
        return new Message(to, tag, key, key.getBytes(StandardCharsets.UTF_8));
    }

    private static void sends() throws Exception {
        DefaultMQProducer producer = producer();
        CountDownLatch answered = new CountDownLatch(20);
        for (int number = 0; number < 20; number++) {
            require(producer.send(message(topic, "sync", "s" + number)).getQueueOffset() >= 0);
            producer.sendOneway(message(topic, "oneway", "o" + number));
            producer.send(message(topic, "async", "a" + number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failure.printStackTrace();
                }
            });
        }
        require(answered.await(20, TimeUnit.SECONDS));
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            batch.add(message(topic, "batch", "b" + number));
        }
        producer.send(batch);
        producer.send(new Message(topic, "big", "z0", new byte[20_000]));
        Message late = message(topic, "late", "d0");
        late.setDelayTimeLevel(1);
        producer.send(late);
        producer.shutdown();
    }

    private static void push() throws Exception {
        Set<String> keys = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer("push");
        consumer.subscribe(topic, "sync || async || oneway || batch || big || late");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> keys.add(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> keys.size() == 82);
        consumer.shutdown();
    }

    private static void retry() throws Exception {
        AtomicInteger seen = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("retry");
        consumer.subscribe(topic, "big");
        consumer.setMaxReconsumeTimes(3);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return seen.incrementAndGet() == 1
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> seen.get() >= 2);
        consumer.shutdown();
    }

    private static void orderly() throws Exception {
        Set<String> keys = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer("orderly");
        consumer.subscribe(topic, "sync");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> keys.add(message.getKeys()));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        until(() -> keys.size() == 20);
        consumer.shutdown();
    }

    private static void broadcast() throws Exception {
        Set<String> keys = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer("broadcast");
        broadcasting(consumer);
        consumer.subscribe(topic, "batch");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> keys.add(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> keys.size() == 20);
        consumer.shutdown();
    }

    // The two lines have the class of this value in different packages.
    private static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        Class<?> kind = consumer.getMessageModel().getClass();
        for (Object value : kind.getEnumConstants()) {
            if (value.toString().equals("BROADCASTING")) {
                consumer.getClass().getMethod("setMessageModel", kind).invoke(consumer, value);
            }
        }
    }

    private static void litePull() throws Exception {
        Set<String> keys = ConcurrentHashMap.newKeySet();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group("lite"));
        consumer.setNamesrvAddr(servers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "async");
        consumer.start();
        until(() -> {
            for (MessageExt message : consumer.poll(200)) {
                keys.add(message.getKeys());
            }
            return keys.size() == 20;
        });
        consumer.commitSync();
        consumer.shutdown();
    }

    private static void transactions() throws Exception {
        AtomicInteger checks = new AtomicInteger();
        TransactionMQProducer producer = new TransactionMQProducer(group("transactions"));
        producer.setNamesrvAddr(servers);
        // Brokers ask after seconds here, and only whom they know by a heartbeat.
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object word) {
                return (LocalTransactionState) word;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.incrementAndGet();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        Message kept = message(other, "kept", "t0");
        producer.sendMessageInTransaction(kept, LocalTransactionState.COMMIT_MESSAGE);
        Message dropped = message(other, "dropped", "t1");
        producer.sendMessageInTransaction(dropped, LocalTransactionState.ROLLBACK_MESSAGE);
        Message asked = message(other, "asked", "t2");
        producer.sendMessageInTransaction(asked, LocalTransactionState.UNKNOW);
        Set<String> keys = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer("after");
        consumer.subscribe(other, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> keys.add(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> keys.size() == 2 && checks.get() > 0);
        require(!keys.contains("t1"));
        consumer.shutdown();
        producer.shutdown();
    }

    private static void queries() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group("queries"));
        consumer.setNamesrvAddr(servers);
        consumer.start();
        require(consumer.fetchMessageQueues(topic).size() == 4);
        DefaultMQProducer producer = producer();
        long records = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            records += producer.maxOffset(queue) - producer.minOffset(queue);
            require(producer.searchOffset(queue, 0) == producer.minOffset(queue));
        }
        require(records == 82);
        producer.shutdown();
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer consumer(String name) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group(name));
        made.setNamesrvAddr(servers);
        made.setPollNameServerInterval(1000);
        made.setHeartbeatBrokerInterval(1000);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    private static void require(boolean held) {
        if (!held) {
            throw new IllegalStateException("it does not hold");
        }
    }

    private interface Question {
        boolean ask() throws Exception;
    }

    private static void until(Question question) throws Exception {
        long end = System.nanoTime() + 40_000_000_000L;
        while (!question.ask()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("it did not come true");
            }
            Thread.sleep(50);
        }
    }
}
