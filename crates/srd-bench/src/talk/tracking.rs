//! The experiments `untracked` and `tracking-full`: which connections the card tracks, and the
//! effects of a full table of tracked connections.

use anyhow::{Context as _, Result, bail};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE, address};
use super::stream::{connect, listen, passes};
use super::{Context, Experiment, Findings};
use crate::experiment::measure::programs::Program;
use srd_sim::talk::figure::{DOCUMENTED, Figure, Near, TALK};

const PING: Program = Program { name: "ping", package: "iputils-ping" };
const AVAILABLE: &str = "conntrack_allowance_available";

pub(super) const UNTRACKED: Experiment = Experiment {
    name: "untracked",
    about: "A group with TCP 22 from one address, TCP 80 from everywhere and ICMP, everything \
            outbound: port 80 is not tracked, port 22 and ICMP are. Tracked connections outlive \
            their rule, others do not.",
    scale: 100,
    takes_s: 5,
    needs: &[IP, SETPRIV, UNSHARE, PING],
    run: untracked,
};

pub(super) const FULL: Experiment = Experiment {
    name: "tracking-full",
    about: "c7i.large: flows are opened until `conntrack_allowance_available`, 136,812 at first, \
            is zero. New flows are refused and counted, a connection from before goes on.",
    scale: 100,
    takes_s: 25,
    needs: &[IP, SETPRIV, UNSHARE],
    run: full,
};

/// Number of connections to each port.
const CONNECTIONS: usize = 10;

fn untracked(context: &Context<'_>) -> Result<Findings> {
    const RULES: &str =
        r#""tcp 22 from 10.0.1.10/32", "tcp 80 from 0.0.0.0/0", "icmp from 0.0.0.0/0""#;
    let mut figures = Vec::new();
    let pair = Pair::of("c7i.large").admitting(RULES);
    let cloud = Cloud::of(context, &pair)?;
    let taken = |cloud: &Cloud, work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let before = cloud.counter("b", AVAILABLE)?;
        work()?;
        Ok(before as f64 - cloud.counter("b", AVAILABLE)? as f64)
    };
    let open = |cloud: &Cloud, at: &TcpListener, all: &mut Vec<_>| -> Result<()> {
        for _ in 0..CONNECTIONS {
            all.push(connect(cloud, at)?);
        }
        Ok(())
    };
    (context.say)("connections to ports 22 and 80, and a ping");
    let (ssh, http) = (listen(&cloud, 22)?, listen(&cloud, 80)?);
    let (mut tracked, mut free): (Vec<(TcpStream, TcpStream)>, Vec<_>) = Default::default();
    let name = |what: &str| format!("entries of {CONNECTIONS} connections to {what}");
    let of_ssh = taken(&cloud, &mut || open(&cloud, &ssh, &mut tracked))?;
    let of_http = taken(&cloud, &mut || open(&cloud, &http, &mut free))?;
    let of_ping = taken(&cloud, &mut || {
        cloud.run("a", &["ping", "-c", "1", "-W", "2", address("b")]).map(drop)
    })?;
    let all = CONNECTIONS as f64;
    figures.push(Figure::new(name("port 22"), "", of_ssh).wanted(all, Near::Exactly, TALK));
    figures.push(Figure::new(name("port 80"), "", of_http).wanted(0.0, Near::Exactly, TALK));
    figures.push(Figure::new("entries of a ping", "", of_ping).wanted(1.0, Near::Exactly, TALK));

    (context.say)("the rules for ports 22 and 80 go");
    cloud.apply(&Pair::of("c7i.large").admitting(r#""icmp from 0.0.0.0/0""#))?;
    let passing = |all: &mut Vec<(TcpStream, TcpStream)>| -> Result<f64> {
        let (out, into) = all.first_mut().context("a connection")?;
        Ok(f64::from(u8::from(passes(out, into)?)))
    };
    let lives = passing(&mut tracked)?;
    figures.push(Figure::new("a tracked connection goes on", "", lives).wanted(
        1.0,
        Near::Exactly,
        DOCUMENTED,
    ));
    let lives = passing(&mut free)?;
    figures.push(Figure::new("one that is not tracked goes on", "", lives).wanted(
        0.0,
        Near::Exactly,
        DOCUMENTED,
    ));

    (context.say)("outbound traffic is narrowed");
    let narrow = Pair::of("c7i.large").admitting(RULES).sending(r#""all to 10.0.0.0/16""#);
    let cloud = Cloud::of(context, &narrow)?;
    let http = listen(&cloud, 80)?;
    let of_http = taken(&cloud, &mut || open(&cloud, &http, &mut free))?;
    let name = format!("{}, outbound narrowed", name("port 80"));
    figures.push(Figure::new(name, "", of_http).wanted(all, Near::Exactly, DOCUMENTED));
    Ok(Findings { figures, ..Findings::default() })
}

/// Number of tracked connections that the talk's counter shows as available.
const ALLOWANCE: f64 = 136_812.0;
/// Largest number of flows that are opened to fill the table, and number of flows that are opened
/// when the table is full.
const FLOWS_MAX: u32 = 200_000;
const BEYOND: u32 = 1000;
/// Number of flows that are opened without a pause, and length of the pause after them. Each flow
/// is one packet; their rate stays below the packet rate limit of the instance, which is divided by
/// the scale of the experiment.
const AT_ONCE: u32 = 80;
const PAUSE: Duration = Duration::from_millis(10);
/// Largest number of flows that are opened between two reads of the counter.
const LOOK_EACH: u32 = 4000;
/// Number of destination ports that are used with each source port.
const PORTS: u32 = 60_000;

/// Opens one UDP flow after another from instance `a` to `b`, each with other ports.
struct Opener {
    sockets: Vec<UdpSocket>,
    opened: u32,
}

impl Opener {
    fn new(cloud: &Cloud) -> Result<Self> {
        let sockets = cloud.within("a", || {
            let socket = |_| UdpSocket::bind("0.0.0.0:0").context("a socket");
            (0..FLOWS_MAX.div_ceil(PORTS) + 1).map(socket).collect::<Result<_>>()
        })?;
        Ok(Self { sockets, opened: 0 })
    }

    fn open(&mut self, flows: u32) -> Result<()> {
        for _ in 0..flows {
            let socket = &self.sockets[(self.opened / PORTS) as usize];
            let port = u16::try_from(1024 + self.opened % PORTS)?;
            let to = SocketAddr::new(address("b").parse()?, port);
            socket.send_to(b"a", to).context("a datagram")?;
            self.opened += 1;
            if self.opened.is_multiple_of(AT_ONCE) {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

fn full(context: &Context<'_>) -> Result<Findings> {
    // Instance `a` tracks the flows in its own table, so it has a type with a larger table.
    let pair = Pair::of("c7i.large")
        .from("c7i.8xlarge")
        .admitting(r#""udp from 10.0.1.10/32", "tcp 80 from 10.0.1.10/32""#);
    let cloud = Cloud::of(context, &pair)?;
    let at_first = cloud.counter("b", AVAILABLE)?;
    let http = listen(&cloud, 80)?;
    let (mut out, mut into) = connect(&cloud, &http)?;
    (context.say)("flows are opened until none is available");
    let mut opener = Opener::new(&cloud)?;
    loop {
        let left = u32::try_from(cloud.counter("b", AVAILABLE)?).unwrap_or(u32::MAX);
        if left == 0 {
            break;
        }
        if opener.opened >= FLOWS_MAX {
            bail!("{} flows are open, and {left} more would be taken", opener.opened);
        }
        opener.open(left.min(LOOK_EACH))?;
        thread::sleep(PAUSE);
    }
    let refused_before = cloud.counter("b", "conntrack_allowance_exceeded")?;
    opener.open(BEYOND)?;
    thread::sleep(PAUSE * 20);
    let refused = cloud.counter("b", "conntrack_allowance_exceeded")? - refused_before;
    let lives = f64::from(u8::from(passes(&mut out, &mut into)?));
    let available = cloud.counter("b", AVAILABLE)? as f64;
    Ok(Findings {
        figures: vec![
            Figure::new("available at first", "", at_first as f64)
                .wanted(ALLOWANCE, Near::Exactly, TALK)
                .given(),
            Figure::new("available after so many flows", "", available).wanted(
                0.0,
                Near::Exactly,
                TALK,
            ),
            Figure::new(format!("refused of {BEYOND} more"), "", refused as f64).wanted(
                f64::from(BEYOND),
                Near::Percent(1.0),
                DOCUMENTED,
            ),
            Figure::new("a connection from before goes on", "", lives).wanted(
                1.0,
                Near::Exactly,
                DOCUMENTED,
            ),
        ],
        ..Findings::default()
    })
}
