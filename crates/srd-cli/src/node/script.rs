//! User data: scripts that run as root in the namespaces of instances.
//!
//! The output of a script, standard output and standard error, is a file in the card's directory.
//! It has at most [`OUTPUT_BYTES_MAX`] bytes; the remainder is dropped, and the script continues. A
//! script may run as long as its instance.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use super::directory::Directory;

/// Largest number of scripts that run at a time.
const SCRIPTS_MAX: usize = 256;
/// Largest size of the output of a script.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// The scripts that run.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripts {
    running: Arc<AtomicUsize>,
}

impl Scripts {
    /// Starts a script in the namespace of an instance.
    pub(super) fn start(&self, directory: &Directory, instance: &str, script: &[u8]) -> Result<()> {
        if self.running.load(Ordering::Relaxed) >= SCRIPTS_MAX {
            bail!("{SCRIPTS_MAX} scripts run already");
        }
        let path = directory.script(instance);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o700);
        let mut file = options.open(&path).context("the script's file")?;
        file.write_all(script).context("the script's file")?;
        drop(file);
        let output = options.mode(0o600).open(directory.output(instance)).context("its output")?;
        let (reader, writer) = std::io::pipe().context("a pipe")?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("srd-i-{instance}")]).arg(&path);
        command.current_dir("/").process_group(0).stdin(Stdio::null());
        command.stdout(writer.try_clone().context("a pipe")?).stderr(writer);
        let child = command.spawn().context("`ip` cannot be run: apt-get install iproute2")?;
        // The copies of the pipe's end in this process are closed, so that the reader sees the end.
        drop(command);
        let running = Arc::clone(&self.running);
        running.fetch_add(1, Ordering::Relaxed);
        let work = move || {
            follow(child, reader, output);
            running.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = thread::Builder::new().name("srd-user-data".into()).spawn(work);
        thread.map(|_| ()).context("a thread")
    }
}

/// Copies the output of a script until the script and the programs that it has started end.
fn follow(mut child: Child, mut reader: impl Read, mut output: File) {
    let mut first = (&mut reader).take(OUTPUT_BYTES_MAX);
    let _ = std::io::copy(&mut first, &mut output);
    let dropped = std::io::copy(&mut reader, &mut std::io::sink()).unwrap_or(0);
    let ended = child.wait();
    if dropped > 0 {
        let _ = writeln!(output, "\n({dropped} more bytes are dropped)");
    }
    if let Ok(status) = ended {
        let _ = writeln!(output, "({status})");
    }
}
