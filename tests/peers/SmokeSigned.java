import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The real Java client with or without an access key: java -cp 'HOME/lib/*' SmokeSigned.java NAMESRV BROKER TOPIC COUNT.
 * With SMOKE_ACCESS_KEY and SMOKE_SECRET_KEY it signs. Prints one JSON line: what was sent, pulled and consumed, and the
 * code and text with which each was refused.
 */
public class SmokeSigned {
    interface Step {
        long take() throws Exception;
    }

    static final int PATIENCE_MS = 30_000; // the first requests wait for classes, long on a busy machine
    static final StringBuilder RESULT = new StringBuilder();

    public static void main(String[] args) {
        try {
            play(args[0], new MessageQueue(args[2], args[1], 0), Integer.parseInt(args[3]));
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    static RPCHook hook() {
        String key = System.getenv("SMOKE_ACCESS_KEY");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getenv("SMOKE_SECRET_KEY")));
    }

    static void play(String namesrv, MessageQueue queue, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed_senders", hook());
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("signed_pullers", hook());
        puller.setNamesrvAddr(namesrv);
        puller.setConsumerPullTimeoutMillis(PATIENCE_MS);
        puller.setMqClientApiTimeout(PATIENCE_MS);
        puller.start();
        note("queues", () -> producer.fetchPublishMessageQueues(queue.getTopic()).size());
        long sent = note("sent", () -> {
            for (int number = 0; number < count; number++) {
                producer.send(new Message(queue.getTopic(), ("m" + number).getBytes()), queue);
            }
            return count;
        });
        note("pulled", () -> {
            PullResult found = puller.pull(queue, "*", 0, 32);
            return found.getMsgFoundList() == null ? 0 : found.getMsgFoundList().size();
        });

        Set<String> consumed = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("signed_readers", hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                consumed.add(new String(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        note("started", () -> {
            consumer.start();
            return 1;
        });
        // What must not come is waited for as long as what comes takes at most on a machine with nothing else to do.
        for (int tenths = 0; tenths < (sent > 0 ? 900 : 50) && consumed.size() < count; tenths++) {
            Thread.sleep(100);
        }
        System.out.println("{" + RESULT + "\"consumed\": " + consumed.size() + "}");
    }

    /** Notes the number that a step ends with, or why it failed: the code of a server where one refused, and its text. */
    static long note(String name, Step step) throws Exception {
        Object found;
        try {
            found = step.take();
        } catch (MQBrokerException | MQClientException failed) {
            found = "\"" + reason(failed) + "\"";
        }
        RESULT.append("\"").append(name).append("\": ").append(found).append(", ");
        return found instanceof Long ? (Long) found : 0;
    }

    static String reason(Throwable failed) {
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return ((MQBrokerException) cause).getResponseCode() + " " + ((MQBrokerException) cause).getErrorMessage();
            }
            if (cause instanceof MQClientException && ((MQClientException) cause).getResponseCode() >= 0) {
                return ((MQClientException) cause).getResponseCode() + " " + ((MQClientException) cause).getErrorMessage();
            }
        }
        return failed.getMessage().lines().findFirst().orElse("");
    }
}
