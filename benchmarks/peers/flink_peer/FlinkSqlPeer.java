import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** A side of a benchmark in Flink SQL: a cluster of two slots, asked by lines of JSON as `benchmarks/harness/side.py` says. */
public final class FlinkSqlPeer {
    private static final int SLOTS = 2;

    private final String state;
    private final String folder;
    private final MiniCluster cluster;
    private JobClient job;
    private int done;

    private FlinkSqlPeer(String folder, String state) throws Exception {
        this.folder = folder;
        this.state = state;
        Configuration settings = new Configuration();
        settings.setString("rest.bind-port", "0");
        settings.setString("taskmanager.memory.managed.size", "1gb");
        settings.setString("io.tmp.dirs", folder);
        settings.setString("heartbeat.timeout", "3600000"); // a side that is stopped must not be taken for dead
        MiniClusterConfiguration.Builder shape = new MiniClusterConfiguration.Builder().setConfiguration(settings);
        cluster = new MiniCluster(shape.setNumTaskManagers(1).setNumSlotsPerTaskManager(SLOTS).build());
        cluster.start();
    }

    public static void main(String[] told) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        FlinkSqlPeer peer = null;
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer;
            try {
                JsonNode request = json.readTree(line);
                if (request.get("do").asText().equals("prepare")) {
                    peer = new FlinkSqlPeer(request.get("folder").asText(), request.get("state").asText());
                    answer = Map.of("ready", true);
                } else {
                    answer = peer.answer(request, json);
                }
            } catch (Exception error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                answer = Map.of("error", text.toString());
            }
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(JsonNode request, ObjectMapper json) throws Exception {
        switch (request.get("do").asText()) {
            case "start":
                String[] tables = json.convertValue(request.get("tables"), String[].class);
                start(List.of(tables), request.get("query").asText(), request.get("output").asText());
                return Map.of();
            case "run":
                return Map.of("visible", run(json.convertValue(request.get("steps"), new TypeReference<>() {})));
            case "finish":
                Steps.current.finish();
                job.getJobExecutionResult().get();
                return Map.of();
            default:
                throw new IllegalArgumentException("no such request");
        }
    }

    /** Start a query over tables; its changes go to the folder `output`. */
    private void start(List<String> tables, String query, String output) throws Exception {
        if (job != null && !job.getJobStatus().get().isGloballyTerminalState()) {
            job.cancel().get();
        }
        Steps.current = new Steps();
        done = 0;
        var address = cluster.getRestAddress().get();
        var environment =
            StreamExecutionEnvironment.createRemoteEnvironment(address.getHost(), address.getPort(), settings());
        StreamTableEnvironment sql = StreamTableEnvironment.create(environment);
        tables.forEach(sql::executeSql);
        TableDescriptor changes = TableDescriptor.forConnector("peer").option("folder", output).build();
        job = sql.sqlQuery(query).insertInto(changes).execute().getJobClient().orElseThrow();
        while (!isRunning(job.getJobID())) {
            check();
            Thread.sleep(20);
        }
    }

    private Configuration settings() {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", Integer.toString(SLOTS));
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "disable");
        settings.setString("state.backend.type", state);
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.interval", "24 h"); // each step asks for its own
        settings.setString("execution.checkpointing.timeout", "1 h");
        settings.setString("execution.checkpointing.incremental", "true");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoints");
        settings.setString("table.local-time-zone", "UTC");
        settings.setString("table.exec.mini-batch.enabled", "true");
        settings.setString("table.exec.mini-batch.allow-latency", "1 s");
        settings.setString("table.exec.mini-batch.size", "10000");
        return settings;
    }

    /** Give steps all at once; return the seconds after which each one was visible. */
    private List<Double> run(List<Map<String, String>> steps) throws Exception {
        long began = System.nanoTime();
        steps.forEach(Steps.current::give);
        List<Double> visible = new ArrayList<>();
        for (int step = 0; step < steps.size(); step++) {
            done++;
            while (!Steps.current.areEmitted(done, 500)) {
                check();
            }
            cluster.triggerCheckpoint(job.getJobID()).get();
            while (!Steps.current.areVisible(done, 500)) {
                check();
            }
            visible.add((System.nanoTime() - began) / 1e9);
        }
        return visible;
    }

    private boolean isRunning(JobID id) throws Exception {
        for (AccessExecutionVertex vertex : cluster.getExecutionGraph(id).get().getAllExecutionVertices()) {
            if (vertex.getExecutionState() != ExecutionState.RUNNING) {
                return false;
            }
        }
        return true;
    }

    private void check() throws Exception {
        JobStatus status = job.getJobStatus().get();
        if (status.isTerminalState()) {
            job.getJobExecutionResult().get();
            throw new IllegalStateException("the job has ended: " + status);
        }
    }
}
