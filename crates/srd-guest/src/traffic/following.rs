//! Traces of packets: the loop begins them, takes their records, and ends them.

use std::sync::Arc;

use anyhow::{Context, Result};
use srd_card::vpc::trace::{Event, Filter, Next, Record, TRACES_MAX, TraceId};
use srd_proto::time::Instant;

use crate::control::protocol::TraceFilter;
use crate::control::trace::Noted;
use crate::state::Service;

/// Maximum number of trace records in one answer, so that an answer fits into one line.
const RECORDS_MAX: usize = 500;
/// Maximum number of bytes of packets in one answer.
const BYTES_MAX: usize = 256 << 10;

impl Service {
    pub(crate) fn begin_trace(
        &mut self,
        instance: Option<&str>,
        filter: &TraceFilter,
        packets: u32,
        head_bytes: u16,
    ) -> Result<u64> {
        let interfaces = match instance {
            None => Vec::new(),
            Some(name) => {
                let running = self.guests.by_name.get(name);
                let running = running
                    .with_context(|| format!("there is no instance `{name}` on this host"))?;
                running.interfaces.iter().map(|(port, ..)| *port).collect()
            }
        };
        let filter = Filter {
            interfaces,
            protocol: filter.protocol,
            source: filter.source,
            destination: filter.destination,
            host: filter.host,
            source_port: filter.source_port,
            destination_port: filter.destination_port,
            port: filter.port,
        };
        let begun = self.card.begin_trace(filter, packets, head_bytes.into());
        let TraceId(id) = begun.ok().with_context(|| {
            format!("{TRACES_MAX} traces and captures run already: end one of them")
        })?;
        Ok(id)
    }

    /// Returns the records of a trace since the last call; `None` if there is no such trace.
    pub(crate) fn take_trace(&mut self, now: Instant, id: u64) -> Option<Noted> {
        let taken = self.card.take_trace(TraceId(id), RECORDS_MAX, BYTES_MAX)?;
        let lacked_session = |record: &Record| match &record.event {
            Event::Gone(Next::Host { host, .. } | Next::Edge(_, host)) => self
                .gateways
                .transport
                .as_ref()
                .is_some_and(|of| of.lacked_session(host, record.at)),
            _ => false,
        };
        let numbered = taken.records.iter().enumerate();
        let waiting = numbered.filter(|(_, of)| lacked_session(of)).map(|(number, _)| number);
        let waiting = waiting.collect();
        // The thread of the connection finds names in the directory.
        self.list();
        Some(Noted { taken, directory: Arc::clone(self.publisher.directory()), now, waiting })
    }

    pub(crate) fn end_trace(&mut self, id: u64) {
        self.card.end_trace(TraceId(id));
    }
}
