import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many commands of the real mqadmin in one JVM: one command line a line on standard input (words split by blanks), one
 * JSON line {command, output, errors, timed_out, ms} each on standard output.  A test of forty commands then costs one start
 * of a JVM.  A command that sends messages works once in a process only: the tool keeps one producer and closes it.
 */
public final class AdminBatch {
    private static final int LIMIT_S = 30;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ExecutorService pool = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.isBlank()) {
                continue;
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            long start = System.nanoTime();
            String[] words = line.trim().split("\\s+");
            Future<?> running = pool.submit(() -> MQAdminStartup.main0(words, null));
            boolean late = false;
            try {
                running.get(LIMIT_S, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                late = true;
                running.cancel(true);
            }
            System.setOut(out);
            System.setErr(err);
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("command", line.trim());
            result.put("output", printed.toString(StandardCharsets.UTF_8));
            result.put("errors", complained.toString(StandardCharsets.UTF_8));
            result.put("timed_out", late);
            result.put("ms", (System.nanoTime() - start) / 1_000_000);
            Cli.print(result);
        }
        Runtime.getRuntime().halt(0);
    }

    private AdminBatch() {
    }
}
