//! `srd profile --pcap` and `srd watch -r`: captures from files, pipes and FIFOs, packets that are
//! read and packets that are not, and the end of each command.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// A generous limit for the time in which a process ends after a signal, because other tests may
/// use all cores.
const LIMIT: Duration = Duration::from_secs(120);
const READERS: [&[&str]; 2] =
    [&["profile", "--family", "c7i", "--pcap"], &["watch", "--rate", "10G", "-r"]];

fn srd(words: &[&str], file: &OsStr, input: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(words).arg(file).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn read(words: &[&str], file: &Path) -> Output {
    srd(words, file.as_os_str(), Stdio::null()).wait_with_output().unwrap()
}

/// Returns the text of a process's standard output and standard error.
fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    parts.concat()
}

/// Returns a TCP packet of 1500 bytes, which begins with its IPv4 header.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0, 0, 64, 6, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0x13, 0x88, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 16, 3, 0xe7, 0, 0, 0, 0]);
    packet.resize(1500, 0);
    packet
}

/// Returns a pcap file of this link type with three packets that consist of the bytes `frame`.
fn pcap(link: u32, frame: &[u8]) -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    file.extend(link.to_le_bytes());
    let length = u32::try_from(frame.len()).unwrap();
    for n in 0..3 {
        [1, n, length, length].iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

fn ethernet(rest: &[u8]) -> Vec<u8> {
    [&[0; 12][..], rest].concat()
}

struct CaptureDir(tempfile::TempDir);

impl CaptureDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let file = self.0.path().join(name);
        fs::write(&file, bytes).unwrap();
        file
    }

    fn fifo(&self) -> PathBuf {
        let fifo = self.0.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fifo
    }
}

/// Sends a signal to a process, waits until the process has ended, and returns its output.
fn end(mut child: Child, signal: Signal) -> Output {
    let pid = Pid::from_child(&child);
    let begun = Instant::now();
    kill_process(pid, signal).unwrap();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it did not end: {}", said(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Waits until a process has installed its handler of SIGTERM.
fn await_handler(child: &Child) {
    let begun = Instant::now();
    let caught = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & (1 << 14) != 0
    };
    while !caught() {
        assert!(begun.elapsed() < LIMIT, "it does not catch SIGTERM");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_fifo_without_a_writer_ends_with_a_signal() {
    for words in READERS {
        for signal in [Signal::TERM, Signal::INT] {
            let place = CaptureDir::new();
            let child = srd(words, place.fifo().as_os_str(), Stdio::null());
            await_handler(&child);
            let output = end(child, signal);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
            let said = said(&output);
            assert!(said.contains("stopped before a packet was read"), "{words:?}: {said}");
        }
    }
}

#[test]
fn a_stream_that_is_ended_has_the_result_so_far() {
    let bytes = pcap(1, &ethernet(&[&[8, 0][..], &tcp()].concat()));
    for words in READERS {
        let mut child = srd(words, OsStr::new("-"), Stdio::piped());
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&bytes).unwrap();
        await_handler(&child);
        // The pipe is empty when the process has read everything.
        let begun = Instant::now();
        while rustix::io::ioctl_fionread(&pipe).unwrap() > 0 {
            assert!(begun.elapsed() < LIMIT, "it does not read");
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = end(child, Signal::TERM);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        let said = said(&output);
        assert!(said.contains("3 packets") && said.contains("4.5 kB"), "{words:?}: {said}");
        drop(pipe);
    }
}

#[test]
fn pipes_fifos_and_compressed_files_are_read_as_files_are() {
    let place = CaptureDir::new();
    let bytes = pcap(1, &ethernet(&[&[8, 0][..], &tcp()].concat()));
    let gzip = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        gzip.finish().unwrap()
    };
    let is_read = |output: Output, what: &str| {
        assert_eq!(output.status.code(), Some(0), "{what}: {}", said(&output));
        let said = said(&output);
        assert!(said.contains("3 packets") && said.contains("4.5 kB"), "{what}: {said}");
    };
    for words in READERS {
        is_read(read(words, &place.file("x.pcap", &bytes)), "a file");
        is_read(read(words, &place.file("x.pcap.gz", &gzip)), "gzip");
        let fifo = CaptureDir::new();
        let fifo = fifo.fifo();
        let child = srd(words, fifo.as_os_str(), Stdio::null());
        fs::write(&fifo, &bytes).unwrap();
        is_read(child.wait_with_output().unwrap(), "a FIFO");
        for bytes in [&bytes, &gzip] {
            let mut child = srd(words, OsStr::new("-"), Stdio::piped());
            child.stdin.take().unwrap().write_all(bytes).unwrap();
            is_read(child.wait_with_output().unwrap(), "a pipe");
        }
    }
    let replay = ["profile", "--replay", "--pcap"];
    let output = read(&replay, Path::new("-"));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--replay reads the packets twice"), "{}", said(&output));
    is_read(read(&replay, &place.file("x.pcap", &bytes)), "a file, twice");
}

#[test]
fn encapsulations_and_link_types_are_read() {
    let place = CaptureDir::new();
    let with = |before: &[u8]| [before, &tcp()].concat();
    let tags = [0x81, 0, 0, 7].repeat(3);
    for (name, link, frame) in [
        ("check sequence", 0x2400_0001, ethernet(&with(&[8, 0]))),
        ("no check sequence", 0x3000_0001, ethernet(&with(&[8, 0]))),
        ("MPLS", 1, ethernet(&with(&[0x88, 0x47, 0, 1, 1, 64]))),
        ("PPPoE", 1, ethernet(&with(&[0x88, 0x64, 0x11, 0, 0, 7, 5, 0xde, 0, 0x21]))),
        ("0x9100", 1, ethernet(&with(&[0x91, 0, 0, 7, 0x81, 0, 0, 8, 8, 0]))),
        ("three tags", 1, ethernet(&[&tags[..], &with(&[8, 0])].concat())),
        ("PPP", 9, with(&[0xff, 3, 0, 0x21])),
        ("NFLOG", 239, with(&[2, 0, 0, 5, 0xe0, 5, 9, 0])),
    ] {
        for words in READERS {
            let output = read(words, &place.file("x.pcap", &pcap(link, &frame)));
            assert_eq!(output.status.code(), Some(0), "{name}: {}", said(&output));
            let said = said(&output);
            assert!(said.contains("3 packets") && said.contains("4.5 kB"), "{name}: {said}");
            assert!(!said.contains("not read"), "{name}: {said}");
        }
    }
}

#[test]
fn what_is_not_read_is_named_and_no_success() {
    let place = CaptureDir::new();
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let section =
        block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    let interface = block(1, &[101, 0, 0, 0, 0, 0, 0, 0]);
    let simple = block(3, &[&[0xdc, 5, 0, 0][..], &tcp()].concat());
    let length = [0xdc, 5, 0, 0];
    let stray = block(6, &[&[7, 0, 0, 0][..], &[0; 8], &length, &length, &tcp()].concat());
    let cases = [
        (pcap(105, &[0; 60]), "3 packets of link type 105 (IEEE802_11) are not read"),
        (pcap(1, &ethernet(&[0x88, 0xe5, 0, 0])), "3 packets of EtherType 0x88e5 (MACsec) are not"),
        (
            pcap(1, &ethernet(&[8, 6, 0, 0])),
            "it has no IP packets: 3 packets of EtherType 0x0806 (ARP)",
        ),
        ([&section[..], &interface, &simple].concat(), "1 packet without a time"),
        (
            [&section[..], &interface, &stray].concat(),
            "1 packet of an interface that the file does",
        ),
    ];
    for (bytes, words) in cases {
        for reader in READERS {
            let output = read(reader, &place.file("x", &bytes));
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{reader:?}: {said}");
            assert!(said.contains(words), "{reader:?}: {words}: {said}");
            let is_arp = words.contains("ARP");
            assert_eq!(said.contains("no IP packets"), is_arp, "{reader:?}: {said}");
        }
    }
    // The file has a second packet, which can be read: it is counted, and the command succeeds.
    let head = [&[0; 12][..], &length, &length].concat();
    let known = block(6, &[&head[..], &tcp()].concat());
    let bytes = [&section[..], &interface, &stray, &known].concat();
    for reader in READERS {
        let output = read(reader, &place.file("x", &bytes));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{reader:?}: {said}");
        assert!(said.contains("1 packet of an interface") && said.contains("1.5 kB"), "{said}");
    }
}

/// Regression: `srd watch -r` reported that the capture had no packets, but exited with 0.
#[test]
fn regression_a_capture_without_packets_is_an_error_with_one_line() {
    let place = CaptureDir::new();
    // The file is only the header of a pcap file.
    let empty = place.file("empty.pcap", &pcap(1, &[])[..24]);
    for reader in READERS {
        for summary in [&[][..], &["--summary"]] {
            let words = if reader[0] == "watch" { summary } else { &[] };
            let (options, file) = reader.split_at(reader.len() - 1);
            let output = read(&[options, words, file].concat(), &empty);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{reader:?}: {said}");
            assert_eq!(said.matches("it has no packets").count(), 1, "{reader:?}: {said}");
            assert!(!said.contains("no bursts"), "{reader:?}: {said}");
        }
    }
}

#[test]
fn a_capture_without_bursts_has_a_line_and_an_interface_that_is_not_there_has_the_error_only() {
    let place = CaptureDir::new();
    let bytes = pcap(1, &ethernet(&[&[8, 0][..], &tcp()].concat()));
    let output = read(READERS[1], &place.file("x.pcap", &bytes));
    let line = String::from_utf8_lossy(&output.stdout);
    assert!(line.starts_with("x.pcap: no bursts in ") && line.lines().count() == 1, "{line}");
    let output = read(READERS[1], &place.file("cut.pcap", &bytes[..bytes.len() - 5]));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("ends within"), "{}", said(&output));
    let output = read(&["watch", "--rate", "10G"], Path::new("nope"));
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", said(&output));
}
