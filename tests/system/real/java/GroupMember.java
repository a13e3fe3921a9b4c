import java.nio.charset.StandardCharsets;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.corebase.Message;

/**
 * The published Java client as a member of a group that the master balances.
 *
 * <p>Arguments: masters, group, topic, milliseconds to stay. Prints the body of every record it has
 * confirmed.
 */
public final class GroupMember {

    private GroupMember() {
    }

    public static void main(String[] arguments) throws Throwable {
        ConsumerConfig config = new ConsumerConfig(arguments[0], arguments[1]);
        config.setConsumePosition(ConsumePosition.CONSUMER_FROM_FIRST_OFFSET);
        config.setHeartbeatPeriodMs(1000);
        config.setPullConsumeReadyWaitPeriodMs(500);
        TubeSingleSessionFactory factory = new TubeSingleSessionFactory(config);
        PullMessageConsumer consumer = factory.createPullConsumer(config);
        consumer.subscribe(arguments[2], null);
        consumer.completeSubscribe();
        long end = System.nanoTime() + Long.parseLong(arguments[3]) * 1_000_000L;
        while (System.nanoTime() < end) {
            ConsumerResult result = consumer.getMessage();
            if (result.isSuccess()) {
                boolean confirmed =
                        consumer.confirmConsume(result.getConfirmContext(), true).isSuccess();
                for (Message message : result.getMessageList()) {
                    if (confirmed) {
                        System.out.println(new String(message.getData(), StandardCharsets.UTF_8));
                    }
                }
            }
        }
        consumer.shutdown();
        factory.shutdown();
        System.exit(0);
    }
}
