//! Functions of the scripts in `bench`: options, and the wait for veth pairs. The tests run no
//! measurement.

use std::process::{Command, Output};

use crate::support_book::root;

const SCRIPTS: [&str; 3] = ["cloud", "run", "status"];

/// Runs a script, which finds no program of SRD and so measures nothing.
fn script(name: &str, arguments: &[&str]) -> Output {
    let mut bash = Command::new("bash");
    bash.arg(root().join(format!("bench/{name}.sh"))).args(arguments);
    bash.env("SRD", "/nonexistent/srd").env("PEER_BENCH", "/nonexistent/peer");
    bash.output().unwrap()
}

#[test]
fn wrong_options_of_benchmark_scripts_are_named() {
    for name in SCRIPTS {
        for (arguments, says) in [
            (&["--nothing"][..], "unknown option: --nothing"),
            (&["--rounds", "1", "kinds"], "unknown option: kinds"),
            (&["--"], "unknown option: --"),
            (&["--rounds"], "--rounds needs a value"),
        ] {
            let output = script(name, arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name} {arguments:?}: {said}");
            assert!(said.contains(says), "{name} {arguments:?}: {said}");
        }
    }
    for (name, arguments, says) in [
        ("cloud", ["--express", "yes"], "--express is one of: on off"),
        ("run", ["--mode", "fast"], "--mode is one of: wire asis"),
        ("status", ["--kinds", "xml"], "unknown --kinds: xml"),
    ] {
        let output = script(name, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(says), "{name}: {said}");
    }
}

#[test]
fn options_of_benchmark_scripts_are_those_of_their_help() {
    for name in SCRIPTS {
        let output = script(name, &["--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains(&format!("bench/{name}.sh")), "{help}");
        let lines = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        let mut count = 0;
        for line in lines {
            let option = format!("--{}", line.split_whitespace().next().unwrap());
            let is_flag = option == "--realtime";
            let arguments: &[&str] = if is_flag { &[&option, "-?"] } else { &[&option] };
            let output = script(name, arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            let says = if is_flag { "-?".to_owned() } else { format!("{option} needs a value") };
            assert!(said.contains(&says), "{name} {arguments:?}: {said}");
            count += 1;
        }
        assert!(count > 5, "{help}");
    }
}

/// A regression: scripts used veth pairs whose interfaces still discarded packets.
#[test]
fn regression_scripts_wait_until_both_ends_of_a_veth_pair_pass_packets() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let script = "mount -t tmpfs tmpfs /run\nfor end in a b; do ip netns add $end; done\n\
                  ip link add v0 netns a type veth peer name v0 netns b\n. bench/veth.sh\n\
                  for end in a b; do ip -n $end link set v0 up; done\nawait_up v0 a b\n\
                  for end in a b; do ip -n $end -br link show dev v0; done\n";
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "bash", "-euc", script]).current_dir(root());
    let output = unshare.output().unwrap();
    let (said, error) = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .into();
    assert!(output.status.success(), "{error}");
    assert!(said.lines().count() == 2 && said.lines().all(|line| line.contains(" UP ")), "{said}");
}
