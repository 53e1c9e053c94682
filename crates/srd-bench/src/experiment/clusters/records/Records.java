import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.zip.CRC32C;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Sorts or joins records of 100 bytes, and says whether what came out is what went in.
 * Arguments: sort or join, records, partitions, records of a first round that is not counted.
 */
public final class Records {
    /** What a partition holds. */
    private record Part(int number, long rows, long sum, long first, long last, boolean ordered)
            implements java.io.Serializable {}

    /** Time and bytes of the stages that fetched from other hosts. */
    private static final class Fetches extends SparkListener {
        private long ms;
        private long bytes;

        @Override
        public synchronized void onStageCompleted(SparkListenerStageCompleted completed) {
            var stage = completed.stageInfo();
            long remote = stage.taskMetrics().shuffleReadMetrics().remoteBytesRead();
            if (remote > 0) {
                ms += (Long) stage.completionTime().get() - (Long) stage.submissionTime().get();
                bytes += remote;
            }
        }

        private synchronized void reset() {
            ms = 0;
            bytes = 0;
        }

        private synchronized long[] read() {
            return new long[] {ms, bytes};
        }
    }

    private static Dataset<Row> records(SparkSession spark, long count, int parts, String value) {
        String text = "cast(lpad(cast(id as string), 92, '" + value + "') as binary)";
        return spark.range(0, count, 1, parts)
                .selectExpr("xxhash64(id) as key", text + " as " + value);
    }

    /** Both sides of the join, without a shuffle: they have the same identities. */
    private static Dataset<Row> joined(SparkSession spark, long count, int parts) {
        String text = "cast(lpad(cast(id as string), 92, '%s') as binary) as %s";
        return spark.range(0, count, 1, parts)
                .selectExpr("xxhash64(id) as key", String.format(text, "a", "a"),
                        String.format(text, "b", "b"));
    }

    private static List<Part> parts(Dataset<Row> rows, int columns) {
        List<Part> all = new ArrayList<>(rows.queryExecution().toRdd().toJavaRDD()
                .mapPartitionsWithIndex((number, records) -> read(number, records, columns), false)
                .collect());
        all.sort((a, b) -> Integer.compare(a.number, b.number));
        return all;
    }

    private static Iterator<Part> read(int number, Iterator<InternalRow> records, int columns) {
        CRC32C crc = new CRC32C();
        ByteBuffer key = ByteBuffer.allocate(8);
        long rows = 0;
        long sum = 0;
        long first = 0;
        long last = Long.MIN_VALUE;
        boolean ordered = true;
        while (records.hasNext()) {
            InternalRow record = records.next();
            long own = record.getLong(0);
            ordered &= own >= last;
            last = own;
            if (rows == 0) {
                first = own;
            }
            rows++;
            crc.reset();
            key.putLong(0, own);
            crc.update(key.array());
            for (int column = 1; column < columns; column++) {
                crc.update(record.getBinary(column));
            }
            sum += crc.getValue();
        }
        return Collections.singletonList(new Part(number, rows, sum, first, last, ordered))
                .iterator();
    }

    private static void round(SparkSession spark, String what, long count, int parts, Fetches seen)
            throws InterruptedException {
        boolean sort = what.equals("sort");
        int columns = sort ? 2 : 3;
        Dataset<Row> work = sort
                ? records(spark, count, parts, "a").orderBy("key")
                : records(spark, count, parts, "a").join(records(spark, count, parts, "b"), "key");
        seen.reset();
        long begun = System.nanoTime();
        List<Part> out = parts(work, columns);
        double seconds = (System.nanoTime() - begun) / 1e9;
        // Listeners are told later, in a thread of their own.
        Thread.sleep(500);
        long[] fetched = seen.read();
        Dataset<Row> input =
                sort ? records(spark, count, parts, "a") : joined(spark, count, parts);
        long rows = 0;
        long sum = 0;
        boolean ordered = true;
        long before = Long.MIN_VALUE;
        for (Part part : out) {
            rows += part.rows;
            sum += part.sum;
            if (sort && part.rows > 0) {
                ordered &= part.ordered && part.first >= before;
                before = part.last;
            }
        }
        long wanted = parts(input, columns).stream().mapToLong(Part::sum).sum();
        System.out.printf(
                "RESULT seconds=%.3f shuffle=%.3f fetched=%d rows=%d sum=%d wanted=%d ordered=%b%n",
                seconds, fetched[0] / 1e3, fetched[1], rows, sum, wanted, ordered);
    }

    public static void main(String[] words) throws InterruptedException {
        int parts = Integer.parseInt(words[2]);
        SparkSession spark = SparkSession.builder().getOrCreate();
        Fetches seen = new Fetches();
        spark.sparkContext().addSparkListener(seen);
        round(spark, words[0], Long.parseLong(words[3]), parts, seen);
        round(spark, words[0], Long.parseLong(words[1]), parts, seen);
        spark.stop();
    }
}
