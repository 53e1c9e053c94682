//! Tests of flow logs: from aggregation windows to files, and to programs that read them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use srd_card::observe::{Action, Aggregator, FlowKey, Observed};
use srd_vpc::object::{LogField, LogFormat, LoggedTraffic};

use super::*;
use srd_proto::Secret;
use srd_proto::time::Instant;
use std::sync::mpsc::RecvTimeoutError;

const MINUTE: Duration = Duration::from_secs(60);
const ENI: EniId = EniId(7);
/// Longest time for a step of a test.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

fn log(directory: &Path, format: LogFormat, fields: &[LogField]) -> FlowLog {
    FlowLog {
        name: "all".into(),
        resource: Logged::Eni(ENI),
        traffic: LoggedTraffic::All,
        fields: fields.to_vec(),
        interval: 60,
        directory: directory.to_str().unwrap().into(),
        format,
    }
}

fn plan(log: FlowLog) -> Plan {
    let facts = InterfaceAttributes {
        account: "123456789010".into(),
        interface: ENI.to_string(),
        vpc: "vpc-1".into(),

        is_nitro: true,
        ..InterfaceAttributes::default()
    };
    let id = FlowLogId(1);
    let active = Active { log, counts: Arc::default() };
    Plan {
        logs: [(id, active)].into(),
        windows: [((ENI, MINUTE), vec![id])].into(),
        facts: [(ENI, facts)].into(),
    }
}

/// Returns the Unix time in nanoseconds at which the clock of packets was zero.
const NOON: fn() -> u64 = || 1_418_530_010_000_000_000;

/// Returns an aggregation window with `flows` flows, the first of which is refused.
fn window(flows: u16) -> LoggedWindow {
    let mut log = Aggregator::new(Instant::ZERO, MINUTE, Secret::known(1));
    for n in 0..flows {
        let key = FlowKey {
            egress: false,
            protocol: 6,
            source: [172, 31, 16, 139].into(),
            destination: [172, 31, 16, 21].into(),
            ports: (n, 22),
        };
        let action = if n == 0 { Action::Reject } else { Action::Accept };
        let seen = Observed { key, action, path: None, tcp_flags: 2, packets: 20, bytes: 4249 };
        log.count(Instant::ZERO, &seen);
    }
    let window = log.finish(Instant::ZERO + MINUTE);
    LoggedWindow { eni: ENI, length: MINUTE, window }
}

fn end(mut logs: Logs) {
    logs.queue = None;
    assert_eq!(logs.ended.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
}

/// Writes windows with these numbers of flows, and returns the counters of the log.
fn write(plan: Plan, windows: &[u16]) -> (u64, u64, Option<String>) {
    let mut logs = Logs::start(NOON, Files::default()).unwrap();
    assert!(logs.send(Message::Plan(Box::new(plan.clone()))));
    logs.plan = plan;
    for flows in windows {
        logs.offer(window(*flows));
    }
    let counts = Arc::clone(&logs.plan.logs[&FlowLogId(1)].counts);
    end(logs);
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let failure = counts.failure.lock().unwrap().clone();
    (of(&counts.written), of(&counts.dropped), failure)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

const LINE: &str = "2 123456789010 eni-00000000000000007 172.31.16.139 172.31.16.21 1 22 6 20 \
                    4249 1418530010 1418530010 ACCEPT OK";

#[test]
fn text_begins_with_the_names_of_the_fields_and_can_be_read_at_any_time() {
    for format in [LogFormat::Text, LogFormat::Gzip] {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("made/by/it");
        assert_eq!(write(plan(log(&inside, format, &[])), &[2, 0]), (3, 0, None));
        let all = files(&inside);
        assert_eq!(all.len(), 1, "{all:?}");
        let bytes = fs::read(&all[0]).unwrap();
        let mut text = String::new();
        if format == LogFormat::Gzip {
            assert!(all[0].to_str().unwrap().ends_with(".log.gz"));
            // One gzip member for each window.
            flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        } else {
            text = String::from_utf8(bytes).unwrap();
        }
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("version account-id interface-id srcaddr "), "{text}");
        assert!(lines[1].ends_with("REJECT OK"), "{text}");
        assert_eq!(lines[2], LINE);
        assert!(lines[3].ends_with("- - - - - - - 1418530010 1418530070 - NODATA"), "{text}");
    }
}

#[test]
fn a_full_disk_costs_records_and_leaves_whole_lines() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a small file system takes root");
        return;
    }
    struct Mounted(tempfile::TempDir);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0.path()).status();
        }
    }
    let disk = Mounted(tempfile::tempdir().unwrap());
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "srdfl"]).arg(disk.0.path());
    if !mount.status().is_ok_and(|status| status.success()) {
        println!("skipped: no tmpfs can be mounted");
        return;
    }
    let (written, dropped, failure) =
        write(plan(log(disk.0.path(), LogFormat::Text, &[])), &[100, 2000, 50]);
    assert_eq!((written, dropped), (150, 2000), "the small windows fit");
    assert_eq!(failure, None, "the last one worked");
    let all = files(disk.0.path());
    let text = fs::read_to_string(&all[0]).unwrap();
    assert_eq!((all.len(), text.lines().count()), (1, 151));
    assert!(text.lines().skip(1).all(|line| line.split(' ').count() == 14), "{text}");
    assert!(text.ends_with("OK\n"));

    let (written, dropped, failure) =
        write(plan(log(disk.0.path(), LogFormat::Parquet, LogField::ALL)), &[3000]);
    // Columns of equal values need little space, so the rest of the disk is filled first.
    if dropped == 0 {
        assert_eq!((written, failure), (3000, None));
        let filler = fs::write(disk.0.path().join("filler"), vec![1; 1 << 17]);
        assert!(filler.is_err());
        let (written, dropped, failure) =
            write(plan(log(disk.0.path(), LogFormat::Parquet, LogField::ALL)), &[3000]);
        assert_eq!((written, dropped), (0, 3000));
        assert!(failure.unwrap().contains("space"));
    }
    let parts = files(disk.0.path()).into_iter().filter(|p| p.to_str().unwrap().ends_with("part"));
    assert_eq!(parts.count(), 0, "no part of a file stays");
}

#[test]
fn a_directory_that_cannot_be_made_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for format in [LogFormat::Text, LogFormat::Gzip, LogFormat::Parquet] {
        let (written, dropped, failure) = write(plan(log(&file.join("x"), format, &[])), &[5]);
        assert_eq!((written, dropped), (0, 5));
        assert!(failure.unwrap().contains("irectory"), "{format:?}");
    }
}

/// If no thread reads, flows beyond the limit are dropped, so that memory is bounded.
#[test]
fn flows_that_wait_for_a_slow_disk_are_bounded_and_counted() {
    let (queue, messages) = sync_channel(MESSAGES_MAX);
    let (_end, ended) = sync_channel(1);
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(log(directory.path(), LogFormat::Text, &[]));
    let counts = Arc::clone(&plan.logs[&FlowLogId(1)].counts);
    let mut logs = Logs {
        plan,
        owes_plan: false,
        queue: Some(queue),
        queued: Arc::default(),
        owed: BTreeMap::new(),
        ended,
    };
    let fitting = RECORDS_QUEUED_MAX / 30_000;
    for _ in 0..fitting + 2 {
        logs.offer(window(30_000));
    }
    assert_eq!(counts.dropped.load(Ordering::Relaxed), 60_000);
    assert_eq!(logs.queued.load(Ordering::Relaxed), fitting * 30_000);
    let last = messages.try_iter().last();
    let Some(Message::Window(logged)) = last else { panic!("a window") };
    assert_eq!((logged.window.len(), logged.window.skipped_packets), (0, 600_000));
    // The number of windows is limited as well.
    for _ in 0..MESSAGES_MAX + 3 {
        logs.offer(window(0));
    }
    let dropped = counts.dropped.load(Ordering::Relaxed);
    logs.offer(window(1));
    assert_eq!(counts.dropped.load(Ordering::Relaxed), dropped + 1);
    // The next window that fits contains the number of missing packets.
    assert_eq!(messages.try_iter().count(), MESSAGES_MAX);
    logs.offer(window(0));
    let Ok(Message::Window(logged)) = messages.try_recv() else { panic!("a window") };
    assert_eq!(logged.window.skipped_packets, 20);
}

/// Returns the path of a Python interpreter with duckdb: that of the target directory, which CI
/// creates, or that of the system.
fn python() -> Option<PathBuf> {
    let target = std::env::current_exe().ok()?;
    let own = target.ancestors().nth(3)?.join("python/bin/python3");
    let mut all = [own, PathBuf::from("python3")].into_iter();
    all.find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import duckdb"]);
        command.output().is_ok_and(|output| output.status.success())
    })
}

/// All fields of all types, read by an independent reader.
#[test]
fn duckdb_reads_parquet_files_as_they_were_written() {
    let Some(python) = python() else {
        println!("skipped: no python3 with duckdb (pip install duckdb)");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(log(directory.path(), LogFormat::Parquet, LogField::ALL));
    assert_eq!(write(plan.clone(), &[300, 0]), (301, 0, None));
    // Another file of the same minute overwrites nothing.
    assert_eq!(write(plan, &[2]), (303, 0, None));
    let all = files(directory.path());
    assert!(all.iter().all(|file| file.to_str().unwrap().ends_with(".log.parquet")), "{all:?}");
    assert_eq!(all.len(), 2, "{all:?}");
    let script = r#"
import duckdb, sys
rows = "read_parquet('" + sys.argv[1] + "/*.parquet')"
print(duckdb.sql("select count(*), sum(packets), sum(bytes), min(version) from " + rows).fetchall())
by_action = "select action, log_status, count(*) from " + rows + " group by all order by 3"
print(duckdb.sql(by_action).fetchall())
print(duckdb.sql("select * from " + rows + " where srcport = 17").fetchall())
types = "describe select version, account_id, bytes, traffic_path from " + rows
print([(c[0], c[1]) for c in duckdb.sql(types).fetchall()])
"#;
    let mut command = Command::new(python);
    let output = command.args(["-c", script]).arg(directory.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines[0], "[(303, 6040, 1283198, 10)]");
    assert_eq!(lines[1], "[(None, 'NODATA', 1), ('REJECT', 'OK', 2), ('ACCEPT', 'OK', 300)]");
    let row = "[(10, '123456789010', 'eni-00000000000000007', '172.31.16.139', '172.31.16.21', 17, \
               22, 6, 20, 4249, 1418530010, 1418530010, 'ACCEPT', 'OK', 'vpc-1', None, None, 2, \
               'IPv4', '172.31.16.139', '172.31.16.21', None, None, None, None, None, None, \
               'ingress', None";
    assert!(lines[2].starts_with(row), "{}", lines[2]);
    assert_eq!(
        lines[3],
        "[('version', 'INTEGER'), ('account_id', 'VARCHAR'), ('bytes', 'BIGINT'), \
         ('traffic_path', 'INTEGER')]"
    );
}

/// The machine's clock is set after the start of this process, or the machine has slept.
#[test]
fn regression_times_are_those_of_the_wall_clock_when_a_window_is_written() {
    static ZERO: AtomicU64 = AtomicU64::new(1_418_530_010_000_000_000);
    const DAY_NS: u64 = 86_400_000_000_000;
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(log(directory.path(), LogFormat::Text, &[]));
    let counts = Arc::clone(&plan.logs[&FlowLogId(1)].counts);
    let mut logs = Logs::start(|| ZERO.load(Ordering::Relaxed), Files::default()).unwrap();
    assert!(logs.send(Message::Plan(Box::new(plan.clone()))));
    logs.plan = plan;
    logs.offer(window(1));
    while counts.written.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    ZERO.fetch_add(DAY_NS, Ordering::Relaxed);
    logs.offer(window(1));
    end(logs);
    let text = fs::read_to_string(&files(directory.path())[0]).unwrap();
    let start = |line: &str| line.split(' ').nth(10).unwrap().parse::<u64>().unwrap();
    let starts: Vec<u64> = text.lines().skip(1).map(start).collect();
    assert_eq!(starts, [1_418_530_010, 1_418_530_010 + 86_400]);
}

/// A plan that finds the queue full is sent when there is space.
#[test]
fn regression_a_plan_that_could_not_be_sent_is_sent_later() {
    let (queue, messages) = sync_channel(1);
    let (_end, ended) = sync_channel(1);
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(log(directory.path(), LogFormat::Text, &[]));
    let (queued, owed) = (Arc::default(), BTreeMap::new());
    let mut logs = Logs { plan, owes_plan: true, queue: Some(queue), queued, owed, ended };
    logs.offer(window(1));
    logs.send_plan();
    assert!(logs.owes_plan);
    assert!(matches!(messages.try_recv(), Ok(Message::Window(_))));
    logs.send_plan();
    assert!(!logs.owes_plan && matches!(messages.try_recv(), Ok(Message::Plan(_))));
    logs.send_plan();
    assert!(messages.try_recv().is_err(), "once");
}

#[test]
fn regression_packets_owed_to_an_interface_that_is_gone_are_forgotten() {
    let (queue, _messages) = sync_channel(0);
    let (_end, ended) = sync_channel(1);
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(log(directory.path(), LogFormat::Text, &[]));
    let (queued, owed) = (Arc::default(), BTreeMap::new());
    let mut logs =
        Logs { plan: plan.clone(), owes_plan: false, queue: Some(queue), queued, owed, ended };
    logs.offer(window(1));
    logs.set_plan(plan);
    assert_eq!(logs.owed, [((ENI, MINUTE), 20)].into());
    logs.set_plan(Plan::default());
    assert!(logs.owed.is_empty() && logs.owes_plan);
}

#[test]
fn a_disk_that_hangs_holds_up_no_other_log() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (directory.path().join("good"), directory.path().join("bad"));
    let mut both = plan(log(&good, LogFormat::Text, &[]));
    let (slow, fast) = (FlowLogId(2), FlowLogId(1));
    let other = log(&bad, LogFormat::Text, &[]);
    both.logs.insert(slow, Active { log: other, counts: Arc::default() });
    both.windows.insert((ENI, MINUTE), vec![fast, slow]);
    let counts = |logs: &FlowLogs, id| Arc::clone(&logs.plan.logs[&id].counts);
    let mut logs = FlowLogs::new(NOON, Files::default());
    logs.set_plan(both).unwrap();
    // The lock of the counters simulates a hanging disk: each write takes it at its end.
    let of_slow = counts(&logs, slow);
    let hangs = of_slow.failure.lock().unwrap();
    logs.send_plans();
    let written = counts(&logs, fast);
    for number in 1..=20 {
        logs.offer(window(3));
        let began = std::time::Instant::now();
        while written.written.load(Ordering::Relaxed) < number * 3 {
            assert!(began.elapsed() < LONG, "the other log waits");
            std::thread::yield_now();
        }
    }
    drop(hangs);
    assert_eq!(logs.end(), 0);
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((of(&of_slow.written), of(&of_slow.dropped)), (60, 0), "it has lost nothing");
    assert_eq!((files(&good).len(), files(&bad).len()), (1, 1));
}

/// If there are more logs than threads, logs share threads.
#[test]
fn threads_for_logs_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut many = plan(log(directory.path(), LogFormat::Text, &[]));
    let more = u64::try_from(lines::LINES_MAX).unwrap() + 6;
    for number in 2..=more {
        let other = log(&directory.path().join(number.to_string()), LogFormat::Text, &[]);
        many.logs.insert(FlowLogId(number), Active { log: other, counts: Arc::default() });
    }
    many.windows.insert((ENI, MINUTE), (1..=more).map(FlowLogId).collect());
    let mut logs = FlowLogs::new(NOON, Files::default());
    logs.set_plan(many.clone()).unwrap();
    assert_eq!(logs.threads(), lines::LINES_MAX);
    logs.send_plans();
    logs.offer(window(2));
    assert_eq!(logs.end(), 0);
    let written = many.logs.values().map(|of| of.counts.written.load(Ordering::Relaxed));
    assert_eq!(written.sum::<u64>(), more * 2);
}
