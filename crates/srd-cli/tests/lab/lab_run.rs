//! `srd lab run` from end to end: the cheapest experiment, and command lines that are refused.

use crate::quiet::are_all_quiet;
use crate::ready::{missing_tun, ready};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn srd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd")).args(arguments).output().expect("srd")
}

/// Maximum number of runs of an experiment, one of which must have the expected losses.
const TRIES: usize = 3;

/// Runs an experiment until its losses are as expected. Fails if the losses of a run are wrong
/// although no other programs used the machine. Other programs can cause losses, because they delay
/// the programs that read the queues.
fn loses_as_it_must(words: &[&str], mut is_right: impl FnMut(&Value) -> bool) {
    for _ in 0..TRIES {
        let output = srd(words);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{err}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        let experiment = &json["experiments"][0];
        if is_right(experiment) {
            return;
        }
        assert!(!are_all_quiet(experiment), "{experiment}");
    }
    println!("not compared, for none of {TRIES} runs had the machine for itself");
}

#[test]
fn cheapest_experiment_yields_table_json_and_report() {
    if !ready([]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (json, report) = (directory.path().join("out.json"), directory.path().join("out.html"));
    // The name contains the process id, because the tests of another checkout may run at the same
    // time.
    let name = format!("e2e{}", std::process::id());
    let output = srd(&[
        "lab",
        "run",
        "incast",
        "--quick",
        "--variants",
        "plain,rto5",
        "--name",
        &name,
        "--high-priority",
        "false",
        "--json",
        json.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("plain (cubic)") && out.contains("slowest flow"), "{out}");
    assert!(err.contains("incast: [1/1] 64 KB, plain, 1 of 1"), "{err}");

    let json: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let case = &json["experiments"][0]["cases"][0];
    let runs = case["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let flows = &run["measured"]["samples"][1];
        assert_eq!(flows["name"], "flow completion time");
        assert_eq!(flows["count"], 5 * 48, "every flow of every round");
        // The slowest flow needs at least the time that the receiver's link needs for all flows,
        // less the data that the link's token bucket passes at once.
        assert!(flows["percentiles"]["p100"].as_f64().unwrap() > 0.9, "{flows}");
    }
    assert_eq!(case["summaries"][0]["variant"], "plain");
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("<svg"));
    // Published figures are in both outputs, those without a value of this run only on the page.
    let figure = "3 to 20 over TCP, about 1 over SRD";
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(figure) && words.contains("this run: plain (cubic): "), "{out}");
    assert!(page.contains("case <code>2\u{a0}MB</code> did not run"), "{page}");
    assert!(!out.contains("did not run"), "{out}");
    assert!(!String::from_utf8_lossy(&srd(&["lab", "status"]).stdout).contains(&name));
}

/// Regression: the figures of an experiment were lost if a later experiment failed, or if the
/// report could not be written.
#[test]
fn regression_figures_are_kept_when_a_later_experiment_or_the_report_fails() {
    if !ready([]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let name = format!("e2k{}", std::process::id());
    let words = "lab run incast mpi --quick --variants plain --high-priority false";
    let mut arguments: Vec<&str> = words.split(' ').collect();
    // /dev/full behaves like a file on a full disk.
    arguments.extend(["--mpirun", "/no/such/mpirun", "--report", "/dev/full"]);
    arguments.extend(["--name", &name, "--json", json.to_str().unwrap()]);
    let output = srd(&arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("mpirun"), "{err}");
    let json: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(json["experiments"][0]["experiment"], "incast");
    assert_eq!(json["experiments"].as_array().unwrap().len(), 1);
}

#[test]
fn express_carries_the_same_flows_and_all_of_them() {
    if !ready(missing_tun()) {
        return;
    }
    let name = format!("e2x{}", std::process::id());
    let output = srd(&[
        "lab",
        "run",
        "incast",
        "--quick",
        "--variants",
        "express",
        "--name",
        &name,
        "--high-priority",
        "false",
        "--json",
        "-",
    ]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let run = &json["experiments"][0]["cases"][0]["runs"][0];
    assert_eq!(run["variant"], "express");
    assert_eq!(run["measured"]["samples"][1]["count"], 5 * 48, "every flow of every round");
    let figures = run["measured"]["figures"].as_array().unwrap();
    let unfinished = figures.iter().find(|figure| figure["name"] == "unfinished").unwrap();
    assert_eq!(unfinished["value"], 0.0);
    // Five rounds of 48 flows of 64 KB in packets of at most 9000 bytes.
    let packets = run["express"]["ena_srd_tx_pkts"].as_f64().unwrap();
    assert!(packets > 5.0 * 48.0 * 65_536.0 / 9000.0, "{packets} packets over SRD");
}

#[test]
fn losses_of_one_flow_hit_that_flow_and_express_makes_them_good() {
    if !ready(missing_tun()) {
        return;
    }
    let name = format!("e2o{}", std::process::id());
    let mut arguments = vec!["lab", "run", "ordering", "--quick"];
    arguments.extend(["--variants", "express", "--name", &name, "--high-priority", "false"]);
    arguments.extend(["--json", "-"]);
    loses_as_it_must(&arguments, |experiment| {
        let cases = experiment["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 2, "in order, and in any order");
        cases.iter().all(|case| {
            let figure = |name: &str| value(&case["runs"][0], name);
            assert!(figure("lost by the spines") > 0.0, "{case}");
            // Only packets of flow A are lost. The length of such a packet is the sum of: IP, UDP,
            // header, fields, offload header, IP, UDP, payload, tag. If the sender waited for a
            // processor, a datagram may contain two of A's frames, or three of B's, which are also
            // longer than the length above which the spines lose packets.
            let length = f64::from(20 + 8 + 12 + 24 + 10 + 20 + 8 + 4000 + 16);
            let mean = figure("mean length of these");
            assert!((0.9 * length..1.1 * length).contains(&mean), "{case}");
            figure("A lost") + figure("B lost") == 0.0
        })
    });
}

/// Returns the figure `name` of a run, from its JSON.
fn value(run: &Value, name: &str) -> f64 {
    let figures = run["measured"]["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {figures:?}"))["value"].as_f64().expect("a number")
}

#[test]
fn requests_over_changing_conditions_are_all_answered_and_counted_over_time() {
    if !ready([]) {
        return;
    }
    if Command::new("redis-server").arg("--version").output().is_err() {
        println!("skipped: no redis-server (apt-get install redis-server)");
        return;
    }
    let name = format!("e2r{}", std::process::id());
    let mut arguments = vec!["lab", "run", "redis", "--quick", "--case", "changes"];
    arguments.extend(["--variants", "plain", "--rate", "900", "--threads", "2"]);
    arguments.extend(["--name", &name, "--high-priority", "false", "--json", "-"]);
    let output = srd(&arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let run = &json["experiments"][0]["cases"][0]["runs"][0];
    assert_eq!(value(run, "wrong answers"), 0.0);
    assert!(value(run, "elephants") > 0.0, "the neighbours came: {run}");
    for (kind, least) in [("GET", 6 * 900 * 7 / 10), ("SET", 6 * 900 / 10)] {
        let latency = format!("{kind} latency");
        let of = |list: &str| {
            let all = run["measured"][list].as_array().expect("a list").iter();
            all.clone().find(|one| one["name"] == latency.as_str()).expect("both kinds").clone()
        };
        assert!(of("samples")["count"].as_u64().unwrap() > least, "{run}");
        let spread = of("spreads");
        assert_eq!(spread["lines"][1]["values"].as_array().unwrap().len(), 24, "{spread}");
        assert_eq!(spread["marks"].as_array().unwrap().len(), 5, "{spread}");
        assert!(value(run, &format!("{kind} worst, slow links")) > 0.0);
    }
}

#[test]
fn memcached_answers_every_request_over_both_transports() {
    if !ready(missing_tun()) {
        return;
    }
    if Command::new("memcached").arg("--version").output().is_err() {
        println!("skipped: no memcached (apt-get install memcached)");
        return;
    }
    let name = format!("e2m{}", std::process::id());
    let mut arguments = vec!["lab", "run", "redis", "--memcached", "--quick", "--rate", "500"];
    arguments.extend(["--name", &name, "--high-priority", "false", "--json", "-"]);
    let output = srd(&arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let case = &json["experiments"][0]["cases"][0];
    assert!(case["setting"].as_str().unwrap().starts_with("Memcached, 600 connections"), "{case}");
    let runs = case["runs"].as_array().unwrap();
    let variants: Vec<_> = runs.iter().map(|run| run["variant"].as_str().unwrap()).collect();
    assert_eq!(variants, ["plain", "express"]);
    for run in runs {
        assert_eq!(value(run, "wrong answers"), 0.0, "{run}");
        let counts = run["measured"]["samples"].as_array().unwrap();
        let counts: Vec<_> = counts.iter().map(|one| one["count"].as_u64().unwrap()).collect();
        assert!(counts.len() == 2 && counts.iter().all(|count| *count > 50), "{counts:?}");
    }
}

#[test]
fn one_plain_flow_may_not_send_4k_and_one_of_express_may() {
    if !ready(missing_tun()) {
        return;
    }
    let name = format!("e2v{}", std::process::id());
    let mut arguments = vec!["lab", "run", "video", "--quick", "--case", "HD idle,4K idle"];
    arguments.extend(["--name", &name, "--high-priority", "false", "--json", "-"]);
    // Late frames may be caused by a busy machine, but drops at the rate limit may not.
    let lost = |case: &Value, variant: &str| {
        let runs = case["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["variant"] == variant).expect("both variants");
        value(run, "datagrams lost")
    };
    loses_as_it_must(&arguments, |experiment| {
        let cases = experiment["cases"].as_array().unwrap();
        // HD video also passes without SRD.
        lost(&cases[1], "plain") > 5.0
            && lost(&cases[0], "plain") == 0.0
            && cases.iter().all(|case| lost(case, "express") == 0.0)
    });
}

#[test]
fn video_over_express_srt_and_rist_is_whole_where_plain_udp_loses_datagrams() {
    if !ready(missing_tun()) {
        return;
    }
    for (program, argument, package) in
        [("srt-live-transmit", "-version", "srt-tools"), ("ristsender", "--help", "rist-tools")]
    {
        if Command::new(program).arg(argument).output().is_err() {
            println!("skipped: no {program} (apt-get install {package})");
            return;
        }
    }
    let name = format!("e2w{}", std::process::id());
    let mut arguments = vec!["lab", "run", "video-srt", "--quick"];
    arguments.extend(["--name", &name, "--high-priority", "false", "--json", "-"]);
    loses_as_it_must(&arguments, |experiment| {
        let lost = |case: usize, variant: &str| {
            let runs = experiment["cases"][case]["runs"].as_array().unwrap();
            let run = runs.iter().find(|run| run["variant"] == variant).expect("the variant");
            value(run, "datagrams lost")
        };
        let (plain, express) = (lost(0, "plain"), lost(0, "express"));
        let [srt, rist] = [1, 2].map(|case| lost(case, "plain"));
        println!("datagrams lost: plain {plain}, Express {express}, SRT {srt}, RIST {rist}");
        plain > 5.0 && express == 0.0 && srt.max(rist) < plain / 2.0
    });
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    for (arguments, complaint) in [
        (&["lab", "run", "nonesuch"][..], "there is no experiment `nonesuch`: single-flow"),
        (&["lab", "run", "incast", "--variants", "tcp"], "is not a variant: plain, express"),
        (&["lab", "run", "incast", "--reps", "0"], "reps = 0: must be 1 to 1000"),
        (&["lab", "run", "redis", "--rate", "0"], "rate = 0: must be 1 to 1000000"),
        (&["lab", "run", "redis", "--threads", "99"], "threads = 99: must be 1 to 64"),
        (&["lab", "run", "redis", "--seconds", "99999"], "seconds = 99999: must be 1 to 28800"),
        (
            &["lab", "run", "incast", "--case", "1 KB"],
            "case = 1 KB: must be one of `incast`: 64 KB",
        ),
        (&["lab", "run", "incast", "video", "--case", "64 KB"], "must be one of `video`"),
        (
            &["lab", "run", "mpi", "--provider", "/nonesuch.so"],
            "--provider /nonesuch.so: there is no /nonesuch.so",
        ),
        (&["lab", "run"], "required"),
    ] {
        let output = srd(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains(complaint), "{arguments:?}: {err}");
    }
}

/// Regression: the error was reported only after all experiments had run.
#[test]
fn regression_a_report_on_a_disk_that_is_read_only_is_refused_before_anything_starts() {
    if !ready([]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o ro none \"$1\" && \"$0\" lab run incast --report \"$1/page.html\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_srd")]).arg(directory.path());
    let output = command.output().expect("unshare");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("Read-only file system") && err.contains("name another file"), "{err}");
}

#[test]
fn list_describes_every_experiment() {
    let output = srd(&["lab", "run", "--list"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for experiment in srd_bench::experiment::ALL {
        assert!(out.contains(experiment.name) && out.contains(experiment.summary), "{out}");
    }
    assert!(out.contains("iperf3 (apt-get install iperf3)"), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("srd lab fetch spark") && words.contains("srd lab fetch jax"), "{out}");
}

#[test]
fn regression_a_signal_leaves_no_keys_and_logs_behind() {
    if !ready([]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(directory.path()).unwrap().flatten();
    let name = format!("e2s{}", std::process::id());
    let mut running = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["lab", "run", "incast", "--quick", "--variants", "plain", "--name", &name])
        .args(["--high-priority", "false", "--seconds", "60"])
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    // The file `in-use` is the first that the program creates in its directory.
    while !files().any(|directory| directory.path().join("in-use").exists()) {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(began.elapsed() < Duration::from_secs(60), "no directory");
        thread::sleep(Duration::from_millis(10));
    }
    let pid = Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let status = running.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(files().count(), 0);
}
