import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The Java client asks for replies, or gives them, and traces what it does; one JSON line for each request.
 *
 * <pre>
 * Requests ask    --namesrv A --topic T [--count 5] [--timeout-ms 20000]      {"id", "asked", "reply"}, then it ends
 * Requests answer --namesrv A --topic T --group G        {"ready"}, then {"id", "asked"}, until standard input is closed
 * </pre>
 * The reply to `x` is `re: x`.
 */
public final class Requests {
    public static void main(String[] args) {
        Cli cli = new Cli(args);
        int exit = 0;
        try {
            if (cli.words.contains("ask")) {
                ask(cli);
            } else {
                answer(cli);
            }
        } catch (Exception e) {
            print("failed", String.valueOf(e));
            exit = 1;
        }
        Runtime.getRuntime().halt(exit);
    }

    private static DefaultMQProducer producer(Cli cli, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, true, null);
        producer.setNamesrvAddr(cli.required("namesrv"));
        producer.setInstanceName(group + System.nanoTime());
        producer.setSendMsgTimeout(cli.number("timeout-ms", 20_000));
        producer.start();
        return producer;
    }

    private static void ask(Cli cli) throws Exception {
        DefaultMQProducer producer = producer(cli, "java_asks");
        for (int i = 0; i < cli.number("count", 5); i++) {
            String text = "question " + i;
            Message request = new Message(cli.required("topic"), "", "key" + i, text.getBytes(StandardCharsets.UTF_8));
            Message reply = producer.request(request, cli.number("timeout-ms", 20_000));
            String id = org.apache.rocketmq.common.message.MessageClientIDSetter.getUniqID(request);
            print("id", id, "asked", text, "reply", new String(reply.getBody(), StandardCharsets.UTF_8));
        }
        producer.shutdown();                     // writes what is still to be traced
    }

    private static void answer(Cli cli) throws Exception {
        DefaultMQProducer replies = producer(cli, "java_answers");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(cli.required("group"), true, null);
        consumer.setNamesrvAddr(cli.required("namesrv"));
        consumer.setInstanceName("answer" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(cli.required("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String text = new String(message.getBody(), StandardCharsets.UTF_8);
                try {
                    replies.send(MessageUtil.createReplyMessage(message, ("re: " + text).getBytes(StandardCharsets.UTF_8)));
                } catch (Exception e) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                print("id", message.getMsgId(), "asked", text);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        print("ready", "true");
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException e) {
            // its end
        }
        consumer.shutdown();
        replies.shutdown();
    }

    private static synchronized void print(String... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            line.put(pairs[i], pairs[i + 1]);
        }
        Cli.print(line);
    }
}
