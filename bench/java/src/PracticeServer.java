import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.netty.NettyRemotingServer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import io.netty.channel.ChannelHandlerContext;

/**
 * A name server and broker inside this process that knows every topic and takes every message.  A client that has sent to it
 * has loaded its classes: what it measures afterwards is the server's start, not its own.
 */
final class PracticeServer implements NettyRequestProcessor {
    private static final int SENDS = 300;
    private int port;

    /** Sends some hundred messages to a server that lives only as long as that takes. */
    static void practise() throws Exception {
        NettyServerConfig config = new NettyServerConfig();
        config.setBindAddress("127.0.0.1");
        config.setListenPort(0);
        PracticeServer handler = new PracticeServer();
        NettyRemotingServer server = new NettyRemotingServer(config);
        ExecutorService threads = Executors.newFixedThreadPool(2);
        server.registerDefaultProcessor(handler, threads);
        server.start();
        handler.port = server.localListenPort();
        DefaultMQProducer producer = new DefaultMQProducer("practice");
        producer.setNamesrvAddr("127.0.0.1:" + handler.port);
        producer.setInstanceName("practice" + System.nanoTime());
        try {
            producer.start();
            for (int i = 0; i < SENDS; i++) {
                producer.send(new Message("Practice", new byte[16]), 3000);
            }
        } finally {
            producer.shutdown();
            server.shutdown();
            threads.shutdown();
        }
    }

    @Override
    public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request) {
        if (request.getCode() == RequestCode.GET_ROUTEINFO_BY_TOPIC) {
            RemotingCommand answer = RemotingCommand.createResponseCommand(ResponseCode.SUCCESS, null);
            answer.setOpaque(request.getOpaque());
            answer.setBody(route().encode());
            return answer;
        }
        RemotingCommand answer = RemotingCommand.createResponseCommand(SendMessageResponseHeader.class);
        SendMessageResponseHeader header = (SendMessageResponseHeader) answer.readCustomHeader();
        header.setMsgId("7F00000100002A9F0000000000000000");
        header.setQueueId(0);
        header.setQueueOffset(0L);
        answer.setCode(ResponseCode.SUCCESS);
        answer.setOpaque(request.getOpaque());
        return answer;
    }

    @Override
    public boolean rejectRequest() {
        return false;
    }

    private TopicRouteData route() {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "127.0.0.1:" + port);
        QueueData queues = new QueueData();
        queues.setBrokerName("practice");
        queues.setReadQueueNums(4);
        queues.setWriteQueueNums(4);
        queues.setPerm(6);
        TopicRouteData route = new TopicRouteData();
        route.setBrokerDatas(new ArrayList<>(List.of(new BrokerData("practice", "practice", addresses))));
        route.setQueueDatas(new ArrayList<>(List.of(queues)));
        route.setFilterServerTable(new HashMap<>());
        return route;
    }
}
