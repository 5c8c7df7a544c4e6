import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/**
 * Steady traffic of the official gRPC client, as it is shipped, across a failover behind its proxy.  Every send, delivery and
 * late acknowledgement is one JSON line, for somebody else to judge; nothing here knows what happens to the servers.
 *
 * <pre>
 * ProxyTraffic --endpoints H:P --topic T --senders 3 --pause-ms 20 --delay-ms 5000 --hold-ms 4000
 *              --concurrent-group G --orderly-group G --holding-group G
 * </pre>
 * Lines: {"event":"consuming"}, after which the line "send" is awaited; {"event":"ready"}, {"event":"sent", key, sender, ok},
 * {"event":"delivered", group, key, retry, broker, queue, offset}, {"event":"acked", key, code, why}, {"event":"stopped"}.  The
 * line "stop" on standard input ends the sending; its end ends the program.  The sender "fifo" has a message group, each
 * message of "delayed" has a delivery time.  The holding group is a simple consumer that acknowledges each message only
 * some seconds after it came, by the handle of that time; code is what it is answered, "no answer" when it is not.
 */
public class ProxyTraffic {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Map<String, String> OPTIONS = new HashMap<>();
    static final Duration HIDDEN = Duration.ofSeconds(30);
    static volatile boolean sending = true, running = true;

    static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(OPTIONS.get("endpoints"))
            .setRequestTimeout(Duration.ofSeconds(5)).build();
    }

    static long number(String name) {
        return Long.parseLong(OPTIONS.get(name));
    }

    public static void main(String[] arguments) throws Exception {
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            OPTIONS.put(arguments[index].substring(2), arguments[index + 1]);
        }
        List<PushConsumer> consumers = new ArrayList<>();
        List<Thread> senders = new ArrayList<>();
        try {
            consumers.add(pushConsumer("concurrent-group"));
            consumers.add(pushConsumer("orderly-group"));
            Thread holder = new Thread(() -> hold(simpleConsumer()));
            holder.setDaemon(true);
            holder.start();
            // A send whose answer was lost, sent again, may be stored twice: that is not what is judged.
            Producer producer = PROVIDER.newProducerBuilder().setTopics(OPTIONS.get("topic")).setMaxAttempts(1)
                .setClientConfiguration(configuration()).build();
            for (int number = 0; number < number("senders"); number++) {
                String name = "sender-" + number;
                senders.add(new Thread(() -> send(producer, name)));
            }
            senders.add(new Thread(() -> send(producer, "fifo")));
            senders.add(new Thread(() -> send(producer, "delayed")));
        } catch (Exception error) {
            print("failed", "why", String.valueOf(error));
            Runtime.getRuntime().halt(1);
        }
        print("consuming");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.trim().equals("send")) {
                senders.forEach(Thread::start);
                print("ready");
            } else if (line.trim().equals("stop")) {
                sending = false;
                for (Thread sender : senders) {
                    sender.join();
                }
                print("stopped");
            }
        }
        running = false;
        Runtime.getRuntime().halt(0);
    }

    static void send(Producer producer, String sender) {
        for (int number = 0; sending; number++) {
            String key = sender + "-" + number;
            boolean delayed = sender.equals("delayed");
            MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(OPTIONS.get("topic"))
                .setBody(key.getBytes(StandardCharsets.UTF_8));
            if (delayed) {
                builder.setDeliveryTimestamp(System.currentTimeMillis() + number("delay-ms"));
            } else if (sender.equals("fifo")) {
                builder.setMessageGroup(sender);
            }
            String order = delayed ? key : sender;
            try {
                producer.send(builder.build());
                print("sent", "key", key, "sender", order, "ok", true);
            } catch (Exception error) {
                print("sent", "key", key, "sender", order, "ok", false, "why", String.valueOf(error.getMessage()));
            }
            pause(number("pause-ms"));
        }
    }

    static PushConsumer pushConsumer(String kind) throws ClientException {
        String group = OPTIONS.get(kind);
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration()).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(OPTIONS.get("topic"), FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                delivered(group, view);
                return ConsumeResult.SUCCESS;
            }).build();
    }

    static SimpleConsumer simpleConsumer() {
        while (true) {
            try {
                return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration())
                    .setConsumerGroup(OPTIONS.get("holding-group")).setAwaitDuration(Duration.ofSeconds(5))
                    .setSubscriptionExpressions(Collections.singletonMap(OPTIONS.get("topic"), FilterExpression.SUB_ALL))
                    .build();
            } catch (Exception error) {
                pause(200);
            }
        }
    }

    static void hold(SimpleConsumer consumer) {
        ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
        while (running) {
            try {
                for (MessageView view : consumer.receive(16, HIDDEN)) {
                    delivered(OPTIONS.get("holding-group"), view);
                    later.schedule(() -> acknowledge(consumer, view), number("hold-ms"), TimeUnit.MILLISECONDS);
                }
            } catch (Exception error) {
                pause(200);
            }
        }
    }

    static void acknowledge(SimpleConsumer consumer, MessageView view) {
        consumer.ackAsync(view).whenComplete(
            (done, error) -> print("acked", "key", text(view), "code", code(error), "why", why(error)));
    }

    static String code(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ClientException && String.valueOf(each.getMessage()).contains("response-code=")) {
                return each.getMessage().replaceFirst("(?s).*response-code=(\\d+).*", "$1");
            }
        }
        return error == null ? "20000" : "no answer: " + error;
    }

    /** What the status says beside its code. */
    static String why(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ClientException) {
                return String.valueOf(each.getMessage()).replaceFirst("(?s)^\\[[^\\]]*\\] *", "");
            }
        }
        return error == null ? "" : String.valueOf(error);
    }

    static String text(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    /** The handle says where a message came from: topic kind (0: not a retry), broker, queue and offset are its 5th to 8th part. */
    static void delivered(String group, MessageView view) {
        String[] parts = ((MessageViewImpl) view).getReceiptHandle().split(" ");
        print("delivered", "group", group, "key", text(view), "retry", !parts[4].equals("0"), "broker", parts[5],
            "queue", Integer.parseInt(parts[6]), "offset", Long.parseLong(parts[7]));
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static synchronized void print(String event, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\": \"" + event + "\"");
        for (int index = 0; index < pairs.length; index += 2) {
            Object value = pairs[index + 1];
            String shown = value instanceof String ? '"' + ((String) value).replaceAll("[\\p{Cntrl}\"\\\\]", " ") + '"' : "" + value;
            line.append(", \"").append(pairs[index]).append("\": ").append(shown);
        }
        System.out.println(line.append("}"));
        System.out.flush();
    }
}
