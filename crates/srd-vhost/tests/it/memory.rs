//! Memory that disappears while a device uses it, memory that cannot disappear, and memory that is
//! added in parts.

#![allow(clippy::unwrap_used)]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::support::{FrontEnd, PLAIN, device, frame};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A front end truncates its memory between two accesses: only its own session ends.
#[test]
fn regression_memory_that_is_cut_off_ends_its_session_only() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let ((mut device, path), (mut second, second_path)) = (device(&directory), device(&other));
    let mut unharmed = FrontEnd::connect(&second_path);
    unharmed.set_up(&mut second, PLAIN);
    for round in 1..=3 {
        let mut front = FrontEnd::connect(&path);
        front.set_up(&mut device, PLAIN);
        front.give_buffers(8);
        front.send_frame(&frame(9));
        front.cut_off_wholly();
        // Reads, writes and publications each access memory that no longer exists.
        match round {
            1 => drop(device.read()),
            2 => drop(device.write(&frame(1000), 0)),
            _ => drop(device.rest()),
        }
        device.flush();
        assert!(!device.is_connected(), "round {round}");
        assert_eq!(device.counts().violations, round);
        unharmed.send_frame(&frame(3));
        assert_eq!(second.read(), Some(frame(3)));
    }
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    front.send_frame(&frame(9));
    assert_eq!(device.read(), Some(frame(9)), "the next front end is served");
}

/// A memory file that supports seals but is not sealed against truncation is refused.
#[test]
fn memory_that_can_be_sealed_has_to_be() {
    let file = |seals: Option<SealFlags>| {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, crate::support::REGION_BYTES).unwrap();
        if let Some(seals) = seals {
            fcntl_add_seals(&file, seals).unwrap();
        }
        file
    };
    let shrink = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for (seals, is_taken) in [
        (None, false),
        (Some(SealFlags::GROW), false),
        (Some(SealFlags::SHRINK), true),
        (Some(shrink), true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let mut front = FrontEnd::connect(&path);
        front.regions = [file(seals), file(seals)];
        front.share();
        device.turn();
        device.turn();
        assert_eq!(device.is_connected(), is_taken, "{seals:?}");
    }
}

/// Environment variable with which tests of this module run in a child process that causes a bus
/// error.
const INNER: &str = "SRD_VHOST_TEST_BUS_ERROR";

/// Returns a command that runs only this test of this file, in a process of its own.
fn own_test(name: &str) -> Command {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}")]);
    command
}

/// A bus error of the program itself ends the program as if there were no device. If the program
/// has a handler, that handler runs first.
#[test]
#[allow(unsafe_code)]
fn regression_bus_errors_elsewhere_end_the_program_as_before() {
    if std::env::var_os(INNER).is_some() {
        // Now the device's handler is installed.
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let mut front = FrontEnd::connect(&path);
        front.set_up(&mut device, PLAIN);
        let file = memfd_create("own", MemfdFlags::CLOEXEC).unwrap();
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        use std::os::fd::AsRawFd;
        // SAFETY: maps an empty file, and reads beyond its end: the process is meant to end.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, read, shared, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::hint::black_box(at.cast::<u8>().read_volatile());
        }
        unreachable!();
    }
    let mut command = own_test("regression_bus_errors_elsewhere_end_the_program_as_before");
    command.env(INNER, "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}

/// If the machine grants no more memory (`vm.overcommit_memory=2`), or the process has reached its
/// limit, truncated memory ends its session, but not the process.
#[test]
#[allow(unsafe_code)]
fn regression_memory_that_is_cut_off_ends_no_process_that_can_have_no_more() {
    if std::env::var_os(INNER).is_some() {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        for round in 1..=2 {
            let mut front = FrontEnd::connect(&path);
            front.set_up(&mut device, PLAIN);
            front.send_frame(&frame(9));
            // Freed small blocks serve the allocations below.
            let blocks: Vec<Vec<u8>> = (6..2000).map(|n| vec![0; n]).collect();
            let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(2).collect();
            front.cut_off_wholly();
            limit_data(1 << 20);
            drop(device.read());
            device.flush();
            limit_data(libc::RLIM_INFINITY);
            drop(kept);
            assert!(!device.is_connected());
            assert_eq!(device.counts().violations, round);
        }
        return;
    }
    let name = "regression_memory_that_is_cut_off_ends_no_process_that_can_have_no_more";
    let mut command = own_test(name);
    command.env(INNER, "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// Sets a limit below the current use of the process, so that each mapping of private memory fails.
#[allow(unsafe_code)]
fn limit_data(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel reads the limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) }, 0);
}
