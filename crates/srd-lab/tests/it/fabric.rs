//! The fabric on a real kernel. Needs root and iproute2; if they are missing, a test prints that it
//! was skipped and passes.

use crate::ready::ready;
use srd_lab::probe::Pair;
use srd_lab::{Fabric, FabricConfig, Family, HostId, LinkId, priority, requirements};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const TO: HostId = HostId { leaf: 1, host: 0 };
/// Time limit for an answer that must arrive.
const WAIT: Duration = Duration::from_secs(60);
/// Silence after which no more datagrams are expected. A busy kernel may process packets late.
const SILENCE: Duration = Duration::from_secs(1);
/// Time limit for an answer that may never arrive.
const MOMENT: Duration = Duration::from_millis(100);

/// Returns a configuration whose name contains the process id: a second checkout may run its tests
/// at the same time.
fn config(test: &str) -> FabricConfig {
    FabricConfig {
        name_prefix: format!("{test}{}", std::process::id()),
        hosts_per_leaf: 2,
        ..FabricConfig::default()
    }
}

fn namespaces(name: &str) -> Vec<String> {
    let prefix = format!("srdlab-{name}-");
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

fn pair(family: Family) -> Pair {
    Pair { from: FROM, to: TO, family }
}

/// Returns the number of source ports, out of 16, that get an answer.
fn answers(fabric: &Fabric, family: Family, wait: Duration) -> usize {
    let ping = |port| fabric.ping(pair(family), port, wait).expect("probe").is_some();
    (20_000..20_016).filter(|port| ping(*port)).count()
}

#[test]
fn life_of_a_fabric() {
    if !ready(None) {
        return;
    }
    let start = Instant::now();
    let fabric = Fabric::up_guarded(config("life")).unwrap();
    println!("up in {:?}", start.elapsed());
    let name = fabric.name().to_owned();
    assert_eq!(namespaces(&name).len(), 2 + 4 + 4);
    for family in [Family::V4, Family::V6] {
        assert_eq!(answers(&fabric, family, WAIT), 16, "{family:?}");
    }

    // A failed spine silently drops the packets of some ports; after it is healed, all ports get
    // answers.
    fabric.fail_spine(1).unwrap();
    assert!(fabric.status().unwrap().faults.failed_spines.contains(&1));
    for family in [Family::V4, Family::V6] {
        let left = answers(&fabric, family, MOMENT);
        assert!((1..16).contains(&left), "{family:?}: {left} of 16");
    }
    fabric.heal_spine(1).unwrap();
    for family in [Family::V4, Family::V6] {
        assert_eq!(answers(&fabric, family, WAIT), 16, "{family:?}");
    }

    // If all links of a leaf have failed, no packet passes; after they are healed, all pass.
    let links = (0..4).map(|spine| LinkId { leaf: 0, spine });
    links.clone().for_each(|link| fabric.fail_link(link).unwrap());
    for family in [Family::V4, Family::V6] {
        assert_eq!(fabric.ping(pair(family), 20_000, MOMENT).unwrap(), None);
    }
    links.for_each(|link| fabric.heal_link(link).unwrap());
    for family in [Family::V4, Family::V6] {
        assert_eq!(answers(&fabric, family, WAIT), 16, "{family:?}");
    }
    assert!(fabric.faults().unwrap().is_empty());

    let report = fabric.down().unwrap();
    assert_eq!(report.namespaces.len(), 10);
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(Fabric::open(&name).is_err());
    assert!(!Fabric::list().unwrap().contains(&name));
}

/// Whether the other host answers. A fabric that is up forwards the first datagram.
fn is_reached(fabric: &Fabric, family: Family) -> bool {
    fabric.ping(pair(family), 20_000, WAIT).unwrap().is_some()
}

#[test]
fn next_up_cleans_up_after_a_crash_and_only_that() {
    if !ready(None) {
        return;
    }
    let config = config("crash");
    let name = config.name_prefix.clone();
    let unrelated =
        [format!("{name}-l0"), format!("srdlab-{name}x-l0"), format!("srdlab-{name}-x")];
    let ip = |arguments: &[&str]| {
        assert!(Command::new("ip").args(arguments).status().unwrap().success(), "{arguments:?}");
    };
    unrelated.iter().for_each(|space| ip(&["netns", "add", space]));

    // `up` without a guard leaves the same objects as a crashed run: namespaces, state, a process
    // inside.
    let fabric = Fabric::up(config.clone()).unwrap();
    let mut inside = fabric.spawn(FROM, Command::new("sleep").arg("600")).unwrap();
    let mut outside = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();

    let smaller = FabricConfig { spines: 2, hosts_per_leaf: 1, ..config };
    let guard = Fabric::up_guarded(smaller.clone()).unwrap();
    assert_eq!(namespaces(&name).len(), 2 + 2 + 2 + 1, "the old ones are gone");
    assert!(!inside.wait().unwrap().success(), "ended");
    assert_eq!(outside.try_wait().unwrap(), None, "a process elsewhere lives on");
    // A second `up` does not remove a guarded fabric.
    let refused = Fabric::up(smaller).expect_err("in use").to_string();
    assert!(refused.contains("in use by process"), "{refused}");
    assert!(is_reached(&guard, Family::V4));
    drop(guard);

    for space in &unrelated {
        assert!(fs::metadata(format!("/run/netns/{space}")).is_ok(), "{space} survives");
        ip(&["netns", "delete", space]);
    }
    assert_eq!(namespaces(&name), [""; 0]);
    outside.kill().unwrap();
    outside.wait().unwrap();
}

/// In an earlier version, a guard removed the fabric that another user had built after the removal
/// of the guard's fabric.
#[test]
fn regression_a_guard_removes_no_later_fabric_of_its_name() {
    if !ready(None) {
        return;
    }
    let config = FabricConfig { spines: 1, hosts_per_leaf: 1, ..config("later") };
    let name = config.name_prefix.clone();
    let guard = Fabric::up_guarded(config.clone()).unwrap();
    let all = namespaces(&name);
    Fabric::down_by_name(&name).unwrap();
    let later = Fabric::up(config.clone()).unwrap();
    drop(guard);
    assert_eq!(namespaces(&name), all);
    later.down().unwrap();
    let guard = Fabric::up_guarded(config).unwrap();
    Fabric::down_by_name(&name).unwrap();
    assert_eq!(guard.down().unwrap().namespaces, [""; 0], "there is nothing to remove");
}

/// In an earlier version, a change of a fault that failed half-way left its first half in force,
/// and no healing removed it.
#[test]
fn regression_a_fault_that_cannot_be_set_leaves_nothing_behind() {
    if !ready(None) {
        return;
    }
    let config = FabricConfig { spines: 1, hosts_per_leaf: 1, ..config("half") };
    let name = config.name_prefix.clone();
    let fabric = Fabric::up_guarded(config).unwrap();
    let run = |space: &str, words: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("srdlab-{name}-{space}")]);
        let output = command.args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rate = || {
        let shown = run("s0", "tc qdisc show dev dn0");
        let (_, rest) = shown.split_once(" rate ").unwrap();
        rest.split_once(' ').unwrap().0.to_owned()
    };
    let before = rate();
    // The change begins at the spine, and fails at the leaf.
    run("l0", "ip link set dev up0 down");
    run("l0", "ip link set dev up0 name gone");
    fabric.slow_link(LinkId { leaf: 0, spine: 0 }, 1).unwrap_err();
    assert_eq!(rate(), before);
    assert!(fabric.faults().unwrap().slowed_links.is_empty());
}

#[test]
fn source_ports_spread_over_the_spines() {
    if !ready(None) {
        return;
    }
    let fabric = Fabric::up_guarded(config("ecmp")).unwrap();
    for family in [Family::V4, Family::V6] {
        let before = fabric.uplink_ports(0).unwrap();
        let arrived = fabric.spray(pair(family), 30_000..30_256, 200, SILENCE).unwrap();
        let after = fabric.uplink_ports(0).unwrap();
        assert_eq!(arrived, 256);
        let spread: Vec<u64> =
            after.iter().zip(&before).map(|(a, b)| a.sent_packets - b.sent_packets).collect();
        println!("{family:?}: {spread:?}");
        // The expected number per spine is 64 with a standard deviation of 7: one draw of ten
        // million is outside of this range.
        let fair = 27..=101;
        assert!(spread.iter().all(|packets| fair.contains(packets)), "{family:?} {spread:?}");
    }
    // All packets of one source port take the same path.
    let before = fabric.uplink_ports(0).unwrap();
    for _ in 0..12 {
        assert_eq!(fabric.spray(pair(Family::V4), 31_000..31_001, 1000, SILENCE / 2).unwrap(), 1);
    }
    let after = fabric.uplink_ports(0).unwrap();
    let used = after.iter().zip(&before).filter(|(a, b)| a.sent_bytes - b.sent_bytes > 10_000);
    assert_eq!(used.count(), 1);
}

#[test]
fn knobs_and_lossy_spines() {
    if !ready(None) {
        return;
    }
    let fabric = Fabric::up_guarded(config("knobs")).unwrap();
    let link = LinkId { leaf: 0, spine: 3 };
    fabric.slow_link(link, 50).unwrap();
    let rate = || fabric.uplink_ports(0).unwrap()[3].rate_mbps;
    assert!((rate() - 50.0).abs() < 0.1, "{}", rate());
    fabric.heal_link(link).unwrap();
    assert!((rate() - 250.0).abs() < 0.1, "{}", rate());

    if requirements().iter().all(|m| m.what != "`nft`") {
        (0..4).for_each(|spine| fabric.loss(spine, 1000).unwrap());
        assert_eq!(fabric.ping(pair(Family::V6), 20_000, MOMENT).unwrap(), None);
        fabric.heal_all().unwrap();
        assert!(is_reached(&fabric, Family::V6));
    }

    let shell = |text: &str| {
        let argv = ["sh", "-c", text].map(OsString::from);
        fabric.exec(FROM, &argv).unwrap()
    };
    assert_eq!(shell("exit 7"), 7);
    assert_eq!(shell("kill -TERM $$"), 128 + 15);
    let here = format!("ip netns identify $$ | grep -qx srdlab-{}-h0.0", fabric.name());
    assert_eq!(shell(&here), 0);
    assert_eq!(shell("test -e /sys/class/net/eth0"), 0);

    let high = ["sh", "-c", "test $(nice) = -19 && ! grep -q 'nice 0$' /proc/self/autogroup"];
    assert_eq!(fabric.exec_at_high_priority(FROM, &high.map(OsString::from)).unwrap(), 0);

    fabric.mptcp(2).unwrap();
    assert_eq!(shell("test $(ip -4 -o addr show dev eth0 | wc -l) = 3"), 0);
    fabric.mptcp(0).unwrap();
    assert_eq!(shell("test $(ip -4 -o addr show dev eth0 | wc -l) = 1"), 0);
    if requirements().iter().all(|m| m.needed_for != "set_rto_min_ms") {
        fabric.set_rto_min_ms(50).unwrap();
        assert_eq!(shell("grep -qx 50000 /proc/sys/net/ipv4/tcp_rto_min_us"), 0);
    }
    assert_eq!(fabric.status().unwrap().namespaces.iter().filter(|n| n.present).count(), 10);
    let allowed =
        || fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let allowed_before = allowed();
    match fabric.set_tcp_cc("cubic") {
        Ok(()) => {
            assert_eq!(shell("grep -qx cubic /proc/sys/net/ipv4/tcp_congestion_control"), 0);
        }
        // In a container, only the host can change the list.
        Err(error) => assert!(format!("{error:#}").contains("cannot allow `cubic`"), "{error:#}"),
    }
    let unknown = fabric.set_tcp_cc("nonesuch").expect_err("unknown").to_string();
    assert!(unknown.contains("has no congestion control"), "{unknown}");
    let argv = ["no-such-program".into()];
    assert!(fabric.exec(FROM, &argv).expect_err("missing").to_string().contains("no such program"));
    fabric.down().unwrap();
    assert_eq!(allowed(), allowed_before, "the machine's list is as before");
}

#[test]
fn guard_removes_the_fabric_when_a_signal_ends_the_process() {
    if !ready(None) {
        return;
    }
    let this = "fabric::guard_removes_the_fabric_when_a_signal_ends_the_process";
    let name = format!("signal{}", std::process::id());
    let run = |fabric: &Fabric| {
        fs::write(ready_file(fabric.name()), "").unwrap();
        std::thread::sleep(Duration::from_secs(100));
    };
    if hold(run) {
        return;
    }
    let status = start_and_terminate(this, &name);
    assert_eq!(status.signal(), Some(15));
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn signal_goes_to_the_program_in_the_host_first() {
    if !ready(None) {
        return;
    }
    let this = "fabric::signal_goes_to_the_program_in_the_host_first";
    let name = format!("forward{}", std::process::id());
    let run = |fabric: &Fabric| {
        // The program waits, because signals are forwarded only from a moment after its start.
        let script = "trap 'exit 5' TERM; sleep 2; : >\"$0\"; while :; do sleep 0.05; done";
        let ready = ready_file(fabric.name());
        let argv = ["sh", "-c", script, ready.to_str().unwrap()];
        let code = fabric.exec(FROM, &argv.map(OsString::from)).unwrap();
        assert_eq!(code, 5);
    };
    if hold(run) {
        return;
    }
    let status = start_and_terminate(this, &name);
    assert_eq!(status.code(), Some(0), "the program ended, and the test went on to its end");
    assert_eq!(namespaces(&name), [""; 0]);
}

const HOLD: &str = "SRD_LAB_TEST_HOLD";

/// Holds a fabric while `work` runs, if this is the process that [`start_and_terminate`] starts.
fn hold(work: impl FnOnce(&Fabric)) -> bool {
    let Ok(name) = std::env::var(HOLD) else { return false };
    let small = FabricConfig { name_prefix: name, spines: 1, hosts_per_leaf: 1, ..config("") };
    let guard = Fabric::up_guarded(small).expect("up");
    work(&guard);
    true
}

/// Returns the path of a file that exists when a process holds a fabric of this name and is ready
/// for a signal.
fn ready_file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("srd-{name}.ready"))
}

/// Starts one test again, as a process that holds a fabric, sends it SIGTERM, and returns its exit
/// status.
fn start_and_terminate(test: &str, name: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("own path");
    let mut command = Command::new(program);
    let mut holder = command.args(["--exact", test]).env(HOLD, name).spawn().expect("spawn");
    let deadline = Instant::now() + Duration::from_secs(60);
    let ready = ready_file(name);
    while !ready.exists() {
        assert!(holder.try_wait().expect("wait").is_none(), "the other process has ended");
        assert!(Instant::now() < deadline, "the other process builds its fabric");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::remove_file(ready).expect("remove");
    let pid = holder.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    holder.wait().expect("wait")
}

#[test]
fn priorities_are_put_back() {
    if !ready(None) {
        return;
    }
    let nice = || {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("own stat");
        let after_name = stat.rsplit_once(')').expect("a name in parentheses").1.to_owned();
        // Nice and policy are fields 19 and 41 of the line; the first field after the name is field
        // 3.
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        (fields[16].to_owned(), fields[38].to_owned())
    };
    let before = nice();
    {
        let _raised = priority::raise(Duration::from_secs(100)).unwrap();
        assert_eq!(nice().0, "-19");
        let _real_time = priority::fifo(10).unwrap();
        assert_eq!(nice().1, "1", "SCHED_FIFO");
        let refused = priority::raise(Duration::ZERO).expect_err("one at a time").to_string();
        assert!(refused.contains("another measurement"), "{refused}");
    }
    assert_eq!(nice(), before);
}
