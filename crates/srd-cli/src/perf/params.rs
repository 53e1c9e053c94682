//! Parameters of a measurement, on which both ends agree before data flows.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Largest `--size`.
pub(super) const SIZE_MAX: u64 = 16 << 20;
/// Longest `--time`: a day.
pub(super) const TIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Largest `--streams`.
pub(super) const STREAMS_MAX: u16 = 64;
/// Largest `--paths`.
pub(super) const PATHS_MAX: u16 = 256;

/// Transport of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// The transport of this project.
    Srd,
    /// The kernel's TCP, without Nagle's delay.
    Tcp,
    /// The kernel's UDP with segmentation offload and nothing on top: the ceiling.
    Udp,
}

impl Transport {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Srd => "srd",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Pattern of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Mode {
    /// As much data as possible, from client to server.
    #[serde(rename = "bulk")]
    Bulk,
    /// One request and its answer at a time.
    #[serde(rename = "rr")]
    #[value(name = "rr")]
    RequestResponse,
}

impl Mode {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::RequestResponse => "rr",
        }
    }
}

/// Protection of SRD's packets in a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Protection {
    /// No authentication and no encryption.
    Plain,
    /// Encrypted; the client has the server's public key.
    PublicKey,
    /// Encrypted; both ends have a shared key.
    JobKey,
}

/// Parameters of one measurement.
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
    /// Speed of the slowest link in bits per second; 0 if it is unknown.
    pub(super) link_rate_bps: u64,
    /// Threads of the client that send and receive SRD's packets.
    #[serde(default)]
    pub(super) workers: u8,
}

impl Params {
    /// Returns an error if a number is out of range. A client other than `srd` may send any
    /// numbers.
    pub(super) fn check(&self) -> Result<()> {
        if !(1..=TIME_MS_MAX).contains(&self.time_ms) {
            bail!("a measurement lasts from a millisecond to a day, not {} ms", self.time_ms);
        }
        if !(1..=SIZE_MAX).contains(&self.size_bytes) {
            bail!("a size is between 1 and {SIZE_MAX} bytes, not {}", self.size_bytes);
        }
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            bail!("there are 1 to {STREAMS_MAX} streams, not {}", self.streams);
        }
        if !(1..=PATHS_MAX).contains(&self.paths) {
            bail!("there are 1 to {PATHS_MAX} paths, not {}", self.paths);
        }
        Ok(())
    }

    /// Whether the measurement requires a key.
    pub(super) fn is_protected(&self) -> bool {
        self.transport == Transport::Srd && self.protection != Protection::Plain
    }

    /// Returns the number of streams as text, such as `1 stream` or `2 streams`.
    pub(super) fn streams_text(&self) -> String {
        format!("{} stream{}", self.streams, if self.streams == 1 { "" } else { "s" })
    }

    /// Returns the size in bytes as an index.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.size_bytes.min(SIZE_MAX)).unwrap_or(1)
    }
}

/// Results that the server measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ServerResult {
    /// Payload bytes that the server received.
    pub(super) bytes: u64,
    /// Time from the first received byte to the last, in seconds.
    pub(super) seconds: f64,
    /// CPU time of the server's process during the measurement, in seconds.
    pub(super) cpu_s: f64,
    /// Threads of the server that sent and received SRD's packets.
    #[serde(default)]
    pub(super) workers: u8,
    /// SRD packets that the server rejected because they were made with another key than its own.
    #[serde(default)]
    pub(super) unauthentic: u64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::perf) fn requests(transport: Transport) -> Params {
        Params {
            transport,
            mode: Mode::RequestResponse,
            size_bytes: 64,
            time_ms: 1000,
            streams: 1,
            paths: 32,
            protection: Protection::Plain,
            busy_poll: false,
            link_rate_bps: 0,
            workers: 1,
        }
    }

    #[test]
    fn numbers_that_no_client_of_ours_sends_are_refused() {
        requests(Transport::Tcp).check().unwrap();
        let refused = |change: fn(&mut Params)| {
            let mut params = requests(Transport::Tcp);
            change(&mut params);
            params.check().unwrap_err().to_string()
        };
        assert!(refused(|p| p.time_ms = u64::MAX).contains("a day"));
        assert!(refused(|p| p.time_ms = TIME_MS_MAX + 1).contains("a day"));
        assert!(refused(|p| p.time_ms = 0).contains("a day"));
        assert!(refused(|p| p.size_bytes = 0).contains("between 1"));
        assert!(refused(|p| p.size_bytes = SIZE_MAX + 1).contains("between 1"));
        assert!(refused(|p| p.streams = 0).contains("streams"));
        assert!(refused(|p| p.streams = STREAMS_MAX + 1).contains("streams"));
        assert!(refused(|p| p.paths = 0).contains("paths"));
        assert!(refused(|p| p.paths = PATHS_MAX + 1).contains("paths"));
    }
}
