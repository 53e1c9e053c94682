//! One measurement over one stream of any library.
//!
//! The first byte from the client selects the measurement. In bulk mode all further bytes until the
//! end of the stream are data; in rr mode the server answers every 64 bytes with 64 bytes. At the
//! end the server sends its results as JSON, and closes its side of the stream. As in `srd perf`,
//! throughput is measured by the receiver between its first and its last byte, and CPU time is the
//! sum over client and server.

use crate::Mode;
use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Number of bytes of a request, and of its answer.
const REQUEST_BYTES: usize = 64;
/// Number of round trips at the start that are not measured.
const WARM_UP: u32 = 500;
/// Number of bytes that are passed to the library at a time.
const WRITE_BYTES: usize = 256 << 10;
/// Largest number of bytes in the results that a server sends.
const ACCOUNT_BYTES_MAX: usize = 4096;
/// Longest recorded round-trip time in nanoseconds; longer times are recorded as this value.
const RTT_MAX_NS: u64 = 60_000_000_000;

/// A bidirectional stream of a QUIC library.
pub(crate) trait Stream {
    /// Passes bytes to the library; waits while the library's send buffer is full.
    async fn send(&mut self, bytes: Bytes) -> Result<()>;
    /// Closes the sending side of the stream.
    async fn finish(&mut self) -> Result<()>;
    /// Returns the next bytes in order; `None` after the other end has closed its sending side.
    async fn receive(&mut self) -> Result<Option<Bytes>>;
}

/// Results that a server sends to its client at the end of a measurement.
#[derive(Serialize, Deserialize)]
struct Account {
    bytes: u64,
    seconds: f64,
    cpu_s: f64,
}

/// Percentiles of the round-trip times, in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RttUs {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// CPU time of client and server, in seconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CpuSeconds {
    pub(crate) client: f64,
    pub(crate) server: f64,
}

/// The result of a measurement, as JSON. The fields are those fields of `srd perf --json` that the
/// [table](crate::table) reads.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) gbps: f64,
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) cpu_s: CpuSeconds,
    pub(crate) seconds: f64,
    /// Name of the cipher that protects the packets; `None` if the library does not report it.
    #[serde(default)]
    pub(crate) cipher: Option<String>,
}

/// Runs the client's side of a measurement, and combines the results of client and server.
pub(crate) async fn client(stream: &mut impl Stream, mode: Mode, time: Duration) -> Result<Report> {
    let cpu_before = cpu();
    let start = Instant::now();
    let rtt = match mode {
        Mode::Bulk => {
            send_bulk(stream, time).await?;
            None
        }
        Mode::Rr => Some(round_trips(stream, time).await?),
    };
    stream.finish().await?;
    let account = read_account(stream).await?;
    let cpu_s = CpuSeconds { client: (cpu() - cpu_before).as_secs_f64(), server: account.cpu_s };
    let seconds = if rtt.is_some() { start.elapsed().as_secs_f64() } else { account.seconds };
    let bytes = account.bytes.max(1) as f64;
    Ok(Report {
        gbps: bytes * 8.0 / 1e9 / seconds.max(1e-9),
        rtt_us: rtt,
        cpu_s_per_gb: (cpu_s.client + cpu_s.server) * 1e9 / bytes,
        cpu_s,
        seconds,
        cipher: None,
    })
}

/// Runs the server's side of one measurement on a stream.
pub(crate) async fn serve(stream: &mut impl Stream) -> Result<()> {
    let mut first = stream.receive().await?.context("the client said nothing")?;
    let (cpu_before, start) = (cpu(), Instant::now());
    let bytes = match first.get_u8() {
        b'B' => swallow(stream, first).await?,
        b'R' => echo(stream, first).await?,
        other => bail!("the client wants {other}, which is nothing"),
    };
    let account = Account {
        bytes,
        seconds: start.elapsed().as_secs_f64(),
        cpu_s: (cpu() - cpu_before).as_secs_f64(),
    };
    stream.send(Bytes::from(serde_json::to_vec(&account)?)).await?;
    stream.finish().await
}

async fn send_bulk(stream: &mut impl Stream, time: Duration) -> Result<()> {
    let data = Bytes::from(vec![7; WRITE_BYTES]);
    stream.send(Bytes::from_static(b"B")).await?;
    let start = Instant::now();
    while start.elapsed() < time {
        stream.send(data.clone()).await?;
    }
    Ok(())
}

async fn round_trips(stream: &mut impl Stream, time: Duration) -> Result<RttUs> {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, RTT_MAX_NS, 3)?;
    let request = Bytes::from_static(&[1; REQUEST_BYTES]);
    stream.send(Bytes::from_static(b"R")).await?;
    for _ in 0..WARM_UP {
        round_trip(stream, &request).await?;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        let sent = Instant::now();
        round_trip(stream, &request).await?;
        let ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(RTT_MAX_NS);
        histogram.saturating_record(ns);
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Ok(RttUs { p50: at(0.5), p99: at(0.99) })
}

async fn round_trip(stream: &mut impl Stream, request: &Bytes) -> Result<()> {
    stream.send(request.clone()).await?;
    let mut missing = REQUEST_BYTES;
    while missing > 0 {
        let answer = stream.receive().await?.context("the server ended in mid-answer")?;
        missing = missing.checked_sub(answer.len()).context("more came back than was sent")?;
    }
    Ok(())
}

async fn swallow(stream: &mut impl Stream, first: Bytes) -> Result<u64> {
    let mut bytes = first.len() as u64;
    while let Some(data) = stream.receive().await? {
        bytes += data.len() as u64;
    }
    Ok(bytes)
}

/// Answers every complete request until the client closes its side. Returns the number of bytes of
/// requests and answers.
async fn echo(stream: &mut impl Stream, first: Bytes) -> Result<u64> {
    let answer = Bytes::from_static(&[2; REQUEST_BYTES]);
    let (mut bytes, mut answered) = (first.len(), 0);
    loop {
        while bytes - answered >= REQUEST_BYTES {
            stream.send(answer.clone()).await?;
            answered += REQUEST_BYTES;
        }
        let Some(data) = stream.receive().await? else { break };
        bytes += data.len();
    }
    Ok((bytes + answered) as u64)
}

async fn read_account(stream: &mut impl Stream) -> Result<Account> {
    let mut text = BytesMut::new();
    while let Some(part) = stream.receive().await? {
        text.extend_from_slice(&part);
        if text.len() > ACCOUNT_BYTES_MAX {
            bail!("the server's account does not end");
        }
    }
    serde_json::from_slice(&text).context("the server gave no account")
}

/// Returns the CPU time that all threads of this process have used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
