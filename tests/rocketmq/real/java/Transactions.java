// An unmodified Java producer of transactions: "<name servers> <topic> <group> <count>" sends half
// records, commits each at once, prints "ENDED <number>", and answers "commit" to brokers that ask
// about one, printing "ASKED <number>", until its input ends.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Transactions {
    public static void main(String[] words) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(words[2]);
        producer.setNamesrvAddr(words[0]);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object word) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                System.out.println("ASKED " + new String(message.getBody()));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (int number = 0; number < Integer.parseInt(words[3]); number++) {
            byte[] body = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
            producer.sendMessageInTransaction(new Message(words[1], body), null);
            System.out.println("ENDED " + number);
        }
        System.out.println("READY all");
        while (System.in.read() >= 0) {
            Thread.sleep(10);
        }
        producer.shutdown();
        System.exit(0);
    }
}
