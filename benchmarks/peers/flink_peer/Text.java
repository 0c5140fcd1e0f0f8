import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Writes small things as text: places in a source, files that wait for their commit. */
final class Text<T> implements SimpleVersionedSerializer<T> {
    private final Function<T, String> write;
    private final Function<String, T> read;

    Text(Function<T, String> write, Function<String, T> read) {
        this.write = write;
        this.read = read;
    }

    @Override
    public int getVersion() {
        return 1;
    }

    @Override
    public byte[] serialize(T value) {
        return write.apply(value).getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public T deserialize(int version, byte[] bytes) {
        return read.apply(new String(bytes, StandardCharsets.UTF_8));
    }
}
