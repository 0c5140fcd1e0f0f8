import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** What a job has been given, step by step, and how far it has come: readers, writers and the driver share it. */
final class Steps {
    /** The steps of the job that runs: there is one at a time, and all tasks run in this JVM. */
    static volatile Steps current = new Steps();

    private final List<Map<String, String>> files = new ArrayList<>();
    private final List<CompletableFuture<Void>> waiting = new ArrayList<>();
    private int readers;
    private int emitted;
    private int committed;
    private int writers = Integer.MAX_VALUE;
    private boolean finished;

    /** Count a reader of a source; all of them are there before the first step. */
    synchronized void register() {
        readers++;
    }

    /** Give a step: the file of each table. */
    synchronized void give(Map<String, String> step) {
        files.add(step);
        wake();
    }

    /** Say that no step will follow. */
    synchronized void finish() {
        finished = true;
        wake();
    }

    /** Return whether a reader that has come to this step has nothing more to do. */
    synchronized boolean isOver(int step) {
        return finished && step >= files.size();
    }

    /** Return a table's file of a step; null if it has not been given, or has no rows of this table. */
    synchronized String file(String table, int step) {
        return step < files.size() ? files.get(step).get(table) : null;
    }

    /** Return whether this step is given, or none will be. */
    synchronized boolean isGiven(int step) {
        return finished || step < files.size();
    }

    /** Return a future that is done once this step is given, or none will be. */
    synchronized CompletableFuture<Void> given(int step) {
        if (isGiven(step)) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> future = new CompletableFuture<>();
        waiting.add(future);
        return future;
    }

    /** Note that one reader has emitted all of its rows of a step. */
    synchronized void emitted() {
        emitted++;
        notifyAll();
    }

    /** Note that the rows of one of so many writers have become visible. */
    synchronized void committed(int writers) {
        this.writers = writers;
        committed++;
        notifyAll();
    }

    /** Wait a while; return whether all readers have emitted so many steps. */
    synchronized boolean areEmitted(int steps, long milliseconds) throws InterruptedException {
        if (emitted < readers * steps) {
            wait(milliseconds);
        }
        return emitted >= readers * steps;
    }

    /** Wait a while; return whether so many steps are visible, of every writer. */
    synchronized boolean areVisible(int steps, long milliseconds) throws InterruptedException {
        if ((long) committed < (long) writers * steps) {
            wait(milliseconds);
        }
        return (long) committed >= (long) writers * steps;
    }

    private void wake() {
        waiting.forEach(future -> future.complete(null));
        waiting.clear();
    }
}
