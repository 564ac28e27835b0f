import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.HashMap;
import java.util.List;
import org.apache.activemq.command.*;
import org.apache.activemq.openwire.OpenWireFormat;
import org.apache.activemq.openwire.OpenWireFormatFactory;
import org.apache.activemq.util.ByteSequence;

/**
 * Writes the frames that src/broker/activemq/wire/tests.rs reads and compares, by ActiveMQ's own classes. To write them anew:
 * java -cp "/usr/share/activemq/lib/*" tests/services/Golden.java > src/broker/activemq/wire/golden.txt
 */
public final class Golden {
    private static OpenWireFormat format;
    private static int version;

    public static void main(String[] args) throws Exception {
        for (int each : new int[] {12, 9}) {
            version = each;
            OpenWireFormatFactory factory = new OpenWireFormatFactory();
            factory.setTightEncodingEnabled(false);
            factory.setCacheEnabled(false);
            factory.setStackTraceEnabled(false);
            format = (OpenWireFormat) factory.createWireFormat();
            format.setVersion(version);
            format.setCacheEnabled(false);
            format.setTightEncodingEnabled(false);
            format.setStackTraceEnabled(false);
            commands();
            messages();
        }
        WireFormatInfo info = new OpenWireFormatFactory().createWireFormat() instanceof OpenWireFormat f ? f.getPreferedWireFormatInfo() : null;
        print("hello", info);
    }

    private static void print(String name, Object command) throws Exception {
        ByteSequence bytes = format.marshal(command);
        StringBuilder hex = new StringBuilder();
        for (int at = 0; at < bytes.length; at++) {
            hex.append(String.format("%02x", bytes.data[bytes.offset + at]));
        }
        System.out.println(version + " " + name + " " + hex);
    }

    private static <T extends BaseCommand> T numbered(T command, int number, boolean asks) {
        command.setCommandId(number);
        command.setResponseRequired(asks);
        return command;
    }

    private static final ConnectionId CONNECTION = new ConnectionId("ID:corelane-c-1");
    private static final SessionId SESSION = new SessionId(CONNECTION, 1);
    private static final ConsumerId CONSUMER = new ConsumerId(SESSION, 1);
    private static final ProducerId PRODUCER = new ProducerId(SESSION, 1);
    private static final ActiveMQQueue QUEUE = new ActiveMQQueue("orders");

    private static void commands() throws Exception {
        ConnectionInfo connection = numbered(new ConnectionInfo(CONNECTION), 1, true);
        connection.setClientId("ID:corelane-c");
        connection.setUserName("user");
        connection.setPassword("pässword");
        connection.setManageable(true);
        connection.setClientMaster(true);
        print("connection", connection);
        print("session", numbered(new SessionInfo(SESSION), 2, false));
        print("producer", numbered(new ProducerInfo(PRODUCER), 3, false));
        ConsumerInfo consumer = numbered(new ConsumerInfo(CONSUMER), 4, true);
        consumer.setDestination(QUEUE);
        consumer.setPrefetchSize(1200);
        consumer.setDispatchAsync(true);
        consumer.setNoRangeAcks(true);
        print("consumer", consumer);
        ConsumerControl window = numbered(new ConsumerControl(), 5, false);
        window.setDestination(QUEUE);
        window.setConsumerId(CONSUMER);
        window.setPrefetch(77);
        print("window", window);
        MessageAck ack = numbered(new MessageAck(), 6, true);
        ack.setDestination(QUEUE);
        ack.setConsumerId(CONSUMER);
        ack.setAckType(MessageAck.INDIVIDUAL_ACK_TYPE);
        MessageId id = new MessageId(new ProducerId(new SessionId(new ConnectionId("ID:host-1"), 1), 2), 3);
        id.setBrokerSequenceId(9);
        ack.setFirstMessageId(id);
        ack.setLastMessageId(id);
        ack.setMessageCount(1);
        print("ack", ack);
        RemoveInfo remove = numbered(new RemoveInfo(CONSUMER), 7, true);
        remove.setLastDeliveredSequenceId(-1);
        print("close", remove);
        DestinationInfo temporary = numbered(new DestinationInfo(CONNECTION, DestinationInfo.ADD_OPERATION_TYPE,
            new ActiveMQTempQueue("ID:corelane-c-1:1")), 8, true);
        print("temporary", temporary);
        print("alive", numbered(new KeepAliveInfo(), 9, true));
        print("shutdown", numbered(new ShutdownInfo(), 10, false));
        Response done = numbered(new Response(), 0, false);
        done.setCorrelationId(4);
        print("done", done);
        ExceptionResponse refused = numbered(new ExceptionResponse(new SecurityException("User name [x] is invalid.")), 0, false);
        refused.setCorrelationId(1);
        print("refused", refused);
        ConnectionError broken = numbered(new ConnectionError(), 0, false);
        broken.setException(new java.io.IOException("disk full"));
        broken.setConnectionId(CONNECTION);
        print("broken", broken);
        ConsumerControl ended = numbered(new ConsumerControl(), 0, false);
        ended.setConsumerId(CONSUMER);
        ended.setClose(true);
        print("ended", ended);
        ConnectionControl closing = numbered(new ConnectionControl(), 0, false);
        closing.setClose(true);
        print("closing", closing);
        ConnectionControl rebalance = numbered(new ConnectionControl(), 0, false);
        rebalance.setConnectedBrokers("tcp://a,tcp://b");
        print("other", rebalance);
        BrokerInfo broker = numbered(new BrokerInfo(), 0, false);
        broker.setBrokerId(new BrokerId("b1"));
        broker.setBrokerName("test");
        print("other", broker);
    }

    private static void messages() throws Exception {
        ActiveMQTextMessage text = message(new ActiveMQTextMessage());
        text.setText("{\"id\":\"gr\u00fc\u00df \ud83d\ude00\"}");
        full(text);
        print("text", dispatch(text, 2));
        ActiveMQBytesMessage bytes = message(new ActiveMQBytesMessage());
        bytes.writeBytes(new byte[] {1, 2, 3, (byte) 255});
        bytes.storeContent();
        print("bytes", dispatch(bytes, 0));
        ActiveMQTextMessage packed = message(new ActiveMQTextMessage());
        packed.setText("packed packed packed packed packed packed");
        packed.storeContent();
        packed.compress();
        print("packedtext", dispatch(packed, 0));
        ActiveMQBytesMessage packedBytes = message(new ActiveMQBytesMessage());
        packedBytes.writeBytes("packed packed packed packed packed packed".getBytes());
        packedBytes.storeContent();
        packedBytes.compress();
        print("packedbytes", dispatch(packedBytes, 0));
        ActiveMQMapMessage map = message(new ActiveMQMapMessage());
        map.setLong("size", 12345678901L);
        map.storeContent();
        print("map", dispatch(map, 0));
        print("empty", dispatch(message(new ActiveMQMessage()), 0));
        ActiveMQTextMessage none = message(new ActiveMQTextMessage());
        print("notext", dispatch(none, 0));
        // What a copy of the first one must look like.
        ActiveMQTextMessage copy = numbered(new ActiveMQTextMessage(), 1, true);
        copy.setText("{\"id\":\"gr\u00fc\u00df \ud83d\ude00\"}");
        full(copy);
        copy.setProducerId(PRODUCER);
        copy.setDestination(QUEUE);
        copy.setOriginalDestination(null);
        copy.setTransactionId(null);
        copy.setOriginalTransactionId(null);
        copy.setMessageId(new MessageId(PRODUCER, 1));
        copy.setRedeliveryCounter(0);
        copy.setBrokerPath(null);
        copy.setArrival(0);
        copy.setBrokerInTime(0);
        copy.setBrokerOutTime(0);
        print("copy", copy);
    }

    private static <T extends Message> T message(T message) {
        numbered(message, 5, true);
        message.setProducerId(new ProducerId(new SessionId(new ConnectionId("ID:host-1"), 1), 2));
        message.setMessageId(new MessageId(message.getProducerId(), 3));
        message.setDestination(QUEUE);
        return message;
    }

    /** Everything that a message can have. */
    private static void full(ActiveMQMessage message) throws Exception {
        message.setGroupID("orders-7");
        message.setGroupSequence(4);
        message.setCorrelationId("corr");
        message.setPersistent(true);
        message.setExpiration(1234567890123L);
        message.setPriority((byte) 7);
        message.setReplyTo(new ActiveMQTopic("answers"));
        message.setTimestamp(1600000000000L);
        message.setType("kind");
        message.setUserID("someone");
        message.setOriginalDestination(new ActiveMQQueue("first"));
        message.setTransactionId(new LocalTransactionId(CONNECTION, 8));
        message.setOriginalTransactionId(xa());
        message.setBrokerPath(new BrokerId[] {new BrokerId("b1"), new BrokerId("b2")});
        message.setArrival(5);
        message.setBrokerInTime(6);
        message.setBrokerOutTime(7);
        message.setRedeliveryCounter(1);
        message.setProperty("flag", true);
        message.setProperty("b", (byte) -1);
        message.setProperty("s", (short) -2);
        message.setProperty("i", -3);
        message.setProperty("l", -4L);
        message.setProperty("f", 1.5f);
        message.setProperty("d", -2.25d);
        message.setProperty("c", 'x');
        message.setProperty("t", "t\u00e9xt");
        message.setProperty("list", List.of("one", 2));
        message.setProperty("map", new HashMap<>(java.util.Map.of("k", "v")));
        message.setProperty("big", "x".repeat(9000));
        message.storeContent();
    }

    private static XATransactionId xa() throws Exception {
        XATransactionId id = new XATransactionId();
        id.setFormatId(1);
        id.setGlobalTransactionId(new byte[] {1, 2});
        id.setBranchQualifier(new byte[] {3});
        return id;
    }

    private static MessageDispatch dispatch(Message message, int redeliveries) {
        MessageDispatch dispatch = numbered(new MessageDispatch(), 0, false);
        dispatch.setConsumerId(CONSUMER);
        dispatch.setDestination(QUEUE);
        dispatch.setMessage(message);
        dispatch.setRedeliveryCounter(redeliveries);
        return dispatch;
    }
}
