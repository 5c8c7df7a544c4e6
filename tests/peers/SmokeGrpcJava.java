import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official gRPC client for Java as it is shipped, TLS on: one JSON line for each scenario. Usage: HOST:PORT.
 * SMOKE_AWAIT_GROUP is a command that waits until the group and topic that follow have begun. */
public class SmokeGrpcJava {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final long LIMIT_MS = 120_000;
    static ClientConfiguration configuration;

    interface Scenario {
        String play() throws Exception;
    }

    static Message message(String topic, String body, String group) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic).setTag("tag").setKeys("key-" + body)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
        return (group == null ? builder : builder.setMessageGroup(group)).build();
    }

    static String text(MessageView view) {
        byte[] bytes = new byte[view.getBody().remaining()];
        view.getBody().get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static SimpleConsumer simpleConsumer(String group, String topic) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
    }

    static List<String> received(SimpleConsumer consumer, int count, long limitMs) throws Exception {
        List<String> bodies = new ArrayList<>();
        long end = System.currentTimeMillis() + limitMs;
        while (bodies.size() < count && System.currentTimeMillis() < end) {
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(60))) {
                bodies.add(text(view));
                consumer.ack(view);
            }
        }
        Collections.sort(bodies);
        return bodies;
    }

    static String normal() throws Exception {
        try (SimpleConsumer consumer = simpleConsumer("GID_java", "java");
             Producer producer = PROVIDER.newProducerBuilder().setTopics("java").setClientConfiguration(configuration).build()) {
            consumer.receive(1, Duration.ofSeconds(10));
            for (int number = 0; number < 10; number++) {
                producer.send(message("java", "" + number, null));
            }
            return received(consumer, 10, LIMIT_MS).toString();
        }
    }

    static String push() throws Exception {
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("GID_java_push")
            .setSubscriptionExpressions(Collections.singletonMap("javapush", FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                int times = attempts.merge(text(view), 1, Integer::sum);
                return text(view).equals("3") && times == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        try (Producer producer = PROVIDER.newProducerBuilder().setTopics("javapush").setClientConfiguration(configuration).build()) {
            awaitBegun("GID_java_push", "javapush");
            for (int number = 0; number < 5; number++) {
                producer.send(message("javapush", "" + number, null));
            }
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (System.currentTimeMillis() < end && (attempts.size() < 5 || attempts.getOrDefault("3", 0) < 2)) {
                Thread.sleep(50);
            }
            return new java.util.TreeMap<>(attempts).toString();
        } finally {
            consumer.close();
        }
    }

    /** Messages of each group in order; one that nobody can consume goes to the dead letters after two tries, the others go on. */
    static String fifo() throws Exception {
        List<String> consumed = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("GID_java_fifo")
            .setSubscriptionExpressions(Collections.singletonMap("javafifo", FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                consumed.add(text(view));
                return text(view).equals("a1") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        try (Producer producer = PROVIDER.newProducerBuilder().setTopics("javafifo").setClientConfiguration(configuration).build()) {
            awaitBegun("GID_java_fifo", "javafifo");
            for (int number = 0; number < 4; number++) {
                producer.send(message("javafifo", "a" + number, "a"));
                producer.send(message("javafifo", "b" + number, "b"));
            }
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (System.currentTimeMillis() < end && consumed.size() < 9) {
                Thread.sleep(50);
            }
            StringBuilder found = new StringBuilder();
            for (String group : List.of("a", "b")) {
                consumed.stream().filter(body -> body.startsWith(group)).forEach(body -> found.append(body).append(' '));
            }
            return found.toString().trim();
        } finally {
            consumer.close();
        }
    }

    /** A delayed message comes at its time, a recalled one never. */
    static String delay() throws Exception {
        try (SimpleConsumer consumer = simpleConsumer("GID_java_delay", "javadelay");
             Producer producer = PROVIDER.newProducerBuilder().setTopics("javadelay").setClientConfiguration(configuration).build()) {
            consumer.receive(1, Duration.ofSeconds(10));
            long due = System.currentTimeMillis() + 9_000;
            String handle = "";
            for (String name : List.of("kept", "recalled")) {
                handle = producer.send(PROVIDER.newMessageBuilder().setTopic("javadelay").setDeliveryTimestamp(due)
                    .setBody(name.getBytes(StandardCharsets.UTF_8)).build()).getRecallHandle();
            }
            producer.recallMessage("javadelay", handle);
            List<String> bodies = received(consumer, 2, 20_000);
            return bodies + (System.currentTimeMillis() >= due - 1_000 ? " in time" : " early");
        }
    }

    /** A condition over properties chooses; the time of what came is shortened, and it comes again. */
    static String sql() throws Exception {
        FilterExpression condition = new FilterExpression("number BETWEEN 3 AND 5", FilterExpressionType.SQL92);
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                 .setConsumerGroup("GID_java_sql").setAwaitDuration(Duration.ofSeconds(5))
                 .setSubscriptionExpressions(Collections.singletonMap("javasql", condition)).build();
             Producer producer = PROVIDER.newProducerBuilder().setTopics("javasql").setClientConfiguration(configuration).build()) {
            consumer.receive(1, Duration.ofSeconds(10));
            for (int number = 0; number < 10; number++) {
                producer.send(PROVIDER.newMessageBuilder().setTopic("javasql").addProperty("number", "" + number)
                    .setBody(("" + number).getBytes(StandardCharsets.UTF_8)).build());
            }
            Map<String, Integer> attempts = new java.util.TreeMap<>();
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (System.currentTimeMillis() < end && (attempts.size() < 3 || !attempts.containsValue(2))) {
                for (MessageView view : consumer.receive(16, Duration.ofSeconds(60))) {
                    attempts.put(text(view), view.getDeliveryAttempt());
                    if (text(view).equals("4") && view.getDeliveryAttempt() == 1) {
                        consumer.changeInvisibleDuration(view, Duration.ofSeconds(2));
                    } else {
                        consumer.ack(view);
                    }
                }
            }
            return attempts.toString();
        }
    }

    /** Lite topics are not served: a consumer of them does not start, and a message of one is not sent as another one. */
    static String lite() throws Exception {
        String found;
        try {
            PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("GID_java_lite")
                .bindTopic("java").setMessageListener(view -> ConsumeResult.SUCCESS).build();
            found = "a consumer started";
        } catch (Exception error) {
            found = "no consumer";
        }
        try (Producer producer = PROVIDER.newProducerBuilder().setTopics("java").setClientConfiguration(configuration).build()) {
            producer.send(PROVIDER.newMessageBuilder().setTopic("java").setLiteTopic("l").setBody(new byte[1]).build());
            return found + ", a message was sent";
        } catch (Exception error) {
            return found + ", no message";
        }
    }

    static void awaitBegun(String group, String topic) throws Exception {
        String[] begun = {"sh", "-c", System.getenv("SMOKE_AWAIT_GROUP") + " " + group + " " + topic};
        if (new ProcessBuilder(begun).inheritIO().start().waitFor() != 0) {
            throw new IllegalStateException("the group has not begun");
        }
    }

    static String transaction() throws Exception {
        Set<String> asked = Collections.newSetFromMap(new ConcurrentHashMap<>());
        try (SimpleConsumer consumer = simpleConsumer("GID_java_tran", "tran");
             Producer producer = PROVIDER.newProducerBuilder().setTopics("tran").setClientConfiguration(configuration)
                 .setTransactionChecker(view -> {
                     if (text(view).startsWith("asked")) {  // on a slow machine the others, too, before their decision is there
                         asked.add(text(view));
                     }
                     return Set.of("asked-yes", "committed").contains(text(view)) ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
                 }).build()) {
            consumer.receive(1, Duration.ofSeconds(10));
            for (String name : List.of("committed", "rolled-back", "asked-yes", "asked-no")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message("tran", name, null), transaction);
                if (name.equals("committed")) {
                    transaction.commit();
                } else if (name.equals("rolled-back")) {
                    transaction.rollback();
                }
            }
            List<String> bodies = received(consumer, 2, LIMIT_MS);
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (asked.size() < 2 && System.currentTimeMillis() < end) {
                Thread.sleep(50);  // the one to be rolled back may be asked about last
            }
            return bodies + " " + new java.util.TreeSet<>(asked);
        }
    }

    static void tell(String name, String expected, Scenario scenario) {
        String found;
        try {
            found = scenario.play();
        } catch (Throwable error) {
            found = String.valueOf(error).replaceAll("[\"\\\\\n\r]", "'");
        }
        synchronized (SmokeGrpcJava.class) {
            System.out.println("{\"name\": \"" + name + "\", \"ok\": " + found.equals(expected) + ", \"found\": \"" + found + "\"}");
        }
    }

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0]).build();
        ExecutorService threads = Executors.newFixedThreadPool(7);
        List<Future<?>> runs = new ArrayList<>();
        runs.add(threads.submit(() -> tell("normal", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", SmokeGrpcJava::normal)));
        runs.add(threads.submit(() -> tell("push", "{0=1, 1=1, 2=1, 3=2, 4=1}", SmokeGrpcJava::push)));
        runs.add(threads.submit(() -> tell("fifo", "a0 a1 a1 a2 a3 b0 b1 b2 b3", SmokeGrpcJava::fifo)));
        runs.add(threads.submit(() -> tell("delay", "[kept] in time", SmokeGrpcJava::delay)));
        runs.add(threads.submit(() -> tell("sql", "{3=1, 4=2, 5=1}", SmokeGrpcJava::sql)));
        runs.add(threads.submit(() -> tell("lite", "no consumer, no message", SmokeGrpcJava::lite)));
        runs.add(threads.submit(() -> tell("transaction", "[asked-yes, committed] [asked-no, asked-yes]", SmokeGrpcJava::transaction)));
        for (Future<?> run : runs) {
            run.get(240, TimeUnit.SECONDS);
        }
        System.exit(0);
    }
}
