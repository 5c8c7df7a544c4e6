import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Several members, several topics, and what a client or the broker refuses to send. */
final class MemberScenarios {
    static void register(Map<String, Interop.Scenario> all) {
        all.put("balance_four", MemberScenarios::balanceFour);
        all.put("broadcast_late", MemberScenarios::broadcastLate);
        all.put("broadcast_groups", MemberScenarios::broadcastGroups);
        all.put("broadcast_tags", MemberScenarios::broadcastTags);
        all.put("several_topics", MemberScenarios::severalTopics);
        all.put("async_failures", MemberScenarios::asyncFailures);
        all.put("message_validity", MemberScenarios::messageValidity);
        all.put("same_instance", MemberScenarios::sameInstance);
    }

    private static void send(Env env, String topic, String tag, int from, int to) throws Exception {
        DefaultMQProducer producer = env.producer();
        for (int i = from; i < to; i++) {
            env.sent(producer.send(new Message(topic, tag, Env.bytes(tag + i))));
        }
    }

    private static int assigned(Env.Inbox inbox, String topic) {
        return (int) inbox.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(q -> q.getTopic().equals(topic)).count();
    }

    private static Set<String> union(List<Env.Inbox> inboxes) {
        Set<String> out = new TreeSet<>();
        inboxes.forEach(inbox -> out.addAll(inbox.texts()));
        return out;
    }

    private static String balanceFour(Env env) throws Exception {
        String topic = env.topic(8);
        int queues = env.producer().fetchPublishMessageQueues(topic).size();
        AtomicInteger changes = new AtomicInteger();
        List<Env.Inbox> members = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            members.add(env.inbox(env.groupName(""), topic, "*", c -> c.setMessageQueueListener((t, all, mine) -> changes.incrementAndGet())));
        }
        Env.await("four members share evenly", 30, () -> members.stream().allMatch(m -> assigned(m, topic) == queues / 4));
        Env.await("a call of each queue listener", 5, () -> changes.get() >= 4);    // they are told after they have the queues
        send(env, topic, "a", 0, 80);
        Env.await("80 messages", 20, () -> union(members).size() == 80);
        Env.check(members.stream().allMatch(m -> m.all.size() >= 10), "unfair");
        int before = changes.get();
        members.get(3).consumer.shutdown();
        members.get(2).consumer.shutdown();
        long took = Env.await("two members take over", 30, () -> members.stream().limit(2).allMatch(m -> assigned(m, topic) == queues / 2));
        Env.await("queue listeners", 5, () -> changes.get() > before);
        send(env, topic, "b", 0, 40);
        Env.await("40 more", 20, () -> union(members).size() == 120);
        return "4 members, 2 left, taken over after " + took + " ms";
    }

    private static Env.Inbox broadcaster(Env env, String group, String topic, String tags, ConsumeFromWhere where) throws Exception {
        Env.Inbox inbox = env.inbox(group, topic, tags, c -> {
            c.setMessageModel(MessageModel.BROADCASTING);
            c.setConsumeFromWhere(where);
        });
        int queues = env.producer().fetchPublishMessageQueues(topic).size();
        Env.await("its queues", 25, () -> assigned(inbox, topic) == queues);        // and where it begins in each of them
        return inbox;
    }

    private static String broadcastLate(Env env) throws Exception {
        String topic = env.topic(2);
        Env.Inbox first = broadcaster(env, env.groupName(""), topic, "*", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        send(env, topic, "a", 0, 10);
        first.awaitCount(10, 20);
        Env.Inbox late = broadcaster(env, env.groupName("late"), topic, "*", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        send(env, topic, "b", 0, 10);
        first.awaitCount(20, 20);
        late.awaitCount(10, 20);
        first.consumer.shutdown();
        send(env, topic, "c", 0, 10);
        late.awaitCount(20, 20);
        Thread.sleep(500);
        Env.same(20, late.all.size(), "messages of the late member");
        Env.check(late.texts().stream().noneMatch(t -> t.startsWith("a")), "the late member got old messages");
        return "a late member got only new messages, and went on when the first one left";
    }

    private static String broadcastGroups(Env env) throws Exception {
        String topic = env.topic(2);
        List<Env.Inbox> members = new ArrayList<>();
        for (String group : List.of("x", "x", "y")) {
            members.add(broadcaster(env, env.groupName(group), topic, "*", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        }
        Env.Inbox clustered = env.inbox(env.groupName("z"), topic);
        send(env, topic, "a", 0, 20);
        for (Env.Inbox member : members) {
            member.awaitCount(20, 20);
        }
        clustered.awaitCount(20, 25);
        Thread.sleep(300);
        Env.check(members.stream().allMatch(m -> m.all.size() == 20), "repeated messages");
        return "3 members of 2 broadcast groups and a clustered one got all 20 each";
    }

    private static String broadcastTags(Env env) throws Exception {
        String topic = env.topic(2);
        Env.Inbox one = broadcaster(env, env.groupName("x"), topic, "a", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Env.Inbox two = broadcaster(env, env.groupName("y"), topic, "a || b", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String tag : List.of("a", "b", "c")) {
            send(env, topic, tag, 0, 10);
        }
        one.awaitCount(10, 20);
        two.awaitCount(20, 20);
        Thread.sleep(300);
        Env.same(10, one.all.size(), "messages with tag a");
        Env.same(20, two.all.size(), "messages with tag a or b");
        return "tags hold for broadcast groups too";
    }

    private static String severalTopics(Env env) throws Exception {
        List<String> topics = List.of(env.topic("1", 2, 6), env.topic("2", 2, 6), env.topic("3", 2, 6));
        List<Env.Inbox> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            var consumer = env.newPush(env.groupName(""));
            consumer.subscribe(topics.get(0), "*");
            consumer.subscribe(topics.get(1), "keep");
            consumer.subscribe(topics.get(2), "*");
            members.add(new Env.Inbox(consumer).start());
        }
        for (String topic : topics) {
            send(env, topic, "keep" + topics.indexOf(topic) + "_", 0, 10);
            send(env, topic, "keep", 0, 10);
        }
        Set<String> got = new TreeSet<>();                          // a queue that changes its member may repeat messages
        Env.await("50 messages", 30, () -> {
            members.forEach(member -> member.all.forEach(m -> got.add(m.getTopic() + " " + Env.text(m))));
            return got.size() == 50;
        });
        Env.check(members.stream().flatMap(member -> member.all.stream())
            .noneMatch(m -> m.getTopic().equals(topics.get(1)) && !m.getTags().equals("keep")), "a tag that was not asked for");
        return "2 members, 3 topics, one of them filtered by tag";
    }

    private static String asyncFailures(Env env) throws Exception {
        String topic = env.topic(1);
        DefaultMQProducer producer = env.producer();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        AtomicInteger answers = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            @Override public void onSuccess(SendResult result) {
                answers.incrementAndGet();
            }

            @Override public void onException(Throwable e) {
                failure.set(e);
                answers.incrementAndGet();
            }
        };
        producer.setRetryTimesWhenSendAsyncFailed(0);
        Message tooLong = new Message(topic, Env.bytes("x"));
        tooLong.putUserProperty("long", "p".repeat(40_000));
        producer.send(tooLong, callback);
        Env.await("a callback", 15, () -> answers.get() == 1);
        Env.check(failure.get() instanceof MQBrokerException, "long properties: %s", failure.get());
        Env.same(ResponseCode.MESSAGE_ILLEGAL, ((MQBrokerException) failure.get()).getResponseCode(), "code for long properties");
        failure.set(null);
        producer.send(new Message(topic, new byte[0]), callback);
        Env.await("a callback", 15, () -> answers.get() == 2);
        Env.check(failure.get() instanceof MQClientException, "empty body: %s", failure.get());
        failure.set(null);
        producer.send(new Message(topic, Env.bytes("good")), callback);
        Env.await("a callback", 15, () -> answers.get() == 3);
        Env.check(failure.get() == null, "a good message failed: %s", failure.get());
        return "each failure reached its callback, the connection lived on";
    }

    private static String messageValidity(Env env) throws Exception {
        String topic = env.topic(1);
        DefaultMQProducer producer = env.producer();
        for (byte[] body : new byte[][] {null, new byte[0], new byte[4 * 1024 * 1024 + 1]}) {
            try {
                producer.send(new Message(topic, body));
                throw new AssertionError("a body of " + (body == null ? "nothing" : body.length + " bytes") + " was taken");
            } catch (MQClientException e) {
                Env.same(ResponseCode.MESSAGE_ILLEGAL, e.getResponseCode(), "code");
            }
        }
        for (String name : List.of("", "has space", "t".repeat(128), "SCHEDULE_TOPIC_XXXX")) {
            try {
                producer.send(new Message(name, Env.bytes("x")));
                throw new AssertionError("topic '" + name + "' was taken");
            } catch (MQClientException e) {
                Env.check(e.getMessage() != null, "no reason for topic '%s'", name);
            }
        }
        Message message = new Message(topic, Env.bytes("中文"));
        message.putUserProperty("名", "值 größe");
        message.putUserProperty("long", "p".repeat(8_000));
        env.sent(producer.send(message));
        byte[] large = new byte[128 * 1024];
        env.sent(producer.send(new Message(topic, large)));
        Env.Inbox inbox = env.inbox(env.groupName(""), topic);
        inbox.awaitCount(2, 25);
        var first = inbox.all.stream().filter(m -> m.getBody().length < 100).findFirst().get();
        Env.same("值 größe", first.getUserProperty("名"), "property");
        Env.same(8_000, first.getUserProperty("long").length(), "length of the long property");
        Env.check(inbox.all.stream().anyMatch(m -> m.getBody().length == large.length), "no message of 128 KiB");
        return "3 bodies and 4 topics refused; unicode, a long property and 128 KiB came through";
    }

    private static String sameInstance(Env env) throws Exception {
        DefaultMQProducer first = new DefaultMQProducer(env.groupName(""));
        DefaultMQProducer second = new DefaultMQProducer(env.groupName(""));
        DefaultMQProducer third = new DefaultMQProducer(env.groupName(""));
        String name = Env.instance();
        first.setInstanceName(name);
        second.setInstanceName(name);
        third.setInstanceName(Env.instance());
        env.start(third);
        first.setNamesrvAddr(env.namesrv);
        second.setNamesrvAddr(env.namesrv);
        env.closed(first, first::shutdown).start();
        try {
            second.start();
            throw new AssertionError("a second producer of one group and instance started");
        } catch (MQClientException expected) {
            String topic = env.topic(1);
            env.sent(first.send(new Message(topic, Env.bytes("1"))));
            env.sent(third.send(new Message(topic, Env.bytes("3"))));
            return "refused; another instance name works";
        }
    }

    private MemberScenarios() {
    }
}
