//! A network namespace for a test, whose changes then concern nothing else on the machine.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `work` on a thread in a new network namespace, in which not even `lo` is up. Without the
/// privilege for namespaces, `work` is skipped.
pub(crate) fn in_new_namespace(work: impl FnOnce() + Send) {
    let mut keeps = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo ready; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    let is_there = keeps.stdout.take().unwrap().read_exact(&mut ready).is_ok();
    if is_there {
        let file = File::open(format!("/proc/{}/ns/net", keeps.id())).unwrap();
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work();
        };
        let done = thread::scope(|scope| scope.spawn(inside).join());
        drop(keeps.stdin.take());
        keeps.wait().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    } else {
        keeps.wait().unwrap();
        println!("skipped: network namespaces need privileges, and the program unshare");
    }
}

/// Runs `ip` in the namespace of the calling thread, and returns its output.
pub(crate) fn ip(words: &str) -> String {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {words}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}
