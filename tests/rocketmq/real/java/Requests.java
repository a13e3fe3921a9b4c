// An unmodified Java client of requests with a reply: "ask <name servers> <topic> <count>" prints
// "REPLY <body>" for the reply to each request, "FAILED <why>" without one; "reply <name servers>
// <topic> <group>" replies "java:<body>" to each request, until its input ends.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Requests {
    public static void main(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-" + words[0]);
        producer.setNamesrvAddr(words[1]);
        producer.start();
        if (words[0].equals("ask")) {
            ask(producer, words[2], Integer.parseInt(words[3]));
        } else {
            reply(producer, words[1], words[2], words[3]);
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void ask(DefaultMQProducer producer, String topic, int count) {
        for (int number = 0; number < count; number++) {
            byte[] body = ("ask" + number).getBytes(StandardCharsets.UTF_8);
            try {
                Message reply = producer.request(new Message(topic, body), 30000);
                System.out.println("REPLY " + new String(reply.getBody(), StandardCharsets.UTF_8));
            } catch (Exception failure) {
                System.out.println("FAILED " + failure);
            }
        }
    }

    private static void reply(DefaultMQProducer producer, String servers, String topic, String group)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = "java:" + new String(message.getBody(), StandardCharsets.UTF_8);
                try {
                    producer.send(MessageUtil.createReplyMessage(
                            message, body.getBytes(StandardCharsets.UTF_8)), 3000);
                    System.out.println("SENT " + body);
                } catch (Exception failure) {
                    System.out.println("FAILED " + failure);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("READY yes");
        while (System.in.read() >= 0) {
            Thread.sleep(10);
        }
        consumer.shutdown();
    }
}
