//! `srd card capture`: writes packets of instances, including dropped ones, to a file for
//! Wireshark. Each packet has its outcome as a comment.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use srd_pcapng::{Direction, Packet, Writer};

use super::follow::{Brought, Which};
use super::{packets, text};
use crate::failure::usage;
use crate::output::{check_writable, create_private, tell};

const EXAMPLES: &str = "\
EXAMPLES
  srd card capture web -w web.pcapng tcp port 443
  srd card capture web -w - | wireshark -k -i -
  tshark -r web.pcapng -Y 'frame.comment contains DROPPED' -T fields -e frame.comment

The comment of a packet says where it went, or which table or limit dropped it: the display filter
`frame.comment` finds them. A packet is written when it is through, so that one that a limit has
held up stands behind later ones.

EXIT CODES
  0  it worked
  1  no card answers, or it failed
  2  wrong arguments, or the card refuses them; or several cards run, and none is named
  3  it needs root";

/// Arguments of `srd card capture`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    which: Which,
    /// Write to this file, which only its owner may read; `-` is standard output. Default: standard
    /// output, unless it is a terminal.
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Keep at most this number of bytes of each packet.
    #[arg(long, value_name = "BYTES", default_value_t = u16::MAX,
          value_parser = clap::value_parser!(u16).range(1..))]
    snaplen: u16,
}

/// A capture file that is being written.
struct Capture {
    to: Box<dyn Write>,
    /// Name of the output in error messages.
    at: &'static str,
    blocks: Writer,
    snaplen: u16,
    /// Interfaces of the file by instance and device, each as its number in the file and the number
    /// of packets written for it.
    interfaces: BTreeMap<(String, String), (u32, u64)>,
}

impl Capture {
    fn packet(&mut self, packet: &packets::Packet) -> Result<()> {
        let of = &packet.arrived;
        let key = (of.instance.clone(), of.device.clone());
        let (interface, written) = self.interfaces.entry(key).or_insert_with(|| {
            let name = format!("{} {}", of.instance, of.device);
            (self.blocks.interface(&name, self.snaplen.into()), 0)
        });
        *written += 1;
        let bytes =
            STANDARD.decode(&of.head).map_err(|error| anyhow!("the card's answer: {error}"))?;
        self.blocks.packet(&Packet {
            interface: *interface,
            direction: if of.is_egress { Direction::Out } else { Direction::In },
            time_ns: packet.unix_ns,
            length: length(&bytes).unwrap_or(of.bytes),
            bytes: &bytes,
            comment: &text::comment(packet),
        });
        if self.blocks.len() > 1 << 16 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let blocks = self.blocks.take();
        if blocks.is_empty() {
            return Ok(());
        }
        self.to.write_all(&blocks).and_then(|()| self.to.flush()).context(self.at)
    }

    /// Writes the statistics of each interface. The interface of a lost packet is unknown, so all
    /// lost packets count at the first interface.
    fn end(&mut self, lost: u64) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut lost = lost;
        for (interface, written) in self.interfaces.values() {
            self.blocks.statistics(*interface, now, written + lost, lost);
            lost = 0;
        }
        self.flush()
    }
}

/// Returns the length that the IP header of a packet states; for a super-packet, its whole length.
/// `None` if the header states fewer bytes than are present.
fn length(bytes: &[u8]) -> Option<u32> {
    let field =
        |at: usize| bytes.get(at..at + 2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])));
    match bytes.first()? >> 4 {
        4 => field(2),
        _ => field(4).map(|payload| payload + 40),
    }
    .filter(|length| *length as usize >= bytes.len())
}

/// Runs `srd card capture`.
pub(crate) fn run(args: &CaptureArgs) -> Result<u8> {
    let file = args.write.as_ref().filter(|file| file.as_os_str() != "-");
    match file {
        Some(file) => check_writable(file)?,
        None if std::io::stdout().is_terminal() => {
            return usage("a capture is nothing to look at in a terminal: name a file with -w");
        }
        None => {}
    }
    let begun = || {
        let to: Box<dyn Write> = match file {
            Some(file) => {
                let opened = create_private(file);
                Box::new(opened.with_context(|| format!("cannot write {}", file.display()))?)
            }
            None => Box::new(std::io::stdout()),
        };
        let blocks = Writer::begin(concat!("srd ", env!("CARGO_PKG_VERSION")));
        let at = if file.is_some() { "the capture's file" } else { "standard output" };
        let (snaplen, interfaces) = (args.snaplen, BTreeMap::new());
        let mut capture = Capture { to, at, blocks, snaplen, interfaces };
        capture.flush()?;
        Ok(capture)
    };
    let followed = args.which.follow(args.snaplen, begun, Capture::packet, Capture::flush);
    let (mut capture, Brought { packets, lost }) = followed?;
    capture.end(lost)?;
    tell!("srd: {packets} packets captured{}", super::follow::missed(lost));
    Ok(0)
}
