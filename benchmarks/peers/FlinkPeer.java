import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Passes on the messages of a topic to another with Flink's exactly-once sink: SERVERS FROM TO, until it is killed. */
public class FlinkPeer {
    public static void main(String[] told) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1s");
        TableEnvironment tables =
            TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql(table("before", told[0], told[1], "'scan.startup.mode' = 'earliest-offset'"));
        tables.executeSql(
            table(
                "after",
                told[0],
                told[2],
                "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '" + told[2] + "',"
                    + " 'properties.transaction.timeout.ms' = '60000'"));
        tables.executeSql("INSERT INTO `after` SELECT `key`, `value` FROM `before`").await();
    }

    private static String table(String name, String servers, String topic, String more) {
        return "CREATE TABLE `" + name + "` (`key` BYTES, `value` BYTES) WITH ('connector' = 'kafka', 'topic' = '" + topic
            + "', 'properties.bootstrap.servers' = '" + servers + "', 'key.format' = 'raw', 'key.fields' = 'key',"
            + " 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY', " + more + ")";
    }
}
