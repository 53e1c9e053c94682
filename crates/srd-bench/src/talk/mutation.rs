//! A network ACL is changed in mid-transfer.

use anyhow::Result;
use std::thread;
use std::time::{Duration, Instant};

use super::cloud::{Cloud, IP, SETPRIV, UNSHARE};
use super::figure::{Curve, Figure, Near};
use super::stream::Stream;
use super::{Context, Experiment, Found};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mutation",
    about: "Connections to ports 80 and 443 run between two subnets. Entry 100 of a network ACL becomes `allow tcp \
            443`: when the change is acknowledged, no packet for port 80 passes, and each flow of port 443 \
            is judged once more and goes on.",
    scale: 100,
    takes_s: 5,
    needs: &[IP, SETPRIV, UNSHARE],
    run,
};

/// What runs before the change and after it.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_millis(1500);
/// What the card has passed before may lie in a socket for so long.
const IN_SOCKETS: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(50);

/// Two subnets, so that their lists are asked.
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

fn run(context: &Context<'_>) -> Result<Found> {
    let cloud = Cloud::up(context, &text("100 allow all from 0.0.0.0/0"))?;
    let (http, https) = (Stream::begin(&cloud, 80)?, Stream::begin(&cloud, 443)?);
    let began = Instant::now();
    thread::sleep(BEFORE);
    (context.say)("entry 100 becomes allow tcp 443");
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
    let judged_later = judged()? - judged_at_once;
    let judged_again = judged_at_once - judged_before;
    let (http, https) = (http.end(), https.end());
    let end = acknowledged + AFTER;
    let late = http.bytes(acknowledged + IN_SOCKETS, end);
    let share = https.bytes(acknowledged, end) as f64 / https.bytes(asked - AFTER, asked) as f64;
    let steps = 60;
    let curve = Curve {
        title: "The network ACL changes in mid-transfer".into(),
        x: "time, s",
        y: "Mb/s",
        lines: vec![
            ("port 80".into(), http.line(began, steps, STEP)),
            ("port 443".into(), https.line(began, steps, STEP)),
        ],
    };
    let took_ms = (acknowledged - asked).as_secs_f64() * 1e3;
    let before = http.bytes(began, asked) as f64;
    Ok(Found {
        figures: vec![
            Figure::new("acknowledged after, `srd card apply` as a whole", "ms", took_ms)
                .wanted(10.0, Near::AtMost, "docs/card.md"),
            Figure::new("port 80 before the change", "bytes", before)
                .wanted(1e6, Near::AtLeast, "the link's rate"),
            Figure::new("port 80 after the acknowledgement", "bytes", late as f64)
                .wanted(0.0, Near::Exactly, "NET402"),
            Figure::new("port 443, bytes after over before", "", share)
                .wanted(0.9, Near::AtLeast, "NET402"),
            Figure::new("packets judged by the rules because of the change", "", judged_again as f64)
                .wanted(1.0, Near::AtLeast, "NET402"),
            Figure::new("packets judged by the rules later", "", judged_later as f64)
                .wanted(0.0, Near::Exactly, "NET402"),
        ],
        curves: vec![curve],
        notes: vec![
            "50 ms after the acknowledgement are left out: what the card has passed lies in sockets".into(),
            "a super-packet that is judged counts as the packets that it stands for".into(),
        ],
    })
}
