//! A file whose file system is a program that stops answering: FUSE, with another process as the
//! server.
//!
//! The server is a second process of this test program. A process that waits for the server stays
//! blocked, even if it is killed, until the server ends. The server ends when its input is closed,
//! and after [`SERVER_MAX`] at the latest.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};

const INIT: u32 = 26;
const OPEN: u32 = 14;
const FORGET: u32 = 2;
const NOT_IMPLEMENTED: i32 = -38;

/// Environment variable with the number of the server's descriptor of `/dev/fuse`.
const DEVICE: &str = "SRD_TEST_FUSE_DEVICE";
/// Line that the server prints when it has stopped answering.
const HAS_STOPPED: &str = "the server has stopped";
/// Longest run time of a server.
const SERVER_MAX: Duration = Duration::from_secs(300);

/// A mount of one file. The server answers until a descriptor of the file is open. After that every
/// request waits until this value is dropped.
pub(crate) struct Stopped {
    pub(crate) file: OwnedFd,
    server: Child,
    mount: PathBuf,
}

impl Stopped {
    /// Mounts the file at this path. If that is not possible, prints the reason and returns `None`.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.inspect_err(|error| println!("skipped: /dev/fuse: {error}")).ok()?;
        std::fs::write(at, "").unwrap();
        fcntl_setfd(&device, FdFlags::empty()).unwrap();
        let fd = device.as_raw_fd().to_string();
        let options = format!("fd={fd},rootmode=100600,user_id=0,group_id=0");
        let mut command = Command::new("mount");
        command.args(["-i", "-t", "fuse", "-o", &options, "srd-test"]).arg(at);
        let output = command.stdin(Stdio::null()).output().unwrap();
        if !output.status.success() {
            println!("skipped: mount of FUSE: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        // Name of the test below, without the name of the program.
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--nocapture", "--exact", &format!("{module}::server")]).env(DEVICE, fd);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        drop(device);
        let file = File::options().read(true).write(true).open(at).unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(HAS_STOPPED)));
        Some(Self { file: file.into(), server, mount: at.to_owned() })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").args(["-l", "-i"]).arg(&self.mount).output();
    }
}

/// Runs the server, if this process is the server.
#[test]
#[allow(unsafe_code)]
fn server() {
    let Some(fd) = std::env::var_os(DEVICE) else { return };
    let fd = fd.to_str().unwrap().parse().unwrap();
    // SAFETY: the parent process leaves this descriptor to this process.
    let device = unsafe { File::from_raw_fd(fd) };
    std::thread::spawn(|| {
        std::thread::sleep(SERVER_MAX);
        std::process::exit(1);
    });
    serve(&device);
    println!("{HAS_STOPPED}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Answers requests until the file was opened.
fn serve(device: &File) {
    let mut request = vec![0; 1 << 17];
    let mut is_open = false;
    while !is_open {
        poll(&mut [PollFd::new(device, PollFlags::IN)], None).unwrap();
        let mut device = device;
        let n = device.read(&mut request).unwrap();
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let (opcode, unique) = (word(4), &request[8..16]);
        let (error, body) = match opcode {
            // Version 7.31, and sizes that the kernel replaces by its own values.
            INIT => {
                let mut body = vec![0; 64];
                body[..4].copy_from_slice(&7_u32.to_ne_bytes());
                body[4..8].copy_from_slice(&31_u32.to_ne_bytes());
                body[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
                (0, body)
            }
            OPEN => (0, vec![0; 16]),
            FORGET => continue,
            _ => (NOT_IMPLEMENTED, Vec::new()),
        };
        assert!(n >= 40);
        let length = u32::try_from(16 + body.len()).unwrap();
        let answer = [&length.to_ne_bytes()[..], &i32::to_ne_bytes(error), unique, &body].concat();
        device.write_all(&answer).unwrap();
        is_open = opcode == OPEN;
    }
}
