import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Writes rows of 100 bytes by Flink's exactly-once sink: SERVERS ROWS TOPIC TOPIC …; prints the seconds of each topic. */
public class FlinkWriter {
    public static void main(String[] told) throws Exception {
        for (int turn = 2; turn < told.length; turn++) {
            long began = System.nanoTime();
            write(told[0], Long.parseLong(told[1]), told[turn]);
            System.out.println((System.nanoTime() - began) / 1e9);
        }
    }

    private static void write(String servers, long rows, String topic) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1s");
        TableEnvironment tables =
            TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql(
            // A sequence would have all its numbers in each checkpoint; chance makes rows of the same size.
            "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100000000',"
                + " 'number-of-rows' = '" + rows + "', 'fields.id.min' = '0', 'fields.id.max' = '" + (rows - 1) + "')");
        tables.executeSql(
            "CREATE TABLE `after` (`key` BYTES, `value` BYTES) WITH ('connector' = 'kafka', 'topic' = '" + topic
                + "', 'properties.bootstrap.servers' = '" + servers + "', 'key.format' = 'raw', 'key.fields' = 'key',"
                + " 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY', 'sink.delivery-guarantee' ="
                + " 'exactly-once', 'sink.transactional-id-prefix' = '" + topic
                + "', 'properties.transaction.timeout.ms' = '60000')");
        tables.executeSql(
                "INSERT INTO `after` SELECT CAST(CAST(id AS STRING) AS BYTES),"
                    + " CAST(CONCAT(LPAD(CAST(id AS STRING), 8, '0'), REPEAT('x', 92)) AS BYTES) FROM numbers")
            .await();
    }
}
