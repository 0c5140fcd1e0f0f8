import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/** The connector `peer`: tables that are fed by steps, the table that takes changes, and the static table of q13. */
public final class PeerTables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ConfigOption<String> KIND = ConfigOptions.key("kind").stringType().defaultValue("rows");
    private static final ConfigOption<String> FOLDER = ConfigOptions.key("folder").stringType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "peer";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(KIND, FOLDER);
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        String kind = FactoryUtil.createTableFactoryHelper(this, context).getOptions().get(KIND);
        if (kind.equals("side")) {
            return new Side();
        }
        DataType rows = context.getPhysicalRowDataType();
        return new Fed(context.getObjectIdentifier().getObjectName(), kind.equals("changes"), rows);
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        String folder = FactoryUtil.createTableFactoryHelper(this, context).getOptions().get(FOLDER);
        return new Answers(folder, context.getPhysicalRowDataType().getLogicalType().getChildren());
    }

    /** A table that is fed by steps; only the columns that a query needs are read. */
    private static final class Fed implements ScanTableSource, SupportsProjectionPushDown {
        private final String name;
        private final boolean changes;
        private DataType rows;

        Fed(String name, boolean changes, DataType rows) {
            this.name = name;
            this.changes = changes;
            this.rows = rows;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return changes ? ChangelogMode.all() : ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return SourceProvider.of(new StepSource(name, ((RowType) rows.getLogicalType()).getFieldNames()));
        }

        @Override
        public boolean supportsNestedProjection() {
            return false;
        }

        @Override
        public void applyProjection(int[][] projected, DataType produced) {
            rows = produced;
        }

        @Override
        public DynamicTableSource copy() {
            return new Fed(name, changes, rows);
        }

        @Override
        public String asSummaryString() {
            return name;
        }
    }

    /** The table that takes changes of every kind. */
    private record Answers(String folder, List<LogicalType> types) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return requested;
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new ChangeSink(folder, types));
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "answers";
        }
    }

    /** The static table of q13, which rows are looked up in: keys 0 to 19, each with its text. */
    private static final class Side implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Lookup());
        }

        @Override
        public DynamicTableSource copy() {
            return new Side();
        }

        @Override
        public String asSummaryString() {
            return "side";
        }
    }

    /** Looks a key up. */
    public static final class Lookup extends LookupFunction {
        private transient Map<Long, List<RowData>> known;

        @Override
        public List<RowData> lookup(RowData key) {
            if (known == null) {
                known = new HashMap<>();
                for (long number = 0; number < 20; number++) {
                    known.put(number, List.of(GenericRowData.of(number, StringData.fromString("value " + number))));
                }
            }
            return known.getOrDefault(key.getLong(0), List.of());
        }
    }
}
