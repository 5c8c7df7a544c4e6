import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real Java client with a static topic: java -cp 'HOME/lib/*' SmokeStaticTopic.java NAMESRV TOPIC.
 * Sends to every queue in turn and consumes in order, until its standard input ends; then it waits for what is missing.
 * Prints "running" when the first message has arrived, and at last one JSON line: by queue how many were sent, whether
 * all came once and in order, at the offset that their sender was told; brokers that names of queues show; refusals.
 */
public class SmokeStaticTopic {
    static final int PATIENCE_MS = 30_000;
    static final Map<Integer, List<String>> SENT = new TreeMap<>();
    static final Map<Integer, List<String>> GOT = new TreeMap<>();
    static final Map<String, Long> TOLD = new HashMap<>();
    static final Map<String, Long> FOUND = new HashMap<>();
    static int refused;

    public static void main(String[] args) {
        try {
            play(args[0], args[1]);
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    static void play(String namesrv, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("static_readers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000); // so that it learns soon where queues have gone
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            synchronized (GOT) {
                for (MessageExt message : messages) {
                    String body = new String(message.getBody());
                    GOT.computeIfAbsent(message.getQueueId(), id -> new ArrayList<>()).add(body);
                    FOUND.put(body, message.getQueueOffset());
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        DefaultMQProducer producer = new DefaultMQProducer("static_writers");
        producer.setNamesrvAddr(namesrv);
        producer.setPollNameServerInterval(1_000);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        consumer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        boolean running = false;
        for (int round = 0; System.in.available() == 0; round++) {
            for (MessageQueue queue : queues) {
                String body = queue.getQueueId() + "-" + round;
                SendResult result = send(producer, queue, body);
                SENT.computeIfAbsent(queue.getQueueId(), id -> new ArrayList<>()).add(body);
                TOLD.put(body, result.getQueueOffset());
            }
            synchronized (GOT) {
                if (!running && GOT.size() == queues.size()) {
                    running = true;
                    System.out.println("running");
                }
            }
            Thread.sleep(10);
        }
        long deadline = System.currentTimeMillis() + 60_000;
        while (missing() > 0 && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
        }
        synchronized (GOT) {
            int elsewhere = 0;
            long undecided = 0;
            for (Map.Entry<String, Long> each : TOLD.entrySet()) {
                undecided += each.getValue() < 0 ? 1 : 0; // sent while it was not known yet where the queue goes on
                elsewhere += each.getValue() < 0 || each.getValue().equals(FOUND.get(each.getKey())) ? 0 : 1;
            }
            System.out.println("{\"queues\": " + queues.size() + ", \"brokers\": \"" + queues.get(0).getBrokerName()
                + "\", \"sent\": " + TOLD.size() + ", \"exact\": " + SENT.equals(GOT) + ", \"elsewhere\": " + elsewhere
                + ", \"undecided\": " + undecided + ", \"refused\": " + refused + ", \"missing\": " + missing() + "}");
        }
        consumer.shutdown();
        producer.shutdown();
    }

    static SendResult send(DefaultMQProducer producer, MessageQueue queue, String body) throws Exception {
        while (true) {
            try {
                return producer.send(new Message(queue.getTopic(), body.getBytes()), queue);
            } catch (MQBrokerException error) {
                if (error.getResponseCode() != 501) { // the queue has moved, and the client does not know yet
                    throw error;
                }
                refused++;
                Thread.sleep(50);
            }
        }
    }

    static int missing() {
        synchronized (GOT) {
            return SENT.values().stream().mapToInt(List::size).sum()
                - GOT.values().stream().mapToInt(List::size).sum();
        }
    }
}
