//! What is measured: agreed on by both ends before data flows.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Largest `--size`.
pub(super) const SIZE_MAX: u64 = 16 << 20;

/// What carries the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// This project.
    Srd,
    /// The kernel's TCP, without Nagle's delay.
    Tcp,
    /// The kernel's UDP with segmentation offload and nothing on top: the ceiling.
    Udp,
}

impl Transport {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Srd => "srd",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// How the data flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Mode {
    /// As much as possible, from client to server.
    #[serde(rename = "bulk")]
    Bulk,
    /// One request and its answer at a time.
    #[serde(rename = "rr")]
    #[value(name = "rr")]
    RequestResponse,
}

impl Mode {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::RequestResponse => "rr",
        }
    }
}

/// How SRD protects its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Protection {
    /// Not at all.
    Plain,
    /// The client knows the server's public key.
    PublicKey,
    /// Both know a key.
    JobKey,
}

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Params {
    pub(super) transport: Transport,
    pub(super) mode: Mode,
    pub(super) size_bytes: u64,
    pub(super) time_ms: u64,
    pub(super) streams: u16,
    pub(super) paths: u16,
    pub(super) protection: Protection,
    pub(super) busy_poll: bool,
    /// Zero: unknown.
    pub(super) link_rate_bps: u64,
    /// Threads of the client that move SRD's packets.
    #[serde(default)]
    pub(super) workers: u8,
}

impl Params {
    /// `1 stream`, `2 streams`.
    pub(super) fn streams_text(&self) -> String {
        format!("{} stream{}", self.streams, if self.streams == 1 { "" } else { "s" })
    }

    /// The size as an index.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.size_bytes.min(SIZE_MAX)).unwrap_or(1)
    }
}

/// What the server measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ServerResult {
    /// Payload bytes received.
    pub(super) bytes: u64,
    /// From the first byte to the last.
    pub(super) seconds: f64,
    /// CPU time of the server's process meanwhile.
    pub(super) cpu_s: f64,
    /// Threads of the server that moved SRD's packets.
    #[serde(default)]
    pub(super) workers: u8,
}
