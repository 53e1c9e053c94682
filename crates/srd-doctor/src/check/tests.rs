use super::finding::{Class, Outcome};
use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::rc::Rc;
use tempfile::TempDir;

const RINGS: &str = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t16384\nTX:\t\t1024\n\
                     Current hardware settings:\nRX:\t\t8192\nTX:\t\t1024\n";
const FEATURES: &str = "Features for eth0:\ntx-checksumming: on\n\ttx-checksum-ipv4: on\n\
                        generic-segmentation-offload: on\ngeneric-receive-offload: on\n";

/// Programs that return prepared output, and whose calls are recorded.
#[derive(Clone, Default)]
struct Answers {
    known: Rc<RefCell<BTreeMap<String, String>>>,
    asked: Rc<RefCell<Vec<String>>>,
    nodelay: Rc<RefCell<BTreeMap<u32, bool>>>,
    own: Rc<RefCell<Option<PathBuf>>>,
}

impl system::Programs for Answers {
    fn run(&self, argv: &[&str]) -> Result<String> {
        let command = argv.join(" ");
        self.asked.borrow_mut().push(command.clone());
        let answer = self.known.borrow().get(&command).cloned();
        answer.ok_or_else(|| anyhow::anyhow!("{command}: not known"))
    }

    fn nodelay(&self, pid: u32, _: u32) -> Option<bool> {
        self.nodelay.borrow().get(&pid).copied()
    }

    /// Returns the path of a program that is installed on every machine, because the path of the
    /// test program varies.
    fn own(&self) -> std::io::Result<PathBuf> {
        Ok(self.own.borrow().clone().unwrap_or_else(|| PathBuf::from("/usr/bin/env")))
    }
}

/// A directory tree that represents a system in which every value is as recommended.
struct Tree {
    directory: TempDir,
    answers: Answers,
    options: Options,
}

impl Tree {
    /// Returns the tree of an EC2 instance with ENA Express.
    fn instance() -> Self {
        let tree = Self::bare("ena", "8900");
        tree.file("sys/module/ena/version", "2.13.0g");
        tree.file("sys/module/ena/parameters/force_large_llq_header", "2");
        for queue in 0..2 {
            let file = format!("queues/tx-{queue}/byte_queue_limits/limit_min");
            tree.file(&format!("sys/class/net/eth0/{file}"), "1879048192");
        }
        tree
    }

    /// Returns the tree of a host that runs the daemon.
    fn host() -> Self {
        let tree = Self::bare("mlx5_core", "9000");
        tree.file("dev/net/tun", "");
        tree.file("proc/sys/net/core/rmem_max", "33554432");
        tree.file("proc/sys/net/core/wmem_max", "8388608");
        for name in ["all", "default", "eth0"] {
            tree.file(&format!("proc/sys/net/ipv4/conf/{name}/rp_filter"), "2");
        }
        tree.file("proc/sys/net/ipv6/auto_flowlabels", "1");
        for family in ["ipv4", "ipv6"] {
            tree.file(&format!("proc/sys/net/{family}/fib_multipath_hash_policy"), "1");
        }
        tree.answer("ethtool -k eth0", FEATURES);
        let several = r#"[{"dst":"default","nexthops":[{"dev":"eth0"},{"dev":"eth1"}]}]"#;
        tree.answer("ip -j -4 route show default", several);
        tree.answer("ip -j -6 route show default", "[]");
        tree
    }

    fn bare(driver: &str, mtu: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            interface: None,
            purpose: None,
            low_rtt: false,
            transparent: true,
            latency: false,
            fix: false,
            persist: false,
            image: false,
            only: Vec::new(),
            root: directory.path().to_owned(),
        };
        let tree = Self { directory, answers: Answers::default(), options };
        tree.file("sys/class/net/eth0/mtu", mtu);
        fs::create_dir_all(tree.path("sys/class/net/eth0/device")).unwrap();
        let target = format!("../../../../bus/pci/drivers/{driver}");
        symlink(target, tree.path("sys/class/net/eth0/device/driver")).unwrap();
        let route = "Iface\tDestination\neth0\t00000000\t0\t3\t0\t0\t0\t00000000\t0\t0\t0";
        tree.file("proc/net/route", route);
        tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "4194304");
        tree.file("proc/sys/net/ipv4/tcp_autocorking", "0");
        tree.file("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t8388608");
        tree.file("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t16777216");
        for direction in ["r", "w"] {
            let file = |what| format!("proc/sys/net/core/{direction}mem_{what}");
            tree.file(&file("default"), "4194304");
            tree.file(&file("max"), "8388608");
        }
        tree.file("proc/sys/net/ipv4/tcp_congestion_control", "cubic");
        tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "0");
        tree.answer("ethtool -g eth0", RINGS);
        tree
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn file(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap().trim().to_owned()
    }

    fn answer(&self, command: &str, text: &str) {
        self.answers.known.borrow_mut().insert(command.to_owned(), text.to_owned());
    }

    fn system(&self) -> System {
        System::with_programs(self.directory.path(), Box::new(self.answers.clone()))
    }

    fn findings(&self) -> Vec<Finding> {
        let system = self.system();
        let rules = rules::select(&self.options.only).unwrap();
        rules::check(&system, &subject(&self.options, &system).unwrap(), &rules)
    }

    /// Returns the numbers of the checks with this status.
    fn numbers(&self, status: Status) -> Vec<u8> {
        let findings = self.findings();
        findings.iter().filter(|f| f.status() == status).map(|f| f.number).collect()
    }

    fn found(&self, number: u8) -> Finding {
        self.findings().into_iter().find(|finding| finding.number == number).unwrap()
    }

    /// Runs `srd check` on this tree. Returns its exit code and its JSON output.
    fn run(&self, fix: bool) -> (u8, serde_json::Value) {
        let options = Options { fix, ..self.options.clone() };
        let report = examine_in(&options, &self.system()).unwrap();
        (exit_code(&report.findings), show::machine(&report))
    }
}

const NONE: [u8; 0] = [];

#[test]
fn a_good_instance_passes_every_check_that_is_for_it() {
    let tree = Tree::instance();
    assert_eq!(tree.numbers(Status::Ok), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17]);
    let others = [11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23];
    assert_eq!(tree.numbers(Status::NotApplicable), others);
    assert_eq!(tree.run(false).0, 0);
}

#[test]
fn a_good_host_passes_every_check_that_is_for_it() {
    let tree = Tree::host();
    assert_eq!(tree.numbers(Status::Ok), [1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    assert_eq!(tree.numbers(Status::NotApplicable), [3, 7, 17, 18, 19, 20, 21, 22, 23]);
    assert_eq!(tree.run(false).0, 0);
}

/// Puts one bad value into a tree of good values. Only the check `number` must fail, with `status`,
/// and it must pass again with the good value.
#[track_caller]
fn flips(tree: &Tree, number: u8, file: &str, bad: &str, status: Status) {
    let good = tree.text(file);
    tree.file(file, bad);
    assert_eq!(tree.found(number).status(), status, "{file} {bad}");
    let mut failed = [tree.numbers(Status::Warn), tree.numbers(Status::Error)].concat();
    failed.retain(|other| *other != number);
    assert_eq!(failed, NONE, "{file} {bad} failed other checks, too");
    let errors = u8::from(status == Status::Error);
    let (code, json) = tree.run(false);
    assert_eq!((code, json["required_failed"].as_u64()), (errors, Some(errors.into())));
    tree.file(file, &good);
    assert_eq!(tree.found(number).status(), Status::Ok, "{file} {good}");
}

#[test]
fn each_check_of_an_instance_flips_alone() {
    let tree = Tree::instance();
    let eth0 = |file: &str| format!("sys/class/net/eth0/{file}");
    flips(&tree, 1, &eth0("mtu"), "8901", Status::Error);
    flips(&tree, 1, &eth0("mtu"), "9001", Status::Error);
    flips(&tree, 1, &eth0("mtu"), "8799", Status::Warn);
    let ipv4 = |key: &str| format!("proc/sys/net/ipv4/{key}");
    flips(&tree, 2, &ipv4("tcp_limit_output_bytes"), "4194303", Status::Error);
    flips(&tree, 3, &eth0("queues/tx-1/byte_queue_limits/limit_min"), "0", Status::Error);
    flips(&tree, 4, &ipv4("tcp_autocorking"), "1", Status::Warn);
    flips(&tree, 8, &ipv4("tcp_rmem"), "4096 131072 8388607", Status::Warn);
    flips(&tree, 8, &ipv4("tcp_wmem"), "4096 131072 4194304", Status::Warn);
    for key in ["rmem_default", "wmem_default"] {
        flips(&tree, 9, &format!("proc/sys/net/core/{key}"), "4194303", Status::Error);
    }
    for key in ["rmem_max", "wmem_max"] {
        flips(&tree, 9, &format!("proc/sys/net/core/{key}"), "8388607", Status::Error);
    }
    flips(&tree, 10, &ipv4("tcp_congestion_control"), "bbr", Status::Error);
    let hystart = "sys/module/tcp_cubic/parameters/hystart_detect";
    flips(&tree, 10, hystart, "3", Status::Error);
    flips(&tree, 17, "sys/module/ena/version", "2.2.8g", Status::Error);
    flips(&tree, 17, "sys/module/ena/version", "2.7.4", Status::Warn);
}

#[test]
fn each_check_of_a_host_flips_alone_and_is_milder_where_the_card_alone_needs_it() {
    let tree = Tree::host();
    flips(&tree, 1, "sys/class/net/eth0/mtu", "1399", Status::Error);
    flips(&tree, 1, "sys/class/net/eth0/mtu", "1500", Status::Warn);
    let ipv4 = |key: &str| format!("proc/sys/net/ipv4/{key}");
    flips(&tree, 2, &ipv4("tcp_limit_output_bytes"), "1048576", Status::Warn);
    flips(&tree, 9, "proc/sys/net/core/rmem_default", "212992", Status::Warn);
    flips(&tree, 10, &ipv4("tcp_congestion_control"), "bbr", Status::Warn);
    flips(&tree, 11, "proc/sys/net/core/rmem_max", "33554431", Status::Warn);
    flips(&tree, 15, "proc/sys/net/ipv6/auto_flowlabels", "0", Status::Warn);
    flips(&tree, 16, &ipv4("fib_multipath_hash_policy"), "0", Status::Warn);
    fs::remove_file(tree.path("dev/net/tun")).unwrap();
    assert_eq!(tree.numbers(Status::Error), [13]);
    assert_eq!(tree.run(false).0, 1);
}

#[test]
fn the_stricter_of_two_reverse_path_filters_counts_and_loose_everywhere_wins() {
    let tree = Tree::host();
    let set = |all: &str, new: &str, eth0: &str| {
        for (name, value) in [("all", all), ("default", new), ("eth0", eth0)] {
            tree.file(&format!("proc/sys/net/ipv4/conf/{name}/rp_filter"), value);
        }
        tree.found(14).status()
    };
    assert_eq!(set("0", "0", "0"), Status::Ok);
    assert_eq!(set("0", "1", "0"), Status::Error);
    assert_eq!(set("0", "0", "1"), Status::Error);
    assert_eq!(set("1", "0", "0"), Status::Error);
    assert_eq!(set("2", "1", "1"), Status::Ok);
}

#[test]
fn rings_are_wanted_as_large_as_the_card_lets_them_be() {
    let tree = Tree::instance();
    let rings = |rx_max: u32, rx: u32, tx_max: u32, tx: u32| {
        let text = format!(
            "Pre-set maximums:\nRX:\t{rx_max}\nTX:\t{tx_max}\n\
             Current hardware settings:\nRX:\t{rx}\nTX:\t{tx}\n"
        );
        tree.answer("ethtool -g eth0", &text);
        tree.numbers(Status::Warn)
    };
    assert_eq!(rings(16384, 8192, 1024, 1024), NONE);
    assert_eq!(rings(16384, 8191, 1024, 1024), [6]);
    assert_eq!(rings(4096, 4096, 1024, 1024), NONE);
    // The Tx ring is short because of large LLQ, so the fix is in the LLQ setting and not in the
    // size of the ring.
    assert_eq!(rings(16384, 8192, 512, 512), [7]);
    assert_eq!(rings(16384, 8192, 1024, 512), [5, 7]);
    tree.file("sys/module/ena/parameters/force_large_llq_header", "0");
    assert_eq!(rings(16384, 8192, 512, 512), NONE);
    tree.answers.known.borrow_mut().clear();
    assert!(tree.numbers(Status::NotApplicable).starts_with(&[5, 6]));
}

#[test]
fn a_driver_that_does_without_queue_limits_needs_none_raised() {
    let tree = Tree::instance();
    tree.file("sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit_min", "0");
    assert_eq!(tree.numbers(Status::Error), [3]);
    tree.file("sys/module/ena/parameters/enable_bql", "1");
    assert_eq!(tree.numbers(Status::Error), [3]);
    tree.file("sys/module/ena/parameters/enable_bql", "0");
    assert_eq!(tree.numbers(Status::Error), NONE);
}

#[test]
fn offloads_that_the_driver_fixes_are_left_to_people() {
    let tree = Tree::host();
    tree.answer(
        "ethtool -k eth0",
        &FEATURES.replace("receive-offload: on", "receive-offload: off"),
    );
    let finding = tree.found(12);
    assert_eq!(finding.status(), Status::Warn);
    assert_eq!(finding.fix().unwrap().command, "sudo ethtool -K eth0 gro on");
    assert_eq!(finding.fix().unwrap().by_hand, None);
    tree.answer("ethtool -k eth0", &FEATURES.replace("sum-ipv4: on", "sum-ipv4: off"));
    assert_eq!(tree.found(12).status(), Status::Ok);
    let fixed = FEATURES.replace("tx-checksumming: on", "tx-checksumming: off [fixed]");
    tree.answer("ethtool -k eth0", &fixed);
    assert!(tree.found(12).fix().unwrap().by_hand.is_some());
}

#[test]
fn near_peers_need_less() {
    let mut tree = Tree::instance();
    for file in ["core/rmem_default", "core/rmem_max", "ipv4/tcp_limit_output_bytes"] {
        tree.file(&format!("proc/sys/net/{file}"), "1048576");
    }
    tree.file("proc/sys/net/ipv4/tcp_congestion_control", "bbr");
    tree.file("proc/sys/net/ipv4/tcp_rmem", "4096 131072 1048576");
    assert_eq!(tree.numbers(Status::Error), [2, 9, 10]);
    assert_eq!(tree.run(false).0, 3);
    tree.options.low_rtt = true;
    assert_eq!(tree.numbers(Status::Error), NONE);
    assert!(tree.numbers(Status::NotApplicable).starts_with(&[8, 9, 10]));
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1048575");
    assert_eq!(tree.numbers(Status::Error), [2]);
}

#[test]
fn settings_of_another_namespace_are_no_failure() {
    let tree = Tree::instance();
    fs::remove_file(tree.path("proc/sys/net/core/rmem_max")).unwrap();
    let Outcome::NotApplicable(reason) = tree.found(9).outcome else { panic!("it was checked") };
    assert!(reason.contains("net.core.rmem_max"), "{reason}");
}

#[test]
fn fix_writes_what_it_says_and_the_exit_code_is_of_what_remains() {
    let tree = Tree::instance();
    tree.file("sys/class/net/eth0/mtu", "9001");
    let limit_min =
        |queue| format!("sys/class/net/eth0/queues/tx-{queue}/byte_queue_limits/limit_min");
    tree.file(&limit_min(0), "0");
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.file("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456");
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1048576");
    tree.file("proc/sys/net/core/wmem_default", "212992");
    tree.file("proc/sys/net/ipv4/tcp_congestion_control", "bbr");
    tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "3");
    tree.answer("ethtool -g eth0", &RINGS.replace("RX:\t\t8192", "RX:\t\t1024"));
    tree.answer("ethtool -G eth0 rx 8192", "");
    let before = tree.run(false);
    assert_eq!(before.0, 5, "{}", before.1);
    let (code, json) = tree.run(true);
    assert_eq!(tree.text("sys/class/net/eth0/mtu"), "8900");
    assert_eq!(tree.text(&limit_min(0)), "max");
    assert_eq!(tree.text(&limit_min(1)), "1879048192");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_autocorking"), "0");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_rmem"), "4096 131072 8388608");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_limit_output_bytes"), "4194304");
    assert_eq!(tree.text("proc/sys/net/core/wmem_default"), "4194304");
    assert_eq!(tree.text("proc/sys/net/core/wmem_max"), "8388608");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_congestion_control"), "cubic");
    assert_eq!(tree.text("sys/module/tcp_cubic/parameters/hystart_detect"), "0");
    let asked = tree.answers.asked.borrow();
    assert_eq!(asked.iter().filter(|command| *command == "ethtool -G eth0 rx 8192").count(), 1);
    assert_eq!(code, 0, "{json}");
    let done = json["fixes"].as_array().unwrap();
    assert!(done.iter().all(|fix| fix["result"] == "done"), "{json}");
    let numbers: Vec<u64> = done.iter().map(|fix| fix["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 6, 8, 9, 10]);
    let keep = json["to_keep"].to_string();
    for line in ["net.ipv4.tcp_autocorking = 0", "MTUBytes=8900", "RxBufferSize=8192"] {
        assert!(keep.contains(line), "{line}: {keep}");
    }
}

#[test]
fn fix_takes_the_larger_of_two_wishes_and_never_lowers() {
    let tree = Tree::host();
    tree.file("proc/sys/net/core/rmem_max", "212992");
    tree.file("proc/sys/net/core/rmem_default", "16777216");
    let (_, json) = tree.run(true);
    assert_eq!(tree.text("proc/sys/net/core/rmem_max"), "33554432");
    assert_eq!(tree.text("proc/sys/net/core/rmem_default"), "16777216");
    let keep = json["to_keep"].as_array().unwrap();
    let lines: Vec<&serde_json::Value> =
        keep.iter().filter(|line| line.as_str().unwrap().contains("rmem_max")).collect();
    assert_eq!(lines, ["    net.core.rmem_max = 33554432"]);
}

#[test]
fn fix_leaves_what_could_cut_the_network_to_people() {
    let tree = Tree::host();
    tree.file("sys/class/net/eth0/mtu", "1300");
    let (code, json) = tree.run(true);
    assert_eq!(code, 1);
    assert_eq!(tree.text("sys/class/net/eth0/mtu"), "1300");
    assert_eq!(json["fixes"][0]["result"], "by_hand");
    assert_eq!(json["to_keep"], serde_json::json!([]));
}

#[test]
fn a_fix_that_fails_says_why_and_the_others_go_on() {
    let tree = Tree::host();
    fs::remove_file(tree.path("dev/net/tun")).unwrap();
    tree.file("proc/sys/net/ipv6/auto_flowlabels", "0");
    let (code, json) = tree.run(true);
    assert_eq!(code, 1);
    assert_eq!(json["fixes"][0]["result"], "failed");
    assert!(json["fixes"][0]["reason"].as_str().unwrap().contains("modprobe tun"), "{json}");
    assert_eq!(tree.text("proc/sys/net/ipv6/auto_flowlabels"), "1");
}

#[test]
fn only_the_named_checks_are_made_and_counted() {
    let mut tree = Tree::instance();
    tree.file("sys/class/net/eth0/mtu", "9001");
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1");
    tree.options.only = vec!["2".to_owned(), "tcp-autocorking".to_owned()];
    assert_eq!(tree.findings().len(), 2);
    assert_eq!(tree.run(true).0, 0);
    assert_eq!(tree.text("sys/class/net/eth0/mtu"), "9001");
    let error = rules::select(&["24".to_owned()]).err().unwrap();
    assert!(error.contains("1 to 23") && error.contains("reverse-path-filter"), "{error}");
}

#[test]
fn the_exit_code_stops_at_its_bound() {
    let failed = Outcome::failed(Class::Required, "", "", finding::Fix::sysctls(vec![]));
    let finding = Finding { number: 1, name: "mtu".into(), why: "", outcome: failed };
    assert_eq!(exit_code(&vec![finding.clone(); 249]), 249);
    assert_eq!(exit_code(&vec![finding; 300]), FAILED_MAX);
}

#[test]
fn an_interface_must_be_there() {
    let mut tree = Tree::host();
    tree.options.interface = Some("eth7".to_owned());
    let error = subject(&tree.options, &tree.system()).expect_err("no eth7").to_string();
    assert!(error.contains("eth7") && error.contains("eth0"), "{error}");
    tree.options.interface = None;
    tree.file("proc/net/route", "Iface\tDestination");
    let error = subject(&tree.options, &tree.system()).expect_err("no route").to_string();
    assert!(error.contains("--interface"), "{error}");
}

#[test]
fn rules_are_numbered_in_order_and_documented() {
    let document = include_str!("../../../../docs/check.md");
    for (number, rule) in (1..).zip(&rules::RULES) {
        assert_eq!(rule.number, number);
        let row = format!("| {number} | `{}` |", rule.name);
        assert!(document.contains(&row), "docs/check.md lacks `{row}`");
    }
}

#[test]
fn colours_are_for_terminals() {
    let tree = Tree::instance();
    tree.file("sys/class/net/eth0/mtu", "9001");
    let report = examine_in(&tree.options, &tree.system()).unwrap();
    assert!(!show::people(&report, show::Paint(false)).contains('\x1b'));
    let coloured = show::people(&report, show::Paint(true));
    assert!(coloured.contains("\x1b[1;31mERROR\x1b[0m"), "{coloured}");
}

#[path = "more_tests.rs"]
mod more;
