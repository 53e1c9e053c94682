//! `srd card trace` and `srd card capture`: show the path of packets through the card.
//!
//! | module | what |
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

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

pub(super) use capture::{CaptureArgs, run as capture};

use self::follow::{Brought, Which};
use crate::output::{check_writable, say, tell};

const EXAMPLES: &str = "\
EXAMPLES
  srd card trace web tcp port 443           # until Ctrl-C
  srd card trace any icmp -n 4
  srd card trace web src 10.0.2.10 --seconds 10 --json trace.jsonl

Of a packet that begins a flow, or that is dropped, it prints what each table said: groups, network
ACLs, routes, gateways. Of each packet it prints where it went, how long that took, and the limits
that held it up, with the counter of `ethtool -S` that shows them. A packet from one instance of
this host to another is seen on both interfaces.

Following costs the card time for each packet that the filter takes; more packets than are printed
are counted and not followed.

EXIT CODES
  0 it worked, 1 no card answers, or it failed, 2 wrong arguments, or the card refuses them,
  3 it needs root";

/// Arguments of `srd card trace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    which: Which,
    /// Also write each packet to this file, as a line of JSON; `-` is standard output, which then
    /// carries nothing else.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn trace(args: &TraceArgs) -> Result<u8> {
    let owns_stdout = args.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
    let open = || -> Result<Option<Box<dyn Write>>> {
        Ok(match &args.json {
            None => None,
            Some(_) if owns_stdout => Some(Box::new(BufWriter::new(std::io::stdout()))),
            Some(file) => {
                let opened = File::create(file);
                let opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
                Some(Box::new(BufWriter::new(opened)))
            }
        })
    };
    if let Some(file) = args.json.as_ref().filter(|_| !owns_stdout) {
        check_writable(file)?;
    }
    let at = if owns_stdout { "standard output" } else { "the file of JSON" };
    let one = |lines: &mut Option<Box<dyn Write>>, packet: &packets::Packet| {
        if let Some(lines) = lines {
            serde_json::to_writer(&mut *lines, packet).map_err(std::io::Error::from).context(at)?;
            lines.write_all(b"\n").context(at)?;
        }
        if owns_stdout { Ok(()) } else { say(text::text(packet)) }
    };
    let flush = |lines: &mut Option<Box<dyn Write>>| match lines {
        Some(lines) => lines.flush().context(at),
        None => Ok(()),
    };
    let (_, Brought { packets, lost }) = args.which.follow(0, open, one, flush)?;
    tell!("srd: {packets} packets followed{}", follow::missed(lost));
    Ok(0)
}
