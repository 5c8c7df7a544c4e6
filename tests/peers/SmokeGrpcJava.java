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
            String[] begun = {"sh", "-c", System.getenv("SMOKE_AWAIT_GROUP") + " GID_java_push javapush"};
            if (new ProcessBuilder(begun).inheritIO().start().waitFor() != 0) {
                return "the group has not begun";
            }
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

    static String transaction() throws Exception {
        Set<String> asked = Collections.newSetFromMap(new ConcurrentHashMap<>());
        try (SimpleConsumer consumer = simpleConsumer("GID_java_tran", "tran");
             Producer producer = PROVIDER.newProducerBuilder().setTopics("tran").setClientConfiguration(configuration)
                 .setTransactionChecker(view -> {
                     asked.add(text(view));
                     return text(view).equals("asked-yes") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
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
        ExecutorService threads = Executors.newFixedThreadPool(3);
        List<Future<?>> runs = new ArrayList<>();
        runs.add(threads.submit(() -> tell("normal", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", SmokeGrpcJava::normal)));
        runs.add(threads.submit(() -> tell("push", "{0=1, 1=1, 2=1, 3=2, 4=1}", SmokeGrpcJava::push)));
        runs.add(threads.submit(() -> tell("transaction", "[asked-yes, committed] [asked-no, asked-yes]", SmokeGrpcJava::transaction)));
        for (Future<?> run : runs) {
            run.get(240, TimeUnit.SECONDS);
        }
        System.exit(0);
    }
}
