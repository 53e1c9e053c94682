//! Files of programs that this process writes, and programs that it starts.
//!
//! If a thread starts a program while another thread writes the file of a program, the new process
//! has the file open for writing until it executes its own program. Until then, the kernel refuses
//! to execute the written file: ETXTBSY. So one lock covers both.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

/// The lock for writing and starting programs.
static PROGRAMS: Mutex<()> = Mutex::new(());

/// Writes the file of a program that only its owner can read, change and execute.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let _held = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o700);
    options.open(path)?.write_all(content)
}

/// Starts a program.
pub(super) fn start(command: &mut Command) -> io::Result<Child> {
    let _held = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_written_program_starts_while_other_threads_start_programs() {
        let directory = tempfile::tempdir().unwrap();
        // The search through many directories delays the execution of the program.
        let search = format!("{}/usr/bin:/bin", "/missing/directory:".repeat(4000));
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let mut child = start(Command::new("true").env("PATH", &search)).unwrap();
                    assert!(child.wait().unwrap().success());
                }
            });
            // Other programs start while this much is written.
            let script = format!("#!/bin/sh\nexit 0\n{}", "#\n".repeat(2 << 20));
            let path = directory.path().join("script");
            let run = |_: usize| {
                write(&path, script.as_bytes())?;
                start(&mut Command::new(&path))?.wait()
            };
            let all: io::Result<Vec<_>> = (0..30).map(run).collect();
            ends.store(true, Ordering::Relaxed);
            assert!(all.unwrap().iter().all(|status| status.success()));
        });
    }
}
