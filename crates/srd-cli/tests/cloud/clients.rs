//! Ansible's modules for EC2, which drive `srd control up` without changes. Needs root.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::control::{Api, exists, is_mounted, path_with};
use crate::support::api::element;
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::Signal;

/// Longest run of one stage of the play, in seconds.
const STAGE_S_MAX: &str = "400";
/// Objects that the play creates.
const OBJECTS: u32 = 8;

/// Runs a stage of the play, and returns the number of tasks that have changed something.
fn changes(api: &Api, path: &str, stage: &str) -> u32 {
    let play = Path::new(env!("CARGO_MANIFEST_DIR")).join("../srd-control/tests/clients/play.yml");
    let settings = fs::read_to_string(api.directory.path().join("key.env")).unwrap();
    let settings = settings.lines().filter_map(|line| line.split_once('='));
    let mut ansible = Command::new("timeout");
    ansible.args([STAGE_S_MAX, "ansible-playbook", "--extra-vars", &format!("stage={stage}")]);
    ansible.arg(play).envs(settings).env("PATH", path).env("LC_ALL", "C.UTF-8");
    // Ansible keeps its files below this directory.
    // Python keeps compiled modules for the next task; without them each task takes twice as long.
    ansible.env_remove("PYTHONDONTWRITEBYTECODE");
    ansible.env("HOME", api.directory.path()).env("ANSIBLE_NOCOLOR", "1");
    let output = ansible.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stage}: {text}\n{error}\n{}", api.log());
    let count = text.rsplit_once("changed=").and_then(|(_, rest)| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Returns the objects of each kind that the play creates, except for instances, which are shown
/// for some time after their end.
fn objects(api: &Api) -> Vec<String> {
    let kinds = [
        "Vpcs",
        "Subnets",
        "InternetGateways",
        "SecurityGroups",
        "SecurityGroupRules",
        "NetworkAcls",
        "NetworkInterfaces",
        "RouteTables",
    ];
    let without_request = |kind: &str| {
        let answer = api.call(&format!("Describe{kind}"), "");
        answer.split_once("</requestId>").unwrap().1.to_owned()
    };
    kinds.into_iter().map(without_request).collect()
}

/// Returns the addresses of interfaces in the namespace of an instance.
fn addresses(instance: &str) -> String {
    must(&format!("-n srd-i-{instance} -o -4 address show"))
}

#[test]
fn a_play_of_ansible_creates_changes_and_deletes_and_its_second_run_changes_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let install = "crates/srd-control/tests/clients/ansible.sh target/python";
    let Some(path) = path_with("ansible-playbook", install) else { return };
    let mut api = Api::start();
    let before = objects(&api);
    assert_eq!(changes(&api, &path, "create"), OBJECTS);
    let instance = element(&api.call("DescribeInstances", ""), "instanceId");
    wait_until("the instance", || is_mounted(&format!("srd-i-{instance}")));
    assert!(!addresses(&instance).contains("10.20.1.9/"));
    assert_eq!(changes(&api, &path, "change"), OBJECTS);
    // The second run of this stage reads all that the stage `create` sets, and more.
    assert_eq!(changes(&api, &path, "change"), 0);
    // The play has attached its interface to the running instance.
    assert!(addresses(&instance).contains("10.20.1.9/"), "{}", addresses(&instance));
    assert_eq!(changes(&api, &path, "destroy"), OBJECTS);
    assert_eq!(changes(&api, &path, "destroy"), 0);
    assert_eq!(objects(&api), before);
    // The instance is shown for some time, with its tags.
    let tags = api.call("DescribeTags", "");
    let of_instance = "<resourceType>instance</resourceType>";
    assert_eq!(tags.matches("<resourceType>").count(), tags.matches(of_instance).count(), "{tags}");
    wait_until("the end of the instance", || !exists(&format!("srd-i-{instance}")));
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}
