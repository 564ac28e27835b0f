import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.DestinationInfo;

/**
 * What the tests ask of a broker, by ActiveMQ's own JMS client: a line with a command comes in, a line with the answer goes
 * out. Words are separated by tabs, bodies are base64.
 */
public final class Jms {
    private static String url;
    private static String user;
    private static String password;

    public static void main(String[] args) throws Exception {
        url = args[0];
        user = args.length > 1 ? args[1] : null;
        password = args.length > 2 ? args[2] : null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok\t" + run(line.split("\t", -1), in);
            } catch (Exception error) {
                answer = "failed\t" + error.toString().replace('\n', ' ').replace('\t', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String run(String[] words, BufferedReader in) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(user, password, url);
        boolean packed = words[0].equals("publish") && words[3].equals("packed");
        factory.setUseCompression(packed);
        // What is to be published is read even if the broker is away.
        String[] lines = new String[words[0].equals("publish") ? Integer.parseInt(words[2]) : 0];
        for (int at = 0; at < lines.length; at++) {
            lines[at] = in.readLine();
        }
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        try {
            connection.start();
            switch (words[0]) {
                case "make":
                    return destination(connection, words[1], DestinationInfo.ADD_OPERATION_TYPE);
                case "delete":
                    return destination(connection, words[1], DestinationInfo.REMOVE_OPERATION_TYPE);
                case "publish":
                    return publish(connection, words[1], lines);
                case "counts":
                    return counts(connection, words[1]);
                case "drain":
                    return drain(connection, words[1], Integer.parseInt(words[2]));
                case "take":
                    return take(connection, words[1], Integer.parseInt(words[2]));
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        } finally {
            connection.close();
        }
    }

    /** With a timeout: even if there are consumers, as the broker's console does it. */
    private static String destination(ActiveMQConnection connection, String queue, byte what) throws Exception {
        DestinationInfo info = new DestinationInfo();
        info.setConnectionId(connection.getConnectionInfo().getConnectionId());
        info.setOperationType(what);
        info.setDestination(new ActiveMQQueue(queue));
        info.setTimeout(1000);
        connection.syncSendPacket(info);
        return "";
    }

    /** One transaction: all are durable when it is committed. A line: kind, group, base64 body, properties as name=value. */
    private static String publish(ActiveMQConnection connection, String queue, String[] lines) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(new ActiveMQQueue(queue));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        String last = "";
        for (String line : lines) {
            String[] words = line.split("\t", -1);
            byte[] body = Base64.getDecoder().decode(words[2]);
            Message message;
            switch (words[0]) {
                case "bytes":
                    BytesMessage bytes = session.createBytesMessage();
                    bytes.writeBytes(body);
                    message = bytes;
                    break;
                case "map":
                    MapMessage map = session.createMapMessage();
                    map.setString("body", new String(body, StandardCharsets.UTF_8));
                    message = map;
                    break;
                case "empty":
                    message = session.createMessage();
                    break;
                default:
                    message = session.createTextMessage(new String(body, StandardCharsets.UTF_8));
            }
            if (!words[1].isEmpty()) {
                message.setStringProperty("JMSXGroupID", words[1]);
            }
            for (int at = 3; at < words.length; at++) {
                String[] pair = words[at].split("=", 2);
                message.setStringProperty(pair[0], pair[1]);
            }
            producer.send(message);
            last = message.getJMSMessageID();
        }
        session.commit();
        return last;
    }

    /** What the broker itself counts: all that it keeps, and what was handed over and not acked. */
    private static String counts(ActiveMQConnection connection, String queue) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Destination replyTo = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replyTo);
        MessageProducer producer = session.createProducer(new ActiveMQQueue("ActiveMQ.Statistics.Destination." + queue));
        Message question = session.createMessage();
        question.setJMSReplyTo(replyTo);
        producer.send(question);
        MapMessage answer = (MapMessage) consumer.receive(5000);
        if (answer == null) {
            // There is no such queue: nobody has used it yet.
            return "0\t0\t0";
        }
        return answer.getObject("size") + "\t" + answer.getObject("inflightCount") + "\t" + answer.getObject("consumerCount");
    }

    /** Receives and acks one by one, as fast as the client can. */
    private static String drain(ActiveMQConnection connection, String queue, int count) throws Exception {
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(queue));
        for (int at = 0; at < count; at++) {
            Message message = consumer.receive(5000);
            if (message == null) {
                throw new IllegalStateException("only " + at + " came");
            }
            message.acknowledge();
        }
        return "";
    }

    /** Takes messages: id, group, properties, body. */
    private static String take(ActiveMQConnection connection, String queue, int count) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(queue));
        StringBuilder seen = new StringBuilder();
        for (int at = 0; at < count; at++) {
            Message message = consumer.receive(5000);
            if (message == null) {
                break;
            }
            seen.append(message.toString().replace('\n', ' ').replace('\t', ' ')).append('\t');
        }
        return seen.toString();
    }
}
