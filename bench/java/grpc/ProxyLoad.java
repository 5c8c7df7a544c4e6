import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Load on a proxy by the official gRPC client: one JSON line. Options are --name value.
 *   send  --endpoints H:P --topic T --threads N --seconds S --warmup S --size BYTES
 *   touch --endpoints H:P --topic T --group G          the group begins here
 *   drain --endpoints H:P --topic T --group G --threads N --count N --timeout S    receive and acknowledge
 *   first --endpoints H:P --topic T --timeout S        begins before the proxy does: when was a send acknowledged?
 * --tls true secures connections.
 */
public class ProxyLoad {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final int BATCH = 32;
    static final int ACKS_UNDER_WAY = 256;
    static final Map<String, String> OPTIONS = new HashMap<>();

    static int number(String name, int standard) {
        return Integer.parseInt(OPTIONS.getOrDefault(name, "" + standard));
    }

    static ClientConfiguration configuration(long timeoutMs) {
        return ClientConfiguration.newBuilder().setEndpoints(OPTIONS.get("endpoints"))
            .setRequestTimeout(Duration.ofMillis(timeoutMs)).enableSsl(Boolean.parseBoolean(OPTIONS.get("tls"))).build();
    }

    static Producer producer(long timeoutMs) throws Exception {
        return PROVIDER.newProducerBuilder().setTopics(OPTIONS.get("topic")).setMaxAttempts(1)
            .setClientConfiguration(configuration(timeoutMs)).build();
    }

    static SimpleConsumer consumer() throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration(10_000))
            .setConsumerGroup(OPTIONS.get("group")).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(OPTIONS.get("topic"), FilterExpression.SUB_ALL)).build();
    }

    static Message message(byte[] body) {
        return PROVIDER.newMessageBuilder().setTopic(OPTIONS.get("topic")).setBody(body).build();
    }

    static void count(Map<String, Long> errors, Throwable error) {
        String why = String.valueOf(error.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", " ").replaceAll("[0-9]+", "#");
        String what = error.getClass().getSimpleName() + ": " + why.substring(0, Math.min(why.length(), 200));
        synchronized (errors) {
            errors.merge(what, 1L, Long::sum);
        }
    }

    static String json(Map<String, Long> errors) {
        StringBuilder text = new StringBuilder("{");
        for (Map.Entry<String, Long> each : errors.entrySet()) {
            text.append(text.length() > 1 ? ", " : "").append('"').append(each.getKey()).append("\": ").append(each.getValue());
        }
        return text.append("}").toString();
    }

    static void send() throws Exception {
        int threads = number("threads", 1);
        long warmup = number("warmup", 3) * 1_000_000_000L, measured = number("seconds", 5) * 1_000_000_000L;
        byte[] body = new byte[number("size", 1024)];
        Arrays.fill(body, (byte) 'x');
        Map<String, Long> errors = new TreeMap<>();
        AtomicLong all = new AtomicLong();
        long[][] latencies = new long[threads][];
        try (Producer producer = producer(5_000)) {
            long begin = System.nanoTime() + warmup, end = begin + measured;
            Thread[] running = new Thread[threads];
            for (int index = 0; index < threads; index++) {
                int own = index;
                running[index] = new Thread(() -> {
                    long[] found = new long[1 << 12];
                    int count = 0;
                    for (long at = System.nanoTime(); at < end; ) {
                        try {
                            producer.send(message(body));
                            all.incrementAndGet();
                            long now = System.nanoTime();
                            if (at >= begin && now < end) {
                                if (count == found.length) {
                                    found = Arrays.copyOf(found, 2 * count);
                                }
                                found[count++] = now - at;
                            }
                            at = now;
                        } catch (Exception error) {
                            count(errors, error);
                            at = System.nanoTime();
                        }
                    }
                    latencies[own] = Arrays.copyOf(found, count);
                });
                running[index].start();
            }
            for (Thread each : running) {
                each.join();
            }
        }
        long[] sorted = Arrays.stream(latencies).flatMapToLong(Arrays::stream).sorted().toArray();
        double seconds = measured / 1e9;
        System.out.printf("{\"count\": %d, \"acked_with_warmup\": %d, \"msgs_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"errors\": %s}%n",
            sorted.length, all.get(), sorted.length / seconds, at(sorted, 0.5), at(sorted, 0.99), json(errors));
    }

    static double at(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, part * sorted.length)] / 1e6;
    }

    static void touch() throws Exception {
        try (SimpleConsumer consumer = consumer()) {
            System.out.printf("{\"received\": %d}%n", consumer.receive(1, Duration.ofSeconds(10)).size());
        }
    }

    static void drain() throws Exception {
        int threads = number("threads", 4);
        long wanted = number("count", 1), limit = System.nanoTime() + number("timeout", 60) * 1_000_000_000L;
        AtomicLong acked = new AtomicLong(), received = new AtomicLong();
        Map<String, Long> errors = new TreeMap<>();
        Semaphore underWay = new Semaphore(ACKS_UNDER_WAY);
        try (SimpleConsumer consumer = consumer()) {
            long begin = System.nanoTime();
            AtomicLong last = new AtomicLong(begin);
            Thread[] running = new Thread[threads];
            for (int index = 0; index < threads; index++) {
                running[index] = new Thread(() -> {
                    while (received.get() < wanted && System.nanoTime() < limit) {
                        try {
                            List<MessageView> views = consumer.receive(BATCH, Duration.ofSeconds(120));
                            received.addAndGet(views.size());
                            for (MessageView view : views) {
                                underWay.acquire();
                                consumer.ackAsync(view).whenComplete((done, error) -> {
                                    underWay.release();
                                    if (error == null) {
                                        acked.incrementAndGet();
                                        last.set(System.nanoTime());
                                    } else {
                                        count(errors, error);
                                    }
                                });
                            }
                        } catch (Exception error) {
                            count(errors, error);
                        }
                    }
                });
                running[index].start();
            }
            for (Thread each : running) {
                each.join();
            }
            underWay.acquire(ACKS_UNDER_WAY);
            double seconds = (last.get() - begin) / 1e9;
            System.out.printf("{\"count\": %d, \"received\": %d, \"seconds\": %.3f, \"msgs_s\": %.1f, \"errors\": %s}%n",
                acked.get(), received.get(), seconds, acked.get() / seconds, json(errors));
        }
    }

    static void first() throws Exception {
        byte[] body = "first".getBytes(StandardCharsets.UTF_8);
        long limit = System.currentTimeMillis() + number("timeout", 120) * 1000L;
        String[] ends = OPTIONS.get("endpoints").split(":");
        try (Producer unused = producer(2_000)) {
            // what a client needs is loaded by this, and not while the proxy is waited for
        } catch (Exception error) {
            // nobody listens yet
        }
        System.out.println("{\"looping\": true}");
        while (System.currentTimeMillis() < limit) {
            try {
                new java.net.Socket(ends[0], Integer.parseInt(ends[1])).close();
            } catch (java.io.IOException error) {
                Thread.sleep(5);
                continue;
            }
            try (Producer producer = producer(2_000)) {
                producer.send(message(body));
                System.out.printf("{\"first_ack_epoch_ms\": %d}%n", System.currentTimeMillis());
                System.out.flush();
                System.exit(0);
            } catch (Exception | Error error) {
                Thread.sleep(5);
            }
        }
        System.out.println("{\"failed\": \"nothing was acknowledged in time\"}");
    }

    public static void main(String[] arguments) throws Exception {
        for (int index = 1; index + 1 < arguments.length; index += 2) {
            OPTIONS.put(arguments[index].substring(2), arguments[index + 1]);
        }
        switch (arguments[0]) {
            case "send": send(); break;
            case "touch": touch(); break;
            case "drain": drain(); break;
            case "first": first(); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }
}
