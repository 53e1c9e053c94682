//! The commands of the documents, with two hosts.

use super::*;
use crate::control::path_with_aws;
use crate::scaling;

/// The commands of `docs/control-hosts.md` with the program `aws`, in one script.
#[test]
fn the_commands_of_the_page_run_instances_on_two_hosts() {
    if !is_ready() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut fleet = Fleet::start("p", "us-east-1a");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let of = "the_commands_of_the_page_run_instances_on_two_hosts -->\n```sh\n";
    let blocks: Vec<&str> = page.split(of).skip(1).collect();
    let [start, end] = [0, 1].map(|n| blocks[n].split("```").next().unwrap());
    let script = format!("{start}\necho ---; ip netns list\n{end}\n");
    let text = fleet.script(&path, &script);
    let (shown, after) = text.split_once("---\n").unwrap();
    let ids: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with("i-")).collect();
    assert_eq!(ids.len(), 2, "{text}");
    assert!(ids.iter().all(|id| after.contains(&format!("srd-i-{id}"))), "{text}");
    assert!(after.contains("shutting-down"), "{text}");
    assert_eq!(fleet.counts(), [0, 0]);
    fleet.end_hosts();
}

/// The commands of `docs/control.md` on Auto Scaling, with one host in each of the two zones.
#[test]
fn an_auto_scaling_group_spreads_over_two_hosts() {
    if !is_ready() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut fleet = Fleet::start("s", "us-east-1b");
    let mut script = String::new();
    for block in scaling::blocks() {
        let list = format!("{SRD} control hosts --admin ./first.sock | sed s/^/HOST/");
        script += &format!("{block}\necho ---; {list}; echo ---\n");
    }
    let text = fleet.script(&path, &script);
    let parts: Vec<&str> = text.split("---\n").collect();
    // After each block, the hosts are listed.
    let [_, _, _, _, three, of_three, six, of_six, _, of_replaced, _, of_none, ""] = parts[..]
    else {
        panic!("{text}")
    };
    assert_eq!(scaling::ids(three).len(), 3, "{three}");
    assert!(of_three.contains("1 instances") && of_three.contains("2 instances"), "{of_three}");
    // Each of the six reaches all six addresses, three of them on the other host.
    let reached = six.matches(" reaches ").count();
    assert_eq!((scaling::ids(six).len(), reached), (6, 36), "{six}\n{}", fleet.log());
    for of in [of_six, of_replaced] {
        assert_eq!(of.matches("3 instances, 144 of 200 vCPUs").count(), 2, "{of}");
    }
    assert_eq!(of_none.matches("0 instances").count(), 2, "{of_none}");
    fleet.end_hosts();
}
