//! Windows of flow logs as bytes, with the flows counted so far.

use alloc::vec::Vec;

use hashbrown::HashMap;
use srd_proto::Secret;
use srd_proto::time::Duration;

use super::{Aggregator, Count, FLOWS_MAX, Flow, FlowKey, Path, Window};
use crate::hash::Keyed;
use crate::store::{Reader, Stored, StoredError, stored, stored_values, write_count};

stored!(Count { packets, bytes, first, last, tcp_flags });
stored!(Flow { accepted, rejected, path });
stored!(FlowKey { egress, protocol, source, destination, ports });
stored_values!(Path: [Path::Cloud], [Path::Peering], [Path::Endpoint], [Path::Internet]);

impl Aggregator {
    /// Writes the current window.
    pub(crate) fn export(&self, out: &mut Vec<u8>) {
        let Window { began, ended, skipped_packets, flows } = &self.current;
        self.length.write(out);
        began.write(out);
        ended.write(out);
        skipped_packets.write(out);
        write_count(flows.len(), out);
        for (key, flow) in flows {
            key.write(out);
            flow.write(out);
        }
    }

    /// Creates an aggregator that continues the current window of an exported aggregator.
    pub(crate) fn import(from: &mut Reader<'_>, secret: Secret) -> Result<Self, StoredError> {
        let keyed = Keyed::new(secret);
        let length = Duration::read(from)?;
        let (began, ended) = Stored::read(from)?;
        let skipped_packets = Stored::read(from)?;
        let count = from.count()?;
        if count > FLOWS_MAX || length == Duration::ZERO {
            return Err(StoredError::Wrong("a window of a flow log"));
        }
        let mut flows = HashMap::with_hasher(keyed);
        for _ in 0..count {
            let (key, flow) = <(FlowKey, Flow)>::read(from)?;
            flows.insert(key, flow);
        }
        Ok(Self { length, keyed, current: Window { began, ended, skipped_packets, flows } })
    }
}
