//! Auto Scaling with the program `aws`: the commands of `docs/control.md`. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::control::{Api, exists, path_with_aws};
use crate::support::machine::*;
use rustix::process::Signal;

/// Longest run of the commands, in seconds.
const COMMANDS_S_MAX: &str = "900";
/// The beginning of the command that pings, and the commands that the test runs before it: a
/// request waits for instances for two seconds, which a busy machine may exceed.
const PINGS: &str = "for ID in $IDS; do for ADDRESS";
const WAIT: &str = "for ID in $IDS; do until ip netns exec srd-i-$ID ip route show default \
                    2> /dev/null | grep -q .; do sleep 0.2; done; done\n";

/// The blocks of commands in the part on Auto Scaling.
fn blocks() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("a_group_with_ena_express_grows_and_shrinks -->\n```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().replace("sudo ", "")).collect()
}

/// Identifiers of instances in an output.
fn ids(text: &str) -> BTreeSet<String> {
    let words = text.split_whitespace();
    words.filter(|word| word.starts_with("i-")).map(str::to_owned).collect()
}

#[test]
fn a_group_with_ena_express_grows_and_shrinks() {
    if !ready_with_nsenter() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut api = Api::start();
    let mut script = ". ./key.env; export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY \
                      AWS_DEFAULT_REGION AWS_ENDPOINT_URL; export AWS_PAGER=\n"
        .to_owned();
    for block in blocks() {
        script += &format!("{block}\necho ---\n");
    }
    assert!(script.contains(PINGS), "{script}");
    script = script.replace(PINGS, &format!("{WAIT}{PINGS}"));
    let mut shell = Command::new("timeout");
    shell.env("PATH", path).args([COMMANDS_S_MAX, "sh", "-eu", "-c", &script]);
    let output = shell.current_dir(api.directory.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:#?}\n{}", api.log());
    let text = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<&str> = text.split("---\n").collect();
    let [_, template, three, six, replaced, _, ""] = parts[..] else { panic!("{text}") };
    assert!(template.contains("True\t8"), "{template}");
    assert_eq!((ids(three).len(), three.matches("True").count()), (3, 3), "{three}");
    // Each of the six reaches all six addresses.
    assert_eq!((ids(six).len(), six.matches(" reaches ").count()), (6, 36), "{six}");
    assert!(ids(three).is_subset(&ids(six)), "{text}");
    let members = replaced.lines().filter(|line| line.contains("InService"));
    let members: String = members.map(|line| format!("{line}\n")).collect();
    assert_eq!((ids(&members).len(), ids(&members).intersection(&ids(six)).count()), (6, 5));
    assert!(replaced.contains("in response to a difference between"), "{replaced}");
    let shown = api.call("DescribeInstances", "");
    assert_eq!(shown.matches("<name>terminated</name>").count(), 7, "{shown}");
    wait_until("the end of the instances", || {
        !ids(&text).iter().any(|id| exists(&format!("srd-i-{id}")))
    });
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}
