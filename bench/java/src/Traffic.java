import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Steady traffic across a failover: senders that wait for each answer, a concurrent consumer and an orderly one.  Every send
 * and every delivery is one JSON line, for somebody else to judge; nothing here knows what happens to the servers.
 *
 * <pre>
 * Traffic --namesrv A --topic T[,T...] [--senders 3] [--delay-level 2] [--pause-ms 20] [--poll-ms 1000]
 *         [--concurrent-group G] [--orderly-group G] [--half-pause-ms 0]
 * </pre>
 * Lines: {"event":"ready"}, {"event":"sent", key, sender, ok, and when ok: broker, queue}, {"event":"delivered", group,
 * topic, key, broker, queue, offset}, {"event":"stopped"}.  The line "stop" on standard input ends the sending; its end ends the program.
 * With --half-pause-ms above 0 there is a sender of transactions, "half": of each four messages the first is committed, the
 * second rolled back, and about the others the broker has to ask, of which one is committed.  What is committed is "sent";
 * of the others {"event":"rolled back", key} tells, and nobody may get them.
 * Consumers commit before that.  A sender's name is in its keys; each message of the sender "delayed" has a delay level and
 * is an order of its own.
 */
public final class Traffic {
    private static final Map<String, Boolean> COMMITTED = new ConcurrentHashMap<>();
    private static volatile boolean sending = true;

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        List<Thread> senders = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        try {
            for (String kind : new String[] {"concurrent", "orderly"}) {
                consumers.add(consumer(cli, kind));
                consumers.get(consumers.size() - 1).start();
            }
            DefaultMQProducer producer = new DefaultMQProducer("traffic-writers");
            producer.setNamesrvAddr(cli.required("namesrv"));
            producer.setInstanceName("writers" + System.nanoTime());
            producer.setPollNameServerInterval(cli.number("poll-ms", 1000));
            producer.setRetryTimesWhenSendFailed(0);        // a lost answer, sent again, may be stored twice: not what is judged
            producer.start();
            for (int i = 0; i < cli.number("senders", 3); i++) {
                String name = "sender-" + i;
                senders.add(new Thread(() -> send(cli, producer, name, 0)));
            }
            if (!senders.isEmpty()) {
                senders.add(new Thread(() -> send(cli, producer, "delayed", cli.number("delay-level", 2))));
            }
            if (cli.number("half-pause-ms", 0) > 0) {
                TransactionMQProducer halves = halfProducer(cli);
                halves.start();
                senders.add(new Thread(() -> sendHalves(cli, halves)));
            }
        } catch (Exception e) {
            print("failed", "why", String.valueOf(e));
            Runtime.getRuntime().halt(1);
        }
        senders.forEach(Thread::start);
        print("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.trim().equals("stop")) {
                sending = false;
                for (Thread sender : senders) {
                    sender.join();
                }
                print("stopped");
            }
        }
        Thread closing = new Thread(() -> consumers.forEach(DefaultMQPushConsumer::shutdown));
        closing.setDaemon(true);
        closing.start();
        closing.join(10_000);                    // a client whose server is gone may hang in its own shutdown
        Runtime.getRuntime().halt(0);
    }

    private static void send(Cli cli, DefaultMQProducer producer, String sender, int level) {
        for (int number = 0; sending; number++) {
            String key = sender + "-" + number;
            Message message = new Message(cli.required("topic"), key.getBytes(StandardCharsets.UTF_8));
            if (level > 0) {
                message.setDelayTimeLevel(level);
            }
            String order = level > 0 ? key : sender;
            try {
                SendResult result = producer.send(message);
                MessageQueue queue = result.getMessageQueue();
                // Stored, though not everywhere yet, is still no acknowledgement.
                boolean ok = result.getSendStatus() == SendStatus.SEND_OK;
                print("sent", "key", key, "sender", order, "ok", ok, "broker", queue.getBrokerName(), "queue", queue.getQueueId());
            } catch (Exception e) {
                print("sent", "key", key, "sender", order, "ok", false, "why", String.valueOf(e.getMessage()));
            }
            try {
                Thread.sleep(cli.number("pause-ms", 20));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static TransactionMQProducer halfProducer(Cli cli) {
        TransactionMQProducer producer = new TransactionMQProducer("traffic-half-writers");
        producer.setNamesrvAddr(cli.required("namesrv"));
        producer.setInstanceName("half-writers" + System.nanoTime());
        producer.setPollNameServerInterval(cli.number("poll-ms", 1000));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                boolean committed = decide(key(message), (Integer) number % 4 % 3 == 0);
                return (Integer) number % 4 > 1 ? LocalTransactionState.UNKNOW : told(committed);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return told(decide(key(message), false));         // nobody was told that it is stored: it is not sent
            }
        });
        return producer;
    }

    /** Decides once, whoever asks first. */
    private static boolean decide(String key, boolean commit) {
        Boolean before = COMMITTED.putIfAbsent(key, commit);
        return before == null ? commit : before;
    }

    private static LocalTransactionState told(boolean committed) {
        return committed ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    private static String key(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void sendHalves(Cli cli, TransactionMQProducer producer) {
        for (int number = 0; sending; number++) {
            String key = "half-" + number;
            try {
                producer.sendMessageInTransaction(new Message(cli.required("topic"), key.getBytes(StandardCharsets.UTF_8)), number);
            } catch (Exception e) {
                // Whether the half message is stored is not known: it is rolled back, unless it was decided before.
            }
            if (decide(key, false)) {
                print("sent", "key", key, "sender", key, "ok", true);
            } else {
                print("rolled back", "key", key);
            }
            try {
                Thread.sleep(cli.number("half-pause-ms", 0));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static DefaultMQPushConsumer consumer(Cli cli, String kind) throws Exception {
        String group = cli.text(kind + "-group", kind + "-readers");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(cli.required("namesrv"));
        consumer.setInstanceName(kind + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(cli.number("poll-ms", 1000));
        for (String topic : cli.required("topic").split(",")) {
            consumer.subscribe(topic, "*");
        }
        if (kind.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                delivered(group, context.getMessageQueue(), messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                delivered(group, context.getMessageQueue(), messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        return consumer;
    }

    private static void delivered(String group, MessageQueue queue, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            print("delivered", "group", group, "topic", queue.getTopic(), "key", key(message),
                "broker", queue.getBrokerName(), "queue", queue.getQueueId(), "offset", message.getQueueOffset());
        }
    }

    private static synchronized void print(String event, Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        Cli.print(line);
    }

    private Traffic() {
    }
}
