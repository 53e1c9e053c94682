//! TCP segments of NFS calls between two machines, as tshark captures them. Without TCP_NODELAY,
//! the second segment of a call waits for the acknowledgement of the first. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::{Authority, call};
use crate::veth::{INTERFACE, Pair, must};
use rustix::process::{Pid, Signal, kill_process};
use srd_nfs::accept::Acceptor;
use srd_nfs::client;
use srd_nfs::dial::{Dialer, Target, TlsFiles};
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::record::{self, Record};
use srd_nfs::serve::{self, Certificates};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(120);
/// MTU between a client and an EFS server: a segment has up to 8,949 bytes of data.
const MTU: u16 = 9001;
const SEGMENT_BYTES: u32 = 8949;
/// Size of an NFS write of 9 KiB, as published of EFS's proxy.
const CALL_BYTES: usize = 9636;
/// Rules of a proxy that writes each TLS record of 8 KiB separately, and leaves TCP_NODELAY off.
const HELD_BACK: Pacing = Pacing { nodelay: false, tls_record_bytes: Some(8192) };
/// TLS records of 8 KiB with TCP_NODELAY.
const AT_ONCE: Pacing = Pacing { nodelay: true, tls_record_bytes: Some(8192) };
/// Calls that are not examined. The kernel acknowledges each of the first segments of a connection
/// at once; it delays acknowledgements when data follow in the other direction.
const SETTLE_CALLS: usize = 30;
/// Least number of calls that are examined.
const CALLS: usize = 20;
/// Size of an NFS write of 1 MiB with the head that [`call`] makes, and the mark of its record.
const LARGE_BYTES: usize = (1 << 20) + 12;
/// Numbers of such calls that are under way at a time.
const DEPTHS: [usize; 2] = [1, 8];
/// Linux delays an acknowledgement by 40 ms. An acknowledgement that comes earlier than this was
/// not delayed.
const DELAYED_MIN_S: f64 = 0.02;
/// Ports in the namespaces of a test, which no other program uses.
const NEAR_PORT: u16 = 20_049;
const FAR_PORT: u16 = 20_050;

/// A captured segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    time_s: f64,
    from_client: bool,
    seq: u32,
    ack: u32,
    bytes: u32,
}

impl Segment {
    /// Reads a line of tshark, with these fields and the two ports.
    fn parse(line: &str, server_port: u16) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let &[time_s, to_port, seq, ack, bytes] = &fields[..] else { return None };
        Some(Self {
            time_s: time_s.parse().ok()?,
            from_client: to_port.parse() == Ok(server_port),
            seq: seq.parse().ok()?,
            ack: ack.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    }

    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.bytes)
    }
}

/// tshark on an interface of one of the two machines.
struct Capture {
    tshark: Child,
    segments: Arc<Mutex<Vec<Segment>>>,
}

impl Capture {
    /// Captures at the machine `end`.
    fn start(pair: &Pair, end: usize, interface: &str, port: u16) -> Self {
        let filter = format!("tcp port {port}");
        let mut command = Command::new("tshark");
        command.args(["-i", interface, "-f", &filter, "-l", "-n", "-T", "fields"]);
        command.args(["-E", "separator=,"]);
        for field in ["frame.time_epoch", "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len"] {
            command.args(["-e", field]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tshark = pair.within(end, || command.spawn().unwrap());
        let lines = BufReader::new(tshark.stdout.take().unwrap()).lines();
        let segments = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&segments);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let segment = Segment::parse(&line, port);
                read.lock().unwrap_or_else(PoisonError::into_inner).extend(segment);
            }
        });
        Self { tshark, segments }
    }

    /// Returns the segments of each call whose data have this size. The segments of a call end
    /// before the first data of the next call.
    fn calls(&self, bytes: usize) -> Vec<Vec<Segment>> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut calls, mut one, mut is_answered) = (Vec::new(), Vec::new(), true);
        for segment in segments.iter() {
            let has_data = segment.bytes > 0;
            if segment.from_client && has_data && is_answered {
                calls.push(std::mem::take(&mut one));
                is_answered = false;
            }
            if !segment.from_client || has_data {
                one.push(*segment);
            }
            is_answered |= !segment.from_client && has_data;
        }
        calls.retain(|call| {
            data(call).map(|segment| segment.bytes as usize).sum::<usize>() == bytes
        });
        calls
    }

    /// Returns the number of bytes from the client, and the number of its segments that left only
    /// after a delayed acknowledgement.
    fn bytes_and_waits(&self) -> (usize, usize) {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = data(&segments).map(|segment| segment.bytes as usize).sum();
        (bytes, segments.windows(3).filter(|three| waited(three)).count())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.tshark), Signal::TERM);
        let _ = self.tshark.wait();
    }
}

/// Returns the client's segments with data.
fn data(call: &[Segment]) -> impl Iterator<Item = &Segment> {
    call.iter().filter(|segment| segment.from_client)
}

/// Whether a segment of the call left only after the delayed acknowledgement of all earlier
/// segments.
fn waited(call: &[Segment]) -> bool {
    call.windows(3).any(|three| {
        let [before, ack, after] = three else { return false };
        let is_ack = !ack.from_client && ack.bytes == 0 && ack.ack == after.seq;
        let is_late = ack.time_s - before.time_s > DELAYED_MIN_S;
        before.from_client && after.from_client && is_ack && is_late
    })
}

/// Whether all data of the call left before the server acknowledged any of them, and the server's
/// first acknowledgement is for all of them.
fn is_acknowledged_once(call: &[Segment]) -> bool {
    let last = data(call).last().expect("a call has data").end();
    let ours = call.iter().take_while(|segment| segment.from_client).count();
    ours == data(call).count() && call[ours].ack == last
}

/// Two machines, and an NFS server in the second machine.
struct Machines {
    pair: Pair,
    authority: Authority,
    nfs: SocketAddr,
}

impl Machines {
    /// Returns `None` if the test cannot run, and prints the reason.
    fn new(programs: &[&str]) -> Option<Self> {
        for program in ["tshark", "ethtool"].iter().chain(programs) {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
            if !found.unwrap().status.success() {
                println!("skipped: no {program} (apt-get install {program})");
                return None;
            }
        }
        let pair = Pair::new(MTU, 1)?;
        for name in &pair.names {
            // Every captured packet is one of the link.
            let off = ["-K", INTERFACE, "tso", "off", "gso", "off", "gro", "off"];
            must("ip", &[&["netns", "exec", name, "ethtool"], &off[..]].concat());
        }
        let nfs = pair.within(1, || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            thread::spawn(move || answer(&listener));
            address
        });
        Some(Self { pair, authority: Authority::new(), nfs })
    }

    /// Starts both halves of the proxy. `pacing`: the pacing of the half beside the client; the
    /// half beside the server has the default, as a server without a proxy.
    fn halves(&self, pacing: Pacing) -> [Acceptor; 2] {
        self.both_halves(pacing, Pacing::default())
    }

    /// Starts both halves of the proxy, each with a pacing.
    fn both_halves(&self, pacing: Pacing, far_pacing: Pacing) -> [Acceptor; 2] {
        let own = self.authority.identity("nas.example", 30);
        let files = serve::TlsFiles { own, ..Default::default() };
        let certificates = Arc::new(Certificates::read(files, far_pacing).unwrap());
        let target = |at: SocketAddr| Target { host: at.ip().to_string(), port: at.port() };
        let metrics = Metrics::default();
        let far = self.pair.within(1, || {
            let listener = TcpListener::bind(("10.77.0.2", FAR_PORT)).unwrap();
            let to = Dialer::new(target(self.nfs), None, far_pacing).unwrap();
            let how = serve::Options { pacing: far_pacing, ..Default::default() };
            serve::start(listener, Arc::new(to), Some(certificates), how, &metrics).unwrap()
        });
        let tls = TlsFiles {
            ca: self.authority.file(),
            server_name: Some("nas.example".into()),
            ..Default::default()
        };
        let near = self.pair.within(0, || {
            let listener = TcpListener::bind(("127.0.0.1", NEAR_PORT)).unwrap();
            let to = SocketAddr::from(([10, 77, 0, 2], FAR_PORT));
            let dialer = Arc::new(Dialer::new(target(to), Some(tls), pacing).unwrap());
            let limits = Limits::default();
            let options = client::Options { limits, connections_max: 1, pacing, any_user: true };
            client::start(listener, dialer, &options, &metrics).unwrap()
        });
        [near, far]
    }

    /// Starts two stunnels, each in place of one half of the proxy.
    fn stunnels(&self, directory: &tempfile::TempDir) -> Stunnels {
        let own = self.authority.identity("nas.example", 30);
        let options = "foreground = yes\npid =\nsyslog = no\nsocket = l:TCP_NODELAY=1\n\
                       socket = r:TCP_NODELAY=1\n[nfs]\n";
        let (certificate, key) = (own.certificate.display(), own.key.display());
        let far = format!(
            "{options}cert = {certificate}\nkey = {key}\naccept = 10.77.0.2:{FAR_PORT}\n\
             connect = {}\n",
            self.nfs
        );
        let near = format!(
            "{options}client = yes\naccept = 127.0.0.1:{NEAR_PORT}\n\
             connect = 10.77.0.2:{FAR_PORT}\n"
        );
        let start = |end, name: &str, config: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, config).unwrap();
            let mut command = Command::new("stunnel4");
            command.arg(file).stdout(Stdio::null()).stderr(Stdio::null());
            self.pair.within(end, || command.spawn().unwrap())
        };
        let far = start(1, "far", &far);
        self.connect(("10.77.0.2", FAR_PORT));
        Stunnels([far, start(0, "near", &near)])
    }

    /// Connects from the client's machine. The program at the other end may not listen yet.
    fn connect(&self, to: (&str, u16)) -> TcpStream {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.pair.within(0, || TcpStream::connect(to)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{to:?}: {error}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes calls one after the other, until `is_enough`.
    fn call_until(&self, mut is_enough: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT;
        let stream = self.connect(("127.0.0.1", NEAR_PORT));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut xid = 0;
        while !is_enough() {
            assert!(Instant::now() < deadline, "tshark has not captured {CALLS} calls");
            xid += 1;
            // A call begins with the mark of its record and the head that `call` makes.
            (&stream).write_all(call(xid, CALL_BYTES - 12).bytes()).unwrap();
            let reply = record::read(&mut &stream, 16 << 20).unwrap().expect("a reply");
            assert_eq!(reply.xid(), xid);
        }
    }
}

/// Keeps `depth` calls of 1 MiB under way on a connection, until `is_enough`.
fn keep_under_way(mut stream: &TcpStream, depth: usize, mut is_enough: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    let numbers = 0..u32::try_from(depth).unwrap();
    let calls: Vec<Record> = numbers.map(|xid| call(xid, LARGE_BYTES - 12)).collect();
    for call in &calls {
        stream.write_all(call.bytes()).unwrap();
    }
    let mut replies = stream;
    let mut answer = || record::read(&mut replies, 16 << 20).unwrap().expect("a reply").xid();
    while !is_enough() {
        assert!(Instant::now() < deadline, "tshark has not captured {CALLS} calls");
        let xid = answer() as usize;
        stream.write_all(calls[xid].bytes()).unwrap();
    }
    for _ in &calls {
        answer();
    }
}

struct Stunnels([Child; 2]);

impl Drop for Stunnels {
    fn drop(&mut self) {
        for stunnel in &mut self.0 {
            let _ = stunnel.kill();
            let _ = stunnel.wait();
        }
    }
}

/// Answers each call with a short reply, as an NFS server answers a write.
fn answer(listener: &TcpListener) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let mut from = BufReader::new(stream.try_clone().unwrap());
            while let Ok(Some(call)) = record::read(&mut from, 16 << 20) {
                let mut message = call.message()[..8].to_vec();
                message[7] = 1;
                message.resize(120, 0);
                if stream.write_all(Record::of(&message).unwrap().bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

/// Returns the bytes of a call after TLS, if each TLS record has up to this many bytes.
fn sealed_bytes(record_bytes: usize) -> usize {
    const TLS_BYTES: usize = 22;
    CALL_BYTES + CALL_BYTES.div_ceil(record_bytes) * TLS_BYTES
}

/// Captures calls between the two machines, and returns the calls that are examined.
fn captured(machines: &Machines, record_bytes: usize) -> Vec<Vec<Segment>> {
    let sealed = sealed_bytes(record_bytes);
    let link = Capture::start(&machines.pair, 0, INTERFACE, FAR_PORT);
    machines.call_until(|| link.calls(sealed).len() >= SETTLE_CALLS + CALLS);
    link.calls(sealed).split_off(SETTLE_CALLS)
}

/// Fails unless most of these calls have a property. A machine that is busy may delay some calls.
fn most(calls: &[Vec<Segment>], what: &str, is_so: impl Fn(&[Segment]) -> bool) {
    let count = calls.iter().filter(|call| is_so(call)).count();
    println!("{what}: {count} of {}", calls.len());
    assert!(2 * count > calls.len(), "{what}: {count} of {}: {:?}", calls.len(), calls.last());
}

/// Returns the sizes of the client's segments.
fn sizes(call: &[Segment]) -> Vec<u32> {
    data(call).map(|segment| segment.bytes).collect()
}

#[test]
fn without_nodelay_the_second_segment_waits_for_a_delayed_acknowledgement() {
    let Some(machines) = Machines::new(&[]) else { return };
    let loopback = Capture::start(&machines.pair, 0, "lo", NEAR_PORT);
    let halves = machines.halves(HELD_BACK);
    let calls = captured(&machines, 8192);
    most(&calls, "a full TLS record, then the remainder", |call| sizes(call) == [8214, 1466]);
    most(&calls, "the second waits for the acknowledgement of the first", waited);
    // The whole call passes the loopback interface as one segment.
    let calls = loopback.calls(CALL_BYTES);
    most(&calls, "one segment on loopback", |call| sizes(call) == [9636]);
    drop(halves);
}

#[test]
fn with_nodelay_both_segments_leave_at_once_and_have_one_acknowledgement() {
    let Some(machines) = Machines::new(&[]) else { return };
    let halves = machines.halves(AT_ONCE);
    let calls = captured(&machines, 8192);
    most(&calls, "a full TLS record, then the remainder", |call| sizes(call) == [8214, 1466]);
    most(&calls, "one acknowledgement", is_acknowledged_once);
    drop(halves);
}

#[test]
fn stunnel_sends_both_segments_at_once_and_has_one_acknowledgement() {
    let Some(machines) = Machines::new(&["stunnel4"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let stunnels = machines.stunnels(&directory);
    let calls = captured(&machines, 16_384);
    let rest = u32::try_from(sealed_bytes(16_384)).unwrap() - SEGMENT_BYTES;
    most(&calls, "as much as the MTU permits", |call| sizes(call) == [SEGMENT_BYTES, rest]);
    most(&calls, "one acknowledgement", is_acknowledged_once);
    drop(stunnels);
}

/// The half beside the server passes on the parts of a call as they arrive, so its last part may
/// wait for the acknowledgement of the part before. If more calls follow, their bytes fill a
/// segment. A busy machine changes which parts arrive together, so the shares differ from run to
/// run.
#[test]
fn large_calls_wait_between_the_servers_half_and_the_server_and_eight_at_a_time_mostly_do_not() {
    let Some(machines) = Machines::new(&[]) else { return };
    let halves = machines.both_halves(HELD_BACK, HELD_BACK);
    let stream = machines.connect(("127.0.0.1", NEAR_PORT));
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let mut shares = Vec::new();
    for depth in DEPTHS {
        let server = Capture::start(&machines.pair, 1, "lo", machines.nfs.port());
        let enough = CALLS * LARGE_BYTES;
        keep_under_way(&stream, depth, || server.bytes_and_waits().0 >= enough);
        let (bytes, waits) = server.bytes_and_waits();
        shares.push(waits as f64 * LARGE_BYTES as f64 / bytes as f64);
    }
    println!("waits for a delayed acknowledgement of each call, depths {DEPTHS:?}: {shares:.2?}");
    assert!(shares[0] > 0.0 && shares[1] < 0.5, "{shares:?}");
    drop(halves);
}
