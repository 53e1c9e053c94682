//! Checks that `srd.h`, the library and the manual agree.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use srd::Status;
use srd::event::{self, Event};
use srd::options::{OPTIONS_BYTES_MIN, RawOptions};
use srd::{address, peers, sharing, transfer};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn header() -> String {
    fs::read_to_string(here("include/srd.h")).unwrap()
}

/// Returns the names of the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = header();
    let starts = header.lines().filter(|line| !line.starts_with([' ', '*', '/', '#', 's']));
    let names = starts.filter_map(|line| {
        let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
        name.starts_with("srd_").then(|| name.to_owned())
    });
    names.collect()
}

macro_rules! structure {
    ($rust:ty, $c:literal, $($field:ident)*) => {{
        let size = size_of::<$rust>();
        let mut text = format!("_Static_assert(sizeof({}) == {size}, \"size\");\n", $c);
        $(text += &format!(
            "_Static_assert(offsetof({}, {}) == {}, \"{}\");\n",
            $c, stringify!($field), offset_of!($rust, $field), stringify!($field)
        );)*
        text
    }};
}

/// Returns a C program that compiles only if C and Rust agree on all sizes, offsets and numbers.
fn program() -> String {
    let mut text = String::from("#include <srd.h>\n");
    text += &structure!(RawOptions, "srd_options", size address interface job_key_file job_key port
        paths packet_bytes_max answer_timeout_ms peer_timeout_ms operations_max receives_max
        events_max reserved);
    text += &structure!(Event, "srd_event", kind status context peer tag length cut data);
    let statuses = Status::ALL.iter().map(|(status, name)| (*name, i64::from(status.number())));
    let numbers = [
        ("SRD_SENT", event::SRD_SENT.into()),
        ("SRD_RECEIVED", event::SRD_RECEIVED.into()),
        ("SRD_READ", event::SRD_READ.into()),
        ("SRD_WRITTEN", event::SRD_WRITTEN.into()),
        ("SRD_COMPUTED", event::SRD_COMPUTED.into()),
        ("SRD_NOTIFIED", event::SRD_NOTIFIED.into()),
        ("SRD_INJECT", transfer::SRD_INJECT.into()),
        ("SRD_DELIVERED", transfer::SRD_DELIVERED.into()),
        ("SRD_QUIET", transfer::SRD_QUIET.into()),
        ("SRD_SHARE_READ", sharing::SRD_SHARE_READ.into()),
        ("SRD_SHARE_WRITE", sharing::SRD_SHARE_WRITE.into()),
        ("SRD_ANY", peers::ANY.cast_signed()),
        ("SRD_ADDRESS_BYTES", i64::try_from(address::ADDRESS_BYTES).unwrap()),
    ];
    for (name, number) in statuses.chain(numbers) {
        text += &format!("_Static_assert({name} == {number}, \"{name}\");\n");
    }
    text + &format!(
        "_Static_assert(sizeof(SRD_VERSION) == {}, \"version\");\n",
        env!("CARGO_PKG_VERSION").len() + 1
    )
}

fn compiles(text: &str) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layout.c");
    fs::write(&file, text).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]);
    let output = command.arg(here("include")).arg(file).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn can_compile() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(found || !ci, "CI lacks cc");
    found
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    if !can_compile() {
        return println!("skipped: no cc (apt-get install gcc)");
    }
    let (agrees, complaints) = compiles(&program());
    assert!(agrees, "{complaints}");
    let (agrees, _) = compiles(&program().replacen("SRD_EAGAIN == -3", "SRD_EAGAIN == -4", 1));
    assert!(!agrees, "a wrong number was not found");
}

/// Sizes and offsets that are compiled into programs: these numbers must never change.
#[test]
fn structures_stay_as_they_were_released() {
    assert_eq!((size_of::<RawOptions>(), OPTIONS_BYTES_MIN), (72, 72));
    assert_eq!((offset_of!(RawOptions, port), offset_of!(RawOptions, reserved)), (40, 68));
    assert_eq!(
        (size_of::<Event>(), offset_of!(Event, context), offset_of!(Event, data)),
        (56, 8, 48)
    );
}

#[test]
fn the_library_has_what_the_header_declares_and_the_manual_explains() {
    let declared = declared();
    assert!(declared.len() == 22 && declared.contains("srd_last_error"), "{declared:?}");
    let library = std::env::current_exe().unwrap().with_file_name("libsrd.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    if let Ok(output) = output {
        let symbols = String::from_utf8(output.stdout).unwrap();
        let exported = symbols.lines().filter_map(|line| line.rsplit(' ').next());
        let exported: BTreeSet<String> = exported.map(str::to_owned).collect();
        assert_eq!(exported, declared);
    }
    let manual = fs::read_to_string(here("../../packaging/srd.3")).unwrap();
    let manual = manual.replace("\\-", "-");
    let header = header();
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let constants = words.filter(|w| w.starts_with("SRD_") && *w != "SRD_H" && *w != "SRD_E");
    for word in constants.map(str::to_owned).chain(declared) {
        assert!(manual.contains(&word), "srd(3) does not speak of {word}");
    }
}
