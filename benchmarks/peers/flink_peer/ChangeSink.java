import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;

/**
 * Changes as lines of text: a weight and the columns, separated by tabs. Every writer has a file for each checkpoint;
 * the file gets its name once the checkpoint is complete, which makes its changes visible exactly once.
 */
final class ChangeSink implements Sink<RowData>, SupportsCommitter<ChangeSink.Pending> {
    private final String folder;
    private final List<LogicalType> types;

    ChangeSink(String folder, List<LogicalType> types) {
        this.folder = folder;
        this.types = types;
    }

    /** A whole file without its name, one of those of so many writers. */
    record Pending(String path, int writers) {}

    @Override
    public Writer createWriter(WriterInitContext context) {
        var task = context.getTaskInfo();
        return new Writer(task.getIndexOfThisSubtask(), task.getNumberOfParallelSubtasks());
    }

    @Override
    public Committer<Pending> createCommitter(CommitterInitContext context) {
        return new Naming();
    }

    @Override
    public SimpleVersionedSerializer<Pending> getCommittableSerializer() {
        return new Text<>(
            pending -> pending.writers + "\t" + pending.path,
            text -> new Pending(text.split("\t")[1], Integer.parseInt(text.split("\t")[0])));
    }

    /** Writes one file from one checkpoint to the next. */
    final class Writer implements CommittingSinkWriter<RowData, Pending> {
        private final int index;
        private final int writers;
        private final RowData.FieldGetter[] fields = new RowData.FieldGetter[types.size()];
        private final StringBuilder line = new StringBuilder();
        private OutputStream out;
        private Path path;
        private int files;

        Writer(int index, int writers) {
            this.index = index;
            this.writers = writers;
            for (int field = 0; field < fields.length; field++) {
                fields[field] = RowData.createFieldGetter(types.get(field), field);
            }
        }

        @Override
        public void write(RowData row, Context context) throws IOException {
            open();
            RowKind kind = row.getRowKind();
            line.setLength(0);
            line.append(kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER ? "1" : "-1");
            for (RowData.FieldGetter field : fields) {
                Object value = field.getFieldOrNull(row);
                line.append('\t');
                if (value instanceof TimestampData moment) {
                    line.append(moment.getMillisecond());
                } else if (value != null) {
                    line.append(value);
                }
            }
            out.write(line.append('\n').toString().getBytes(StandardCharsets.UTF_8));
        }

        private void open() throws IOException {
            if (out == null) {
                path = Path.of(folder, String.format("%05d-%d.pending", files++, index));
                out = new BufferedOutputStream(Files.newOutputStream(path), 1 << 16);
            }
        }

        @Override
        public void flush(boolean isLast) {}

        @Override
        public Collection<Pending> prepareCommit() throws IOException {
            open(); // a writer without rows has a file too, so that a step is visible once every writer's file is
            out.close();
            out = null;
            return List.of(new Pending(path.toString(), writers));
        }

        @Override
        public void close() throws IOException {
            if (out != null) {
                out.close();
            }
        }
    }

    /** Gives files their names. */
    private static final class Naming implements Committer<Pending> {
        @Override
        public void commit(Collection<CommitRequest<Pending>> requests) throws IOException {
            for (CommitRequest<Pending> request : requests) {
                Path pending = Path.of(request.getCommittable().path);
                String name = pending.getFileName().toString().replace(".pending", ".tsv");
                Files.move(pending, pending.resolveSibling(name), StandardCopyOption.ATOMIC_MOVE);
                Steps.current.committed(request.getCommittable().writers);
            }
        }

        @Override
        public void close() {}
    }
}
