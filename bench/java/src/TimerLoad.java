import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Timer messages that fall due one after the other within a time: how late they come to a consumer that waits. */
final class TimerLoad {
    private static final long WARMUP_DELAY_MS = 3000;
    private static final int LIMIT_AFTER_S = 60;

    /** What came of one lot of messages: each has its number and its time in its body. */
    private static final class Lot {
        final long[] lateMs;
        final BitSet arrived = new BitSet();
        final CountDownLatch left;

        Lot(int count) {
            lateMs = new long[count];
            left = new CountDownLatch(count);
        }

        synchronized boolean add(int number, long late) {
            if (arrived.get(number)) {
                return false;
            }
            arrived.set(number);
            lateMs[number] = late;
            left.countDown();
            return true;
        }
    }

    static void run(Cli cli, Map<String, Object> out) throws Exception {
        String topic = cli.required("topic");
        byte[] body = Load.body(Math.max(16, cli.number("size", 1024)));
        int count = cli.number("count", 100_000);
        long withinMs = cli.number("within", 60) * 1000L;
        DefaultMQProducer producer = Load.producer(cli, "load_timer");
        Semaphore inflight = new Semaphore(cli.number("inflight", 256));
        Map<String, Integer> errors = new ConcurrentHashMap<>();
        AtomicLong acked = new AtomicLong();
        AtomicLong duplicates = new AtomicLong();
        Lot warmup = new Lot(cli.number("warmup-count", 2000));
        Lot measured = new Lot(count);
        producer.setRetryTimesWhenSendFailed(5);
        producer.send(new Message(topic, new byte[1]));              // the topic exists before the consumer starts
        DefaultMQPushConsumer consumer = Load.pushConsumer(cli);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            for (MessageExt message : messages) {
                if (message.getBody().length >= 16) {
                    ByteBuffer read = ByteBuffer.wrap(message.getBody());
                    int number = (int) read.getLong();
                    Lot lot = number < 0 ? warmup : measured;
                    if (!lot.add(number < 0 ? -1 - number : number, now - read.getLong())) {
                        duplicates.incrementAndGet();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int i = 0; i < warmup.lateMs.length; i++) {
            send(producer, topic, body, -1 - i, System.currentTimeMillis() + WARMUP_DELAY_MS, inflight, acked, errors);
        }
        warmup.left.await(LIMIT_AFTER_S, TimeUnit.SECONDS);
        long first = System.currentTimeMillis() + cli.number("lead", 30) * 1000L;
        for (int i = 0; i < count; i++) {
            send(producer, topic, body, i, first + withinMs * i / count, inflight, acked, errors);
        }
        long sentMs = System.currentTimeMillis();
        long limit = first + withinMs + LIMIT_AFTER_S * 1000L - System.currentTimeMillis();
        boolean complete = measured.left.await(limit, TimeUnit.MILLISECONDS);
        if (sentMs > first) {
            out.put("failed", "the last was sent " + (sentMs - first) + " ms after the first was due: more --lead is needed");
        }
        if (!complete) {
            errors.put("NOT_DELIVERED", (int) measured.left.getCount());
        }
        long[] late;
        synchronized (measured) {
            late = measured.arrived.stream().mapToLong(i -> measured.lateMs[i]).sorted().toArray();
        }
        out.put("count", late.length);
        out.put("acked_with_warmup", acked.get());
        out.put("duplicates", duplicates.get());
        out.put("errors", new TreeMap<>(errors));
        out.put("sent_before_due_ms", first - sentMs);
        if (late.length > 0) {
            out.put("early", Arrays.stream(late).filter(ms -> ms < 0).count());
            out.put("late_min_ms", late[0]);
            out.put("late_p50_ms", late[late.length / 2]);
            out.put("late_p99_ms", late[(int) Math.ceil(late.length * 0.99) - 1]);
            out.put("late_max_ms", late[late.length - 1]);
        }
        Load.close(consumer::shutdown);
        Load.close(producer::shutdown);
    }

    private static void send(DefaultMQProducer producer, String topic, byte[] template, int number, long due, Semaphore inflight,
                             AtomicLong acked, Map<String, Integer> errors) throws Exception {
        byte[] body = template.clone();
        ByteBuffer.wrap(body).putLong(number).putLong(due);
        Message message = new Message(topic, body);
        message.setDeliverTimeMs(due);
        inflight.acquire();
        producer.send(message, new SendCallback() {
            @Override public void onSuccess(SendResult result) {
                inflight.release();
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    acked.incrementAndGet();
                } else {
                    errors.merge(result.getSendStatus().name(), 1, Integer::sum);
                }
            }

            @Override public void onException(Throwable e) {
                inflight.release();
                errors.merge(Load.kind(e), 1, Integer::sum);
            }
        });
    }

    private TimerLoad() {
    }
}
