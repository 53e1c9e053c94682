//! One measurement over one stream of any library.
//!
//! The client's first byte selects the measurement. In bulk mode the rest is data until the end of
//! the stream; in rr mode the server returns every 64 bytes. Then the server sends its results as
//! JSON, and ends its side. As in `srd perf`, throughput is that of the receiver between its first
//! byte and its last, and CPU time is that of both processes.

use crate::Mode;
use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Bytes of a request and of its answer.
const REQUEST_BYTES: usize = 64;
/// Round trips that do not count, at the start.
const WARM_UP: u32 = 500;
/// Bytes handed to the library at a time.
const WRITE_BYTES: usize = 256 << 10;
/// Longest report of a server.
const ACCOUNT_BYTES_MAX: usize = 4096;
/// Longest round trip that is recorded; longer ones count as this.
const RTT_MAX_NS: u64 = 60_000_000_000;

/// A stream in both directions.
pub(crate) trait Stream {
    /// Passes bytes to the library; waits while its buffer is full.
    async fn send(&mut self, bytes: Bytes) -> Result<()>;
    /// Ends this side.
    async fn finish(&mut self) -> Result<()>;
    /// Returns the next bytes in order, or `None` at the end of the other side.
    async fn receive(&mut self) -> Result<Option<Bytes>>;
}

/// Results of a server.
#[derive(Serialize, Deserialize)]
struct Account {
    bytes: u64,
    seconds: f64,
    cpu_s: f64,
}

/// Round trips, in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RttUs {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// CPU time by end.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CpuSeconds {
    pub(crate) client: f64,
    pub(crate) server: f64,
}

/// A result. The names are a subset of those of `srd perf --json`: the fields that the
/// [table](crate::table) reads.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) gbps: f64,
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) cpu_s: CpuSeconds,
    pub(crate) seconds: f64,
    /// Cipher of the packets, if the library reports it.
    #[serde(default)]
    pub(crate) cipher: Option<String>,
}

/// Runs the client's end of a measurement.
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

/// Serves one measurement.
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

/// Answers every whole request.
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

/// Returns the CPU time of this process, including all its threads.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
