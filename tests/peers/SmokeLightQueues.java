import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real Java client with light message queues: java -cp 'HOME/lib/*' SmokeLightQueues.java NAMESRV BROKER.
 * Prints one JSON line of what it saw; numbers and texts only.
 */
public class SmokeLightQueues {
    static final String PARENT = "LightParent";
    static final int PATIENCE_MS = 30_000; // the first requests wait for classes, long on a busy machine

    public static void main(String[] args) {
        try {
            play(args);
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    static void play(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("light_senders");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("%LMQ%readers");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumerPullTimeoutMillis(PATIENCE_MS);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.start();
        MessageQueue first = new MessageQueue("%LMQ%home%1", args[1], 0);
        MessageQueue second = new MessageQueue("%LMQ%home%2", args[1], 0);
        for (int number = 0; number < 5; number++) {
            send(producer, "m" + number, number % 2 == 0 ? "%LMQ%home%1" : "%LMQ%home%2,%LMQ%home%1");
        }
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .updateTopicRouteInfoFromNameServer(PARENT); // light queues have no route; this one says where the broker is

        PullResult all = consumer.pull(first, "*", 0, 32);
        PullResult some = consumer.pull(second, "*", 1, 32);
        long end = consumer.maxOffset(first);
        long begin = consumer.minOffset(first);
        long byTime = consumer.searchOffset(first, 1);
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffsetToBroker(first, 3, false);
        long committed = consumer.fetchConsumeOffset(first, true);

        Thread later = new Thread(() -> {
            try {
                Thread.sleep(300);
                send(producer, "awaited", "%LMQ%home%1");
            } catch (Exception failed) {
                failed.printStackTrace();
            }
        });
        later.start();
        PullResult awaited = consumer.pullBlockIfNotFound(first, "*", end, 32);
        later.join();
        String refused = "";
        try {
            send(producer, "refused", "no light queue");
        } catch (MQBrokerException error) {
            refused = error.getResponseCode() + "";
        }
        System.out.println("{\"all\": " + bodies(all) + ", \"some\": " + bodies(some) + ", \"next\": "
            + all.getNextBeginOffset() + ", \"begin\": " + begin + ", \"end\": " + end + ", \"byTime\": " + byTime
            + ", \"committed\": " + committed + ", \"awaited\": " + bodies(awaited) + ", \"offsets\": "
            + offsets(all) + ", \"refused\": \"" + refused + "\"}");
        consumer.shutdown();
        producer.shutdown();
    }

    static void send(DefaultMQProducer producer, String body, String names) throws Exception {
        Message message = new Message(PARENT, "tag", body.getBytes("UTF-8"));
        MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", names);
        producer.send(message);
    }

    static String bodies(PullResult result) throws Exception {
        List<String> found = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                found.add("\"" + new String(message.getBody(), "UTF-8") + "\"");
            }
        }
        return found.toString();
    }

    static String offsets(PullResult result) {
        List<String> found = new ArrayList<>();
        for (MessageExt message : result.getMsgFoundList()) {
            found.add("\"" + message.getProperty("INNER_MULTI_QUEUE_OFFSET") + "\"");
        }
        return found.toString();
    }
}
