//! Tests of rules (delays, spread over CPUs, drivers by generation, small writes), of fixes that
//! hold after a restart, and of images.

use super::*;
use std::os::unix::fs::PermissionsExt;

const QUIET: &str = "Coalesce parameters for eth0:\nAdaptive RX: off  TX: n/a\nrx-usecs: 0\n\
                     tx-usecs: 0\n";
const HELD: &str = "Adaptive RX: on  TX: n/a\nrx-usecs: 20\ntx-usecs: 64\n";

/// Returns an instance that is checked for low delay. It has four CPUs, with an idle state that a
/// CPU leaves fast.
fn quick() -> Tree {
    let mut tree = Tree::instance();
    tree.options.latency = true;
    for cpu in 0..4 {
        for (state, name, latency) in [(0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")] {
            let of = |file| format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{file}");
            tree.file(&of("name"), name);
            tree.file(&of("latency"), latency);
            tree.file(&of("disable"), if state == 2 { "1" } else { "0" });
        }
    }
    tree.file("sys/devices/system/cpu/cpufreq/boost", "1");
    tree.file("proc/sys/net/core/busy_poll", "50");
    tree.file("proc/sys/net/core/busy_read", "50");
    tree.answer("ethtool -c eth0", QUIET);
    tree
}

#[test]
fn delays_are_checked_for_those_who_ask_only() {
    let mut tree = quick();
    for number in [18, 19, 20] {
        assert_eq!(tree.found(number).status(), Status::Ok, "{:?}", tree.found(number));
    }
    let state = "sys/devices/system/cpu/cpu2/cpuidle/state2/disable";
    flips(&tree, 18, state, "0", Status::Warn);
    flips(&tree, 20, "proc/sys/net/core/busy_poll", "0", Status::Warn);
    tree.answer("ethtool -c eth0", HELD);
    assert_eq!(tree.numbers(Status::Warn), [19]);
    let command = tree.found(19).fix().unwrap().command.clone();
    assert_eq!(command, "sudo ethtool -C eth0 adaptive-rx off rx-usecs 0 tx-usecs 0");
    tree.options.latency = false;
    tree.file(state, "0");
    assert_eq!(tree.found(19).status(), Status::Ok);
    for number in [18, 20] {
        assert_eq!(tree.found(number).status(), Status::NotApplicable);
    }
    // One interrupt per packet costs CPU, and is only recommended on request.
    tree.answer("ethtool -c eth0", QUIET);
    assert_eq!(tree.numbers(Status::Warn), [19]);
    tree.options.latency = true;
    tree.answer("ethtool -C eth0 adaptive-rx off rx-usecs 0 tx-usecs 0", "");
    tree.run(true);
    assert_eq!(tree.text(state), "1");
    assert_eq!(tree.found(18).status(), Status::Ok);
}

#[test]
fn a_system_without_idle_states_or_moderation_says_so() {
    let mut tree = Tree::instance();
    tree.options.latency = true;
    for number in [18, 19, 20] {
        assert_eq!(tree.found(number).status(), Status::NotApplicable);
    }
}

#[test]
fn interrupts_of_queues_belong_on_several_cpus() {
    let tree = quick();
    let eth0 = |file: &str| format!("sys/class/net/eth0/queues/{file}");
    for queue in 0..4 {
        tree.file(&eth0(&format!("rx-{queue}/rps_cpus")), "0");
    }
    let lines: String =
        (0..4).map(|n| format!(" {}: 5 5 5 5 PCI-MSI eth0-Tx-Rx-{n}\n", 30 + n)).collect();
    tree.file("proc/interrupts", &lines);
    let place = |cpus: [&str; 4]| {
        for (n, cpu) in cpus.iter().enumerate() {
            tree.file(&format!("proc/irq/{}/smp_affinity_list", 30 + n), cpu);
        }
        tree.found(21).status()
    };
    assert_eq!(place(["0", "1", "2", "3"]), Status::Ok);
    assert_eq!(place(["0", "0", "1", "1"]), Status::Ok);
    assert_eq!(place(["0", "0", "0", "0"]), Status::Warn);
    tree.run(true);
    let set: Vec<String> =
        (30..34).map(|n| tree.text(&format!("proc/irq/{n}/smp_affinity_list"))).collect();
    assert_eq!(set, ["0", "1", "2", "3"]);
    assert_eq!(tree.found(21).status(), Status::Ok);
}

#[test]
fn one_queue_is_steered_or_made_several() {
    let tree = quick();
    let file = "sys/class/net/eth0/queues/rx-0/rps_cpus";
    tree.file(file, "f");
    assert_eq!(tree.found(21).status(), Status::Ok);
    flips(&tree, 21, file, "0", Status::Warn);
    tree.file(file, "0");
    tree.run(true);
    assert_eq!(tree.text(file), "f");
    let more = "Channel parameters:\nPre-set maximums:\nCombined:\t8\n\
                Current hardware settings:\nCombined:\t1\n";
    tree.answer("ethtool -l eth0", more);
    let fix = tree.found(21).fix().unwrap().command.clone();
    assert_eq!(fix, "sudo ethtool -L eth0 combined 4");
}

#[test]
fn each_nitro_version_wants_its_driver() {
    let tree = Tree::instance();
    let file = "sys/devices/virtual/dmi/id/product_name";
    let status = |name: &str, version: &str| {
        tree.file(file, name);
        tree.file("sys/module/ena/version", version);
        tree.found(22).status()
    };
    for (name, least, older) in [
        ("c5n.large", "2.2.10g", "2.2.9g"),
        ("c6in.large", "2.8.1", "2.8.0"),
        ("c7gn.large", "2.13.3g", "2.13.2g"),
    ] {
        assert_eq!(status(name, least), Status::Ok, "{name}");
        assert_eq!(status(name, older), Status::Warn, "{name}");
    }
    assert_eq!(status("a PC", "2.2.10"), Status::NotApplicable);
    assert_eq!(status("c6in.large", "6.1.0K"), Status::NotApplicable);
}

/// The talk NET402 (AWS re:Invent 2024): driver 2.2.9 is recommended on Nitro v4, and required on
/// v5.
#[test]
fn the_least_driver_is_recommended_up_to_nitro_v4_and_required_from_v5_on() {
    let tree = Tree::instance();
    let older = [
        ("c5n.large", Status::Warn),
        ("c6in.large", Status::Warn),
        ("c7i.large", Status::Warn),
        ("c7gn.large", Status::Error),
        ("c8i.large", Status::Error),
        ("a PC", Status::Error),
    ];
    for (name, status) in older {
        tree.file("sys/devices/virtual/dmi/id/product_name", name);
        for (version, status) in
            [("2.2.8g", status), ("2.2.9", Status::Warn), ("2.8.0", Status::Ok)]
        {
            tree.file("sys/module/ena/version", version);
            assert_eq!(tree.found(17).status(), status, "{name} {version}");
        }
    }
}

#[test]
fn programs_that_write_small_without_nodelay_are_named() {
    let tree = Tree::host();
    let line = |program: &str, pid: u32, bytes: u64| {
        format!(
            "0 0 10.0.0.1:5 10.0.0.2:6 users:((\"{program}\",pid={pid},fd=8)) cubic mss:1448 \
             bytes_sent:{bytes} segs_out:1 data_segs_out:1000 x\n"
        )
    };
    let lines = line("bulk", 1, 1_448_000) + &line("quick", 2, 90_000) + &line("slow", 3, 80_000);
    let command = "ss -tinpHO state established";
    tree.answer(command, &lines);
    let reason = format!("{:?}", tree.found(23).outcome);
    assert!(reason.contains("only root sees"), "{reason}");
    tree.answers.nodelay.borrow_mut().extend([(2, true), (3, false)]);
    let finding = tree.found(23);
    assert_eq!(finding.status(), Status::Warn);
    let found = format!("{:?}", finding.outcome);
    assert!(found.contains("slow (pid 3): 80 bytes") && !found.contains("quick"), "{found}");
    assert!(finding.fix().unwrap().by_hand.is_some());
    tree.answers.nodelay.borrow_mut().insert(3, true);
    assert_eq!(tree.found(23).status(), Status::Ok);
    tree.answer(command, &line("bulk", 1, 1_448_000));
    assert_eq!(tree.found(23).status(), Status::Ok);
}

/// Returns the files below the root's `etc`, with their texts.
fn etc(tree: &Tree) -> BTreeMap<String, String> {
    fn walk(directory: &std::path::Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                walk(&path, found);
            } else {
                let text = fs::read_link(&path)
                    .map(|target| format!("-> {}", target.display()))
                    .or_else(|_| fs::read_to_string(&path));
                found.insert(path.display().to_string(), text.unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&tree.path("etc"), &mut found);
    found
}

#[test]
fn what_is_persisted_holds_is_told_and_is_taken_back() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    tree.file("etc/sysctl.d/90-srd.conf", "net.core.somaxconn = 7");
    let before = etc(&tree);
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "3");
    let (code, json) = tree.run(true);
    assert_eq!(code, 0, "{json}");
    let lines = json["persisted"].to_string();
    for file in ["/etc/sysctl.d/90-srd.conf", "/etc/srd/check.env", "starts at boot"] {
        assert!(lines.contains(file), "{lines}");
    }
    assert!(tree.text("etc/sysctl.d/90-srd.conf").contains("net.ipv4.tcp_autocorking = 0"));
    let arguments = tree.text("etc/srd/check.env");
    assert!(
        arguments.contains("ARGS=--for ena --transparent --interface eth0 --only 10"),
        "{arguments}"
    );
    let unit = tree.text("etc/systemd/system/srd-check.service");
    assert!(unit.contains("check --fix $ARGS"), "{unit}");
    let link = "etc/systemd/system/multi-user.target.wants/srd-check.service";
    assert!(tree.path(link).is_symlink());
    // A second run adds settings. The list of changed settings still contains the values from
    // before the first run.
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1");
    tree.run(true);
    let text = tree.text("etc/sysctl.d/90-srd.conf");
    assert!(text.contains("tcp_autocorking = 0") && text.contains("output_bytes = 4194304"));
    let lines = persist::unpersist(&tree.system()).unwrap().join("\n");
    assert!(lines.contains("net.ipv4.tcp_autocorking is 1 again"), "{lines}");
    assert!(lines.contains("checks 10 have set"), "{lines}");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_limit_output_bytes"), "1");
    assert_eq!(etc(&tree), before);
    let error = persist::unpersist(&tree.system()).unwrap_err().to_string();
    assert!(error.contains("has written nothing"), "{error}");
}

/// The second run, with `persist`, finds nothing to fix.
#[test]
fn regression_what_an_earlier_fix_has_set_is_persisted_and_taken_back() {
    let mut tree = Tree::instance();
    fs::create_dir(tree.path("run")).unwrap();
    let before = etc(&tree);
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1");
    tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "3");
    let (code, json) = tree.run(true);
    assert!(code == 0 && json["persisted"].is_null(), "{json}");
    // Another program has changed this setting since then.
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "4194305");
    tree.options.persist = true;
    let (_, json) = tree.run(true);
    let lines = json["persisted"].to_string();
    assert!(lines.contains("an earlier --fix has set is among it: checks 4, 10"), "{lines}");
    let text = tree.text("etc/sysctl.d/90-srd.conf");
    assert!(text.contains("tcp_autocorking = 0"), "{text}");
    assert!(tree.text("etc/srd/check.env").contains("--only 10"));
    assert!(!tree.path("run/srd-check-fixed.json").exists(), "it is written down");
    let lines = persist::unpersist(&tree.system()).unwrap().join("\n");
    assert!(lines.contains("net.ipv4.tcp_autocorking is 1 again"), "{lines}");
    assert_eq!(etc(&tree), before);
}

#[test]
fn regression_settings_of_others_in_the_same_file_stay() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    let file = "etc/sysctl.d/90-srd.conf";
    tree.file(file, "# by hand\n-net/core/somaxconn=7\nnet.ipv4.tcp_autocorking = 2");
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.run(true);
    let text = tree.text(file);
    assert!(text.starts_with("# by hand\n-net/core/somaxconn=7\n"), "{text}");
    assert!(text.ends_with("net.ipv4.tcp_autocorking = 0"), "{text}");
    assert!(!text.contains("tcp_autocorking = 2"), "{text}");
    // Lines that were added later stay as well, both when further fixes are written and when
    // everything is undone.
    tree.file(file, &format!("{text}\nvm.swappiness = 1\n"));
    tree.file("proc/sys/net/ipv4/tcp_limit_output_bytes", "1");
    tree.run(true);
    let text = tree.text(file);
    assert!(text.contains("vm.swappiness = 1\n") && text.contains("output_bytes = 4194304"));
    let lines = persist::unpersist(&tree.system()).unwrap().join("\n");
    assert!(lines.contains("keeps lines that others have added"), "{lines}");
    let expected =
        "# by hand\n-net/core/somaxconn=7\nnet.ipv4.tcp_autocorking = 2\nvm.swappiness = 1";
    assert_eq!(tree.text(file), expected);
}

#[test]
fn regression_what_a_killed_run_left_half_made_is_made() {
    let link = "etc/systemd/system/multi-user.target.wants/srd-check.service";
    let unit = "etc/systemd/system/srd-check.service";
    for gone in [&[link][..], &[link, unit], &[link, unit, "etc/srd/check.env"]] {
        let mut tree = Tree::instance();
        tree.options.persist = true;
        let before = etc(&tree);
        let parameter = "sys/module/tcp_cubic/parameters/hystart_detect";
        tree.file(parameter, "3");
        tree.run(true);
        let whole = etc(&tree);
        gone.iter().for_each(|file| fs::remove_file(tree.path(file)).unwrap());
        // The unit was removed before the next run, but the list of written files still contains
        // it.
        tree.file(parameter, "3");
        let (_, json) = tree.run(true);
        assert!(json["persisted"].to_string().contains("starts at boot"), "{json}");
        assert_eq!(etc(&tree), whole);
        persist::unpersist(&tree.system()).unwrap();
        assert_eq!(etc(&tree), before);
    }
}

#[test]
fn regression_another_interface_takes_the_unit_and_is_told_so() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    let parameter = "sys/module/tcp_cubic/parameters/hystart_detect";
    tree.file(parameter, "3");
    tree.run(true);
    tree.file("sys/class/net/eth1/mtu", "9001");
    tree.options.interface = Some("eth1".to_owned());
    tree.options.only = vec!["10".to_owned()];
    tree.file(parameter, "3");
    let (_, json) = tree.run(true);
    let lines = json["persisted"].to_string();
    assert!(lines.contains("sets eth1 from now on, and eth0 no longer"), "{lines}");
    assert!(tree.text("etc/srd/check.env").contains("--interface eth1 --only 10"));
    // A name is refused if systemd would read it as several words or as none.
    for name in ["a\"b", "a#b", "$(id)", "a\u{2003}b"] {
        tree.file(&format!("sys/class/net/{name}/mtu"), "9001");
        tree.options.interface = Some(name.to_owned());
        tree.file(parameter, "3");
        let options = Options { fix: true, ..tree.options.clone() };
        let error = examine_in(&options, &tree.system()).err().unwrap();
        assert!(format!("{error:#}").contains("a plain name"), "{error:#}");
    }
}

#[test]
fn a_program_that_others_may_replace_is_not_run_at_boot() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "3");
    tree.file("open/srd", "a program");
    fs::set_permissions(tree.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    *tree.answers.own.borrow_mut() = Some(tree.path("open/srd"));
    let options = Options { fix: true, ..tree.options.clone() };
    let error = examine_in(&options, &tree.system()).err().unwrap();
    assert!(format!("{error:#}").contains("others than root may replace it"), "{error:#}");
    assert!(!tree.path("etc/systemd/system/srd-check.service").exists());
}

#[test]
fn a_setting_that_somebody_else_changed_is_left_alone() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.run(true);
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "7");
    let lines = persist::unpersist(&tree.system()).unwrap().join("\n");
    assert!(lines.contains("tcp_autocorking is 7, which is not of"), "{lines}");
    assert_eq!(tree.text("proc/sys/net/ipv4/tcp_autocorking"), "7");
}

#[test]
fn a_list_that_names_other_files_is_refused() {
    let tree = Tree::instance();
    let list = r#"{"files":[{"file":"etc/passwd","before":null}],"settings":{},"checks":[]}"#;
    tree.file("etc/srd/check-persisted.json", list);
    tree.file("etc/passwd", "root");
    let error = persist::unpersist(&tree.system()).unwrap_err().to_string();
    assert!(error.contains("/etc/passwd"), "{error}");
    assert_eq!(tree.text("etc/passwd"), "root");
    tree.file("etc/srd/check-persisted.json", "{");
    let error = persist::unpersist(&tree.system()).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

/// Returns the root directory of an image: files of an instance, without `proc` and `sys`.
fn image() -> (Tree, System) {
    let mut tree = Tree::instance();
    for gone in ["proc", "sys"] {
        fs::remove_dir_all(tree.path(gone)).unwrap();
    }
    tree.file("etc/hostname", "image");
    tree.file("usr/lib/systemd/system/srd-check.service", "packaged");
    tree.file("usr/bin/srd", "a program");
    tree.options.image = true;
    tree.options.purpose = Some(Purpose::Ena);
    let system = System::image(tree.directory.path());
    (tree, system)
}

#[test]
fn an_image_is_checked_by_its_files_and_fixed_in_them() {
    let (mut tree, system) = image();
    let before = etc(&tree);
    let report = examine_in(&tree.options, &system).unwrap();
    let failed = |report: &Report| -> Vec<u8> {
        let bad = |f: &&Finding| matches!(f.status(), Status::Warn | Status::Error);
        report.findings.iter().filter(bad).map(|f| f.number).collect()
    };
    // These files do not show whether cubic has HyStart.
    assert_eq!(failed(&report), [2, 4, 8, 9, 10]);
    let people = report.people(show::Paint(false));
    let place = tree.path("etc/sysctl.d/90-srd.conf").display().to_string();
    let command =
        format!("fix: printf '%s\\n' 'net.ipv4.tcp_autocorking = 0' | sudo tee -a {place}\n");
    assert!(people.contains(&command), "{people}");
    assert!(!people.contains("sysctl -w") && !people.contains("tee /sys"), "{people}");
    tree.options.fix = true;
    let report = examine_in(&tree.options, &system).unwrap();
    assert_eq!(failed(&report), [10], "{}", show::machine(&report));
    let people = report.people(show::Paint(false));
    assert!(people.contains("written   4  tcp-autocorking\n"), "{people}");
    assert!(people.contains("at boot  10  congestion-control\n"), "{people}");
    assert!(people.contains(&format!("wrote {place}")), "{people}");
    assert!(tree.text("etc/sysctl.d/90-srd.conf").contains("net.core.rmem_default = 4194304"));
    assert!(tree.text("etc/srd/check.env").ends_with("ARGS=--for ena --transparent"));
    let link = tree.path("etc/systemd/system/multi-user.target.wants/srd-check.service");
    let target = fs::read_link(link).unwrap();
    assert_eq!(target.to_str(), Some("/usr/lib/systemd/system/srd-check.service"));
    assert!(!tree.path("proc").exists());
    persist::unpersist(&system).unwrap();
    assert_eq!(etc(&tree), before);
}

#[test]
fn an_image_needs_a_purpose_and_a_root_and_its_links_do_not_lead_out() {
    let (mut tree, system) = image();
    tree.options.purpose = None;
    let error = examine_in(&tree.options, &system).err().unwrap().to_string();
    assert!(error.contains("--for ena"), "{error}");
    tree.options.purpose = Some(Purpose::Ena);
    tree.options.fix = true;
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), tree.path("etc/sysctl.d")).unwrap();
    let error = examine_in(&tree.options, &system).err().unwrap().to_string();
    assert!(error.contains("not fixed"), "{error}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    fs::remove_dir_all(tree.path("etc")).unwrap();
    let error = examine_in(&tree.options, &system).err().unwrap().to_string();
    assert!(error.contains("no etc"), "{error}");
}

#[test]
fn an_image_without_the_program_has_no_unit_and_is_told_so() {
    let (mut tree, system) = image();
    fs::remove_dir_all(tree.path("usr")).unwrap();
    tree.options.fix = true;
    let report = examine_in(&tree.options, &system).unwrap();
    let people = report.people(show::Paint(false));
    assert!(people.contains("by hand  10") && people.contains("neither /usr/bin/srd"), "{people}");
    assert!(!people.contains("starts at boot"), "{people}");
    assert!(!tree.path("etc/systemd").exists());
    tree.file("usr/local/bin/srd", "a program");
    examine_in(&tree.options, &system).unwrap();
    let unit = tree.text("etc/systemd/system/srd-check.service");
    assert!(unit.contains("=-/usr/local/bin/srd check"), "{unit}");
}

#[test]
fn what_cannot_be_written_down_leaves_every_file_as_it_was() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    tree.file("etc/sysctl.d/90-srd.conf", "net.core.somaxconn = 7");
    // The last file that the fix writes cannot be written.
    tree.file("etc/systemd", "no directory");
    let before = etc(&tree);
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    tree.file("sys/module/tcp_cubic/parameters/hystart_detect", "3");
    let options = Options { fix: true, ..tree.options.clone() };
    let error = examine_in(&options, &tree.system()).err().unwrap();
    assert!(format!("{error:#}").contains("until the next restart only"), "{error:#}");
    assert_eq!(etc(&tree), before);
}

#[test]
fn a_file_that_cannot_be_read_is_not_taken_for_none() {
    let mut tree = Tree::instance();
    tree.options.persist = true;
    tree.file("etc/sysctl.d/x", "");
    fs::write(tree.path("etc/sysctl.d/90-srd.conf"), b"\xff\xfe").unwrap();
    tree.file("proc/sys/net/ipv4/tcp_autocorking", "1");
    let options = Options { fix: true, ..tree.options.clone() };
    assert!(examine_in(&options, &tree.system()).is_err());
    assert_eq!(fs::read(tree.path("etc/sysctl.d/90-srd.conf")).unwrap(), b"\xff\xfe");
}
