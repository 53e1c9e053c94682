//! The experiment `mutation`: a network ACL is changed during a transfer.

use anyhow::Result;
use std::thread;
use std::time::{Duration, Instant};

use super::cloud::{Cloud, IP, SETPRIV, UNSHARE};
use super::curve::Curve;
use super::stream::Stream;
use super::{Context, Experiment, Findings};
use srd_sim::talk::figure::{Figure, Near, TALK};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mutation",
    about: "Connections to ports 80 and 443 run between two subnets. Entry 100 of a network ACL \
            becomes `allow tcp 443`: when the change is acknowledged, no packet for port 80 \
            passes, and each flow of port 443 is judged once more and goes on.",
    scale: 100,
    takes_s: 5,
    needs: &[IP, SETPRIV, UNSHARE],
    run,
};

/// Duration of the transfer before the change of the network ACL, and after it.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_millis(1500);
/// Longest time for which bytes may wait in a socket after the card passed them.
const IN_SOCKETS: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 60;

/// Returns the configuration of a card with one instance in each of two subnets, so that network
/// ACLs apply. `ingress` is the ingress entry of the server's network ACL.
fn text(ingress: &str) -> String {
    format!(
        r#"
[vpc.main]
cidr = ["10.0.0.0/16"]
[acl.open]
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[acl.web]
ingress = ["{ingress}"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.clients]
cidr = "10.0.2.0/24"
acl = "open"
[subnet.web]
cidr = "10.0.1.0/24"
acl = "web"
[group.main]
ingress = ["tcp 80 from 10.0.0.0/16", "tcp 443 from 10.0.0.0/16"]
[instance.@a]
type = "c7i.large"
[interface.a]
subnet = "clients"
address = ["10.0.2.10"]
groups = ["main"]
instance = "@a"
[instance.@b]
type = "c7i.large"
[interface.b]
subnet = "web"
address = ["10.0.1.11"]
groups = ["main"]
instance = "@b"
"#
    )
}

/// Starts a card on which the network ACL allows everything, for [`change`].
pub(super) fn cloud(context: &Context<'_>) -> Result<Cloud> {
    Cloud::up(context, &text("100 allow all from 0.0.0.0/0"))
}

/// Effects of a change of the network ACL during a transfer.
pub(super) struct Changed {
    /// Duration of the command `srd card apply`, from its start to its end, in ms.
    pub(super) acknowledged_ms: f64,
    /// Time of the request for the change, in seconds since the start of `lines`.
    pub(super) asked_s: f64,
    /// Number of bytes to port 80 that arrived before the change, and after it.
    pub(super) http: (usize, usize),
    /// Number of bytes to port 443 in a time after the change, divided by the number in an equally
    /// long time before it.
    pub(super) https_share: f64,
    /// Number of packets that the rules judged in the first half of the time after the change, and
    /// in the second half.
    judged: (u64, u64),
    /// Name and points of a line for port 80 and one for port 443: seconds, and rate in Mb/s.
    pub(super) lines: [(String, Vec<(f64, f64)>); 2],
}

/// Sends on a connection to port 80 and one to port 443 as fast as possible, and changes the
/// network ACL meanwhile, so that it allows only port 443.
pub(super) fn change(cloud: &Cloud) -> Result<Changed> {
    let (http, https) = (Stream::begin(cloud, 80)?, Stream::begin(cloud, 443)?);
    let began = Instant::now();
    thread::sleep(BEFORE);
    let judged = || -> Result<u64> {
        let of = |name| cloud.counter(name, "judged_packets");
        Ok(of("a")? + of("b")?)
    };
    let judged_before = judged()?;
    let asked = Instant::now();
    cloud.apply_text(&text("100 allow tcp 443 from 0.0.0.0/0"))?;
    let acknowledged = Instant::now();
    thread::sleep(AFTER / 2);
    let judged_at_once = judged()?;
    thread::sleep(AFTER / 2);
    let judged_later = judged()?;
    let (http, https) = (http.end(), https.end());
    let end = acknowledged + AFTER;
    let before = https.bytes(asked - AFTER, asked).max(1);
    Ok(Changed {
        acknowledged_ms: (acknowledged - asked).as_secs_f64() * 1e3,
        asked_s: (asked - began).as_secs_f64(),
        http: (http.bytes(began, asked), http.bytes(acknowledged + IN_SOCKETS, end)),
        https_share: https.bytes(acknowledged, end) as f64 / before as f64,
        judged: (judged_at_once - judged_before, judged_later - judged_at_once),
        lines: [("port 80", http), ("port 443", https)]
            .map(|(name, arrivals)| (name.to_owned(), arrivals.line(began, STEPS, STEP))),
    })
}

fn run(context: &Context<'_>) -> Result<Findings> {
    let cloud = cloud(context)?;
    (context.say)("entry 100 becomes allow tcp 443");
    let changed = change(&cloud)?;
    let (before, after) = changed.http;
    let (at_once, later) = changed.judged;
    let figures = vec![
        Figure::new(
            "acknowledged after, `srd card apply` as a whole",
            "ms",
            changed.acknowledged_ms,
        )
        .wanted(10.0, Near::AtMost, "docs/card.md"),
        Figure::new("port 80 before the change", "bytes", before as f64).wanted(
            1e6,
            Near::AtLeast,
            "the link's rate",
        ),
        Figure::new("port 80 after the acknowledgement", "bytes", after as f64).wanted(
            0.0,
            Near::Exactly,
            TALK,
        ),
        Figure::new("port 443, bytes after over before", "", changed.https_share).wanted(
            0.9,
            Near::AtLeast,
            TALK,
        ),
        Figure::new("packets judged by the rules because of the change", "", at_once as f64)
            .wanted(1.0, Near::AtLeast, TALK),
        Figure::new("packets judged by the rules later", "", later as f64).wanted(
            0.0,
            Near::Exactly,
            TALK,
        ),
    ];
    let curve = Curve {
        title: "The network ACL changes in mid-transfer".into(),
        x: "time, s",
        y: "Mb/s",
        lines: changed.lines.into(),
    };
    let notes = vec![
        "50 ms after the acknowledgement are left out: what the card has passed lies in sockets"
            .into(),
        "a super-packet that is judged counts as the packets that it stands for".into(),
    ];
    Ok(Findings { figures, curves: vec![curve], notes })
}
