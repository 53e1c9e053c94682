//! `srd card trace` and `srd card capture`: show the path of packets through the card.
//!
//! | module | contents |
//! |---|---|
//! | [`filter`] | selection of packets |
//! | [`follow`] | requests events from the card, until the trace ends |
//! | [`packets`] | combines the events of each packet |
//! | [`text`] | a packet and its path, as text |
//! | [`mod@capture`] | a packet and its path, in a file for Wireshark |

mod capture;
mod filter;
mod follow;
mod packets;
mod text;

use anyhow::Result;
use clap::Args;

pub(super) use capture::{CaptureArgs, run as capture};

use self::follow::{Brought, Which};
use crate::output::{JsonLines, JsonOutput, say, tell};

const EXAMPLES: &str = "\
EXAMPLES
  srd card trace web tcp port 443           # until Ctrl-C
  srd card trace any icmp -n 4
  srd card trace web src 10.0.2.10 --seconds 10 --json trace.jsonl

Of a packet that begins a flow, or that is dropped, it prints what each table said: groups, network
ACLs, routes, gateways. Of each packet it prints where it went, how long that took, and the limits
that held it up, with the counter of `ethtool -S` that shows them. A packet from one instance of
this host to another is seen on both interfaces.

--json writes a line of JSON for each packet. Following costs the card time for each packet that
the filter takes; more packets than are printed are counted and not followed.

EXIT CODES
  0  it worked
  1  no card answers, or it failed
  2  wrong arguments, or the card refuses them; or several cards run, and none is named
  3  it needs root";

/// Arguments of `srd card trace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    json: JsonOutput,
}

pub(super) fn trace(args: &TraceArgs) -> Result<u8> {
    args.json.check()?;
    let open = || -> Result<Option<JsonLines>> {
        let mut lines = args.json.lines();
        if let Some(lines) = &mut lines {
            lines.open()?;
        }
        Ok(lines)
    };
    let one = |lines: &mut Option<JsonLines>, packet: &packets::Packet| {
        lines.as_mut().map_or(Ok(()), |lines| lines.add(packet))?;
        if args.json.owns_stdout() { Ok(()) } else { say(text::text(packet)) }
    };
    let flush = |lines: &mut Option<JsonLines>| lines.as_mut().map_or(Ok(()), JsonLines::flush);
    let (_, Brought { packets, lost }) = args.which.follow(0, open, one, flush)?;
    tell!("srd: {packets} packets followed{}", follow::missed(lost));
    Ok(0)
}
