import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real Java client with a topic that has batch queues: java -cp 'HOME/lib/*' SmokeBatchQueues.java NAMESRV BROKER TOPIC.
 * Prints one JSON line of what it saw; numbers and texts only.
 */
public class SmokeBatchQueues {
    static final int PATIENCE_MS = 30_000; // the first requests wait for classes, long on a busy machine
    static String topic;

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
        topic = args[2];
        DefaultMQProducer producer = new DefaultMQProducer("batch_senders");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        MessageQueue queue = new MessageQueue(topic, args[1], 0);
        List<String> sent = new ArrayList<>();
        sent.add(told(producer.send(messages("m0", "m1", "m2"), queue)));
        sent.add(told(producer.send(message("m3"), queue)));
        sent.add(told(producer.send(messages("m4", "m5"), queue)));

        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("batch_pullers");
        puller.setNamesrvAddr(args[0]);
        puller.setConsumerPullTimeoutMillis(PATIENCE_MS);
        puller.setMqClientApiTimeout(PATIENCE_MS);
        puller.start();
        PullResult all = puller.pull(queue, "*", 0, 32);
        PullResult inside = puller.pull(queue, "*", 1, 1);
        PullResult single = puller.pull(queue, "*", 3, 1);
        PullResult tagged = puller.pull(queue, "tag", 0, 32);
        long begin = puller.minOffset(queue);
        long end = puller.maxOffset(queue);

        Set<String> failed = ConcurrentHashMap.newKeySet();
        Map<String, Integer> consumed = new ConcurrentSkipListMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("batch_readers");
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (body.equals("m1") && failed.add(body)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                consumed.merge(body, 1, Integer::sum);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int tenths = 0; tenths < 900 && consumed.size() < 6; tenths++) {
            Thread.sleep(100);
        }
        producer.send(messages("m6", "m7"), queue);
        for (int tenths = 0; tenths < 300 && consumed.size() < 8; tenths++) {
            Thread.sleep(100);
        }
        System.out.println("{\"sent\": " + sent + ", \"all\": " + bodies(all) + ", \"next\": "
            + all.getNextBeginOffset() + ", \"inside\": " + bodies(inside) + ", \"insideNext\": "
            + inside.getNextBeginOffset() + ", \"single\": " + bodies(single) + ", \"tagged\": " + bodies(tagged) + ", \"begin\": " + begin
            + ", \"end\": " + end + ", \"consumed\": " + quoted(consumed.keySet()) + ", \"again\": "
            + quoted(failed) + "}");
        consumer.shutdown();
        puller.shutdown();
        producer.shutdown();
    }

    static Message message(String body) {
        return new Message(topic, "tag", "key-" + body, body.getBytes());
    }

    static List<Message> messages(String... bodies) {
        List<Message> found = new ArrayList<>();
        for (String body : bodies) {
            found.add(message(body));
        }
        return found;
    }

    /** Status, queue offset, and how many ids the client and the broker gave. */
    static String told(SendResult result) {
        return "\"" + result.getSendStatus() + " " + result.getQueueOffset() + " " + result.getMsgId().split(",").length
            + " " + result.getOffsetMsgId().split(",").length + "\"";
    }

    static String bodies(PullResult result) {
        List<String> found = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                found.add(message.getQueueOffset() + " " + new String(message.getBody()) + " " + message.getTags());
            }
        }
        return quoted(found);
    }

    static String quoted(Iterable<String> texts) {
        List<String> found = new ArrayList<>();
        for (String text : texts) {
            found.add("\"" + text + "\"");
        }
        return found.toString();
    }
}
