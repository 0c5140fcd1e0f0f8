import java.io.FileInputStream;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.TimeStampMilliVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.types.RowKind;

/**
 * A table's rows out of Arrow files, one a step. Readers take a file's batches in turn. A reader that has emitted a
 * step goes on once the barrier of the step's checkpoint has passed it, so that a checkpoint holds whole steps.
 */
final class StepSource implements Source<RowData, StepSource.Place, Integer> {
    private final String table;
    private final List<String> columns;

    StepSource(String table, List<String> columns) {
        this.table = table;
        this.columns = columns;
    }

    /** A reader's place: the next step. Readers find their share by their number, so nothing is assigned to them. */
    record Place(int step) implements SourceSplit {
        @Override
        public String splitId() {
            return "steps";
        }
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<RowData, Place> createReader(SourceReaderContext context) {
        return new Reader(context.getIndexOfSubtask(), context.currentParallelism());
    }

    @Override
    public SplitEnumerator<Place, Integer> createEnumerator(SplitEnumeratorContext<Place> context) {
        return new Nobody();
    }

    @Override
    public SplitEnumerator<Place, Integer> restoreEnumerator(SplitEnumeratorContext<Place> context, Integer state) {
        return new Nobody();
    }

    @Override
    public SimpleVersionedSerializer<Place> getSplitSerializer() {
        return new Text<>(place -> Integer.toString(place.step), text -> new Place(Integer.parseInt(text)));
    }

    @Override
    public SimpleVersionedSerializer<Integer> getEnumeratorCheckpointSerializer() {
        return new Text<>(number -> Integer.toString(number), Integer::parseInt);
    }

    /** Emits one batch at a time. */
    private final class Reader implements SourceReader<RowData, Place> {
        private final int index;
        private final int readers;
        private final Steps steps = Steps.current;
        private int step;
        private boolean held;
        private CompletableFuture<Void> barrier = new CompletableFuture<>();
        private BufferAllocator memory;
        private ArrowFileReader file;
        private int block;

        Reader(int index, int readers) {
            this.index = index;
            this.readers = readers;
        }

        @Override
        public void start() {
            memory = new RootAllocator();
            steps.register();
        }

        @Override
        public InputStatus pollNext(ReaderOutput<RowData> output) throws IOException {
            if (held || !steps.isGiven(step)) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            if (steps.isOver(step)) {
                return InputStatus.END_OF_INPUT;
            }
            String path = steps.file(table, step);
            if (file == null && path != null) {
                file = new ArrowFileReader(new FileInputStream(path).getChannel(), memory);
                block = index;
            }
            if (file != null && block < file.getRecordBlocks().size()) {
                file.loadRecordBatch(file.getRecordBlocks().get(block));
                emit(file.getVectorSchemaRoot(), output);
                block += readers;
                return InputStatus.MORE_AVAILABLE;
            }
            shut();
            held = true;
            steps.emitted();
            return InputStatus.NOTHING_AVAILABLE;
        }

        private void emit(VectorSchemaRoot batch, ReaderOutput<RowData> output) {
            Cell[] cells = columns.stream().map(name -> cell(batch.getVector(name))).toArray(Cell[]::new);
            BigIntVector weights = (BigIntVector) batch.getVector("_weight");
            for (int row = 0; row < batch.getRowCount(); row++) {
                boolean goes = weights != null && weights.get(row) < 0;
                GenericRowData made = new GenericRowData(goes ? RowKind.DELETE : RowKind.INSERT, cells.length);
                for (int column = 0; column < cells.length; column++) {
                    made.setField(column, cells[column].at(row));
                }
                output.collect(made);
            }
        }

        @Override
        public List<Place> snapshotState(long checkpoint) {
            if (held) {
                held = false;
                step++;
                CompletableFuture<Void> passed = barrier;
                barrier = new CompletableFuture<>();
                passed.complete(null);
            }
            return List.of(new Place(step));
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return held ? barrier : steps.given(step);
        }

        @Override
        public void addSplits(List<Place> places) {
            throw new IllegalStateException("a job of a benchmark is not restored");
        }

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() throws IOException {
            shut();
            if (memory != null) {
                memory.close();
            }
        }

        private void shut() throws IOException {
            if (file != null) {
                file.close();
                file = null;
            }
        }
    }

    /** A column's values by their number. */
    private interface Cell {
        Object at(int row);
    }

    private static Cell cell(FieldVector vector) {
        if (vector instanceof BigIntVector numbers) {
            return numbers::get;
        } else if (vector instanceof Float8Vector numbers) {
            return numbers::get;
        } else if (vector instanceof VarCharVector texts) {
            return row -> StringData.fromBytes(texts.get(row));
        } else if (vector instanceof TimeStampMilliVector moments) {
            return row -> TimestampData.fromEpochMillis(moments.get(row));
        }
        throw new IllegalArgumentException("no reader for " + vector.getField());
    }

    /** Assigns nothing. */
    private static final class Nobody implements SplitEnumerator<Place, Integer> {
        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<Place> places, int subtask) {}

        @Override
        public void addReader(int subtask) {}

        @Override
        public Integer snapshotState(long checkpoint) {
            return 0;
        }

        @Override
        public void close() {}
    }
}
