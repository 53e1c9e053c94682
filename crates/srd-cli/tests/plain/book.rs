//! Blocks of commands in the documents, run as they are written, each in a directory and in
//! namespaces of its own. The unit tests of the program check all other command lines.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, ExitStatus, Stdio};

use crate::support_book::{Tested, blocks, root};

/// Longest time in seconds for one block.
const SECONDS_MAX: &str = "600";

/// Commands before the first command of a block that runs as root, in network and mount namespaces
/// of its own: the block has a loopback interface, and a `/run` whose content no other process
/// sees.
const ISOLATION: &str = "mount -t tmpfs tmpfs /run\nip link set lo up\n";

/// Runs a block as a script. Returns its exit status and its output. A block that runs as root
/// changes no interface and no mount of the machine.
fn run(block: &str) -> (ExitStatus, String) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for folder in ["docs", "scenarios", "packaging"] {
        symlink(root().join(folder), at(folder)).unwrap();
    }
    fs::create_dir(at("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_srd"), at("bin/srd")).unwrap();
    fs::write(at("bin/sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
    fs::set_permissions(at("bin/sudo"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let is_root = rustix::process::geteuid().is_root();
    let isolation = if is_root { ISOLATION } else { "" };
    // A block that fails may leave programs in the background. They are ended, and they write to a
    // file, because a pipe would be open until the last one ends.
    let end = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n";
    let script = format!("{isolation}{end}{block}");
    let written = fs::File::create(at("output")).unwrap();
    let mut shell = Command::new("timeout");
    shell.arg(SECONDS_MAX);
    if is_root {
        shell.args(["unshare", "--net", "--mount"]);
    }
    shell.args(["sh", "-eu", "-c", &script]).env("PATH", path);
    shell.stdin(Stdio::null()).stdout(written.try_clone().unwrap()).stderr(written);
    let status = shell.current_dir(directory.path()).status().unwrap();
    (status, fs::read_to_string(at("output")).unwrap_or_default())
}

#[test]
fn command_lines_of_the_documents_run_as_they_are_written() {
    let is_root = rustix::process::geteuid().is_root();
    let mut count = 0;
    for block in blocks().iter().filter(|block| block.tested == Tested::AsWritten) {
        if block.text.contains("sudo ") && !is_root {
            println!("skipped: {} needs root", block.place);
            continue;
        }
        let (status, text) = run(&block.text);
        assert!(status.success(), "{}: {}\n{text}", block.place, block.text);
        count += 1;
    }
    assert!(count > 5 || !is_root, "only {count} blocks were run");
}

/// A regression: blocks of documents ran as root in the namespaces of the machine, so that a
/// mistake in a document changed its interfaces.
#[test]
fn regression_a_block_that_runs_as_root_changes_nothing_of_the_machine() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let name = format!("srd-book-{}", std::process::id());
    let block = format!(
        "readlink /proc/self/ns/net\nreadlink /proc/self/ns/mnt\ntouch /run/{name}\n\
         ip -brief link show lo\n"
    );
    let (status, text) = run(&block);
    let outside = std::path::Path::new("/run").join(&name);
    let is_outside = outside.exists();
    let _ = fs::remove_file(&outside);
    assert!(status.success() && !is_outside, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    for (line, kind) in lines.iter().zip(["net", "mnt"]) {
        let own = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(own.display().to_string(), *line, "{kind}");
    }
    assert!(lines[2].contains("LOOPBACK,UP"), "{text}");
}
