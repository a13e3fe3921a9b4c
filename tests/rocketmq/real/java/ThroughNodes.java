// An unmodified Java client: "produce <name servers> <topic> <group> <count>" prints "ACK <key>" for
// every record that was acknowledged; "consume <name servers> <topic> <group>" prints "GOT <key>
// <queue> <offset>" for every record it is given, until its input ends.

import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class ThroughNodes {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("produce")) {
            produce(words[1], words[2], words[3], Integer.parseInt(words[4]));
        } else {
            consume(words[1], words[2], words[3]);
        }
        System.exit(0);
    }

    private static void produce(String servers, String topic, String group, int count)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(servers);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(3000);
        producer.start();
        for (int number = 0; number < count; number++) {
            String key = "k" + number;
            Message message = new Message(topic, "tag", key, key.getBytes(StandardCharsets.UTF_8));
            try {
                SendResult result = producer.send(message);
                System.out.println("ACK " + key + " " + result.getSendStatus());
            } catch (Exception failure) {
                System.out.println("FAILED " + key + " " + failure.getClass().getSimpleName());
                Thread.sleep(200);
            }
            if (number % 10 == 0) {
                Thread.sleep(10);
            }
        }
        producer.shutdown();
    }

    private static void consume(String servers, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicInteger count = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                count.incrementAndGet();
                System.out.println("GOT " + message.getKeys() + " " + message.getQueueId()
                        + " " + message.getQueueOffset());
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("READY");
        while (System.in.read() >= 0) {
            Thread.sleep(10);
        }
        consumer.shutdown();
    }
}
