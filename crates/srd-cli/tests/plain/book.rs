//! Blocks of commands in the documents, run as they are written, each in a directory of its own.
//! The unit tests of the program check all other command lines.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::support_book::{Tested, blocks, root};

/// Longest time in seconds for one block.
const SECONDS_MAX: &str = "300";

#[test]
fn command_lines_of_the_documents_run_as_they_are_written() {
    let is_root = rustix::process::geteuid().is_root();
    let mut run = 0;
    for block in blocks().iter().filter(|block| block.tested == Tested::AsWritten) {
        if block.text.contains("sudo ") && !is_root {
            println!("skipped: {} needs root", block.place);
            continue;
        }
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
        // A block that fails may leave programs in the background. They are ended, and they write
        // to a file, because a pipe would be open until the last one ends.
        let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}", block.text);
        let written = fs::File::create(at("output")).unwrap();
        let mut shell = Command::new("timeout");
        shell.args([SECONDS_MAX, "sh", "-eu", "-c", &script]).env("PATH", path);
        shell.stdin(Stdio::null()).stdout(written.try_clone().unwrap()).stderr(written);
        let status = shell.current_dir(directory.path()).status().unwrap();
        let text = fs::read_to_string(at("output")).unwrap_or_default();
        assert!(status.success(), "{}: {}\n{text}", block.place, block.text);
        run += 1;
    }
    assert!(run > 5 || !is_root, "only {run} blocks were run");
}
