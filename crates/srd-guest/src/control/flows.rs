//! The flows of an interface, copied in parts. The packet thread copies the flows of some entries
//! of a table into memory of the reader, and returns it. Then the reader requests the next part.
//!
//! ```text
//!  reader: Part, empty  ------->  packet thread: at most PLACES_PER_PART_MAX places
//!          words, next Part  <--  Part, with flows
//! ```
//!
//! Bound: one part for each reader, and [`PLACES_MAX`] entries of each interface's table.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;

use srd_card::vpc::{Card, Direct, FlowState, PortId};
use srd_vpc::id::EniId;

use crate::control::protocol::Flow;
use crate::control::trace::protocol_name;

/// Number of entries of an interface's flow table that one part covers.
const PLACES_PER_PART_MAX: u32 = 256;
/// Number of entries of an interface's flow table that all parts together cover.
const PLACES_MAX: u32 = 1 << 16;

/// Flows of an interface, from a range of the table.
pub(crate) struct Part {
    port: PortId,
    /// The interface that had this port when the reader looked it up.
    eni: EniId,
    /// Index of the first table entry of the part; `None` if all entries were read.
    from: Option<u32>,
    flows: Vec<FlowState>,
}

/// A part, and the channel that returns it.
pub(crate) struct PartRequest {
    pub(crate) part: Part,
    pub(crate) back: SyncSender<Part>,
}

impl Part {
    /// Returns the first part of an interface, which is empty.
    pub(crate) fn first(port: PortId, eni: EniId) -> Self {
        let flows = Vec::with_capacity(PLACES_PER_PART_MAX as usize);
        Self { port, eni, from: Some(0), flows }
    }

    /// Whether the table has entries that were not read yet.
    pub(crate) fn has_next(&self) -> bool {
        self.from.is_some_and(|from| from < PLACES_MAX)
    }

    /// Removes and returns the flows of the part.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = FlowState> + '_ {
        self.flows.drain(..)
    }

    /// Fills the part with flows of the card. The thread that reads packets calls this function.
    pub(crate) fn fill(&mut self, card: &Card) {
        let Some(from) = self.from else { return };
        // The port may belong to another interface by now.
        let is_there = card.eni_of(self.port) == Some(self.eni);
        self.from = match is_there {
            true => card.list_flows(self.port, from, PLACES_PER_PART_MAX, &mut self.flows),
            false => None,
        };
    }
}

/// Returns a flow in the form of the protocol.
pub(crate) fn in_words(device: &str, state: &FlowState) -> Flow {
    let direct = |direct: Direct| match direct {
        Direct::Pending => String::from("pending"),
        Direct::Complete => String::from("complete"),
        Direct::Refused(reason) => format!("refused: {}", reason.name()),
    };
    let end = |(address, port): (IpAddr, u16)| match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    };
    Flow {
        device: device.to_owned(),
        protocol: protocol_name(state.protocol),
        local: end(state.local),
        remote: end(state.remote),
        connection: state.connection.map(|state| state.name().to_owned()),
        local_first: state.local_first,
        sent: direct(state.sent),
        received: direct(state.received),
        rides_srd: state.ride.map(|ride| ride.is_ok()),
        plainly: state.ride.and_then(Result::err).map(|why| why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use srd_card::profile::{InstanceType, Profile};
    use srd_card::track::Timeouts;
    use srd_card::vpc::{Environment, FrameRoute, Guest};
    use srd_proto::time::Instant;
    use srd_vpc::compile::Rules;
    use srd_vpc::judge::Service;
    use srd_vpc_file::Kind;

    use crate::cloud_text::{self, Instance};

    const FLOWS: u16 = 1000;

    struct Nothing;

    impl Environment for Nothing {
        fn to_guest(&mut self, _: PortId, _: Vec<u8>) {}
        fn to_host(&mut self, _: FrameRoute<'_>, _: Vec<u8>) {}
        fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
    }

    /// Returns a UDP packet from 10.0.1.10 to 10.0.1.11. Each port is a separate flow.
    fn packet(port: u16) -> Vec<u8> {
        let mut packet = vec![0; srd_card::offload::OFFLOAD_BYTES];
        packet.extend([0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 1, 10, 10, 0, 1, 11]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 9, 0, 8, 0, 0]);
        packet
    }

    fn card() -> (Card, PortId, EniId) {
        let instance = |(name, last)| Instance {
            name,
            interface: name,
            kind: "c7i.24xlarge",
            host: "here",
            last,
            lines: "",
        };
        let instances = [("a", 10), ("b", 11)].map(instance);
        let text = cloud_text::cloud("main", "\"all from 10.0.0.0/16\"", &instances);
        let file = srd_vpc_file::parse(&text, std::path::Path::new("vpc.toml")).unwrap();
        let eni = |name| EniId(file.names.number(Kind::Interface, name).unwrap());
        let rules = Arc::new(Rules::compile(&file.world, "here"));
        let mut card = Card::new("here", rules, srd_net::clock::secret().unwrap());
        let timeouts = Timeouts::new(350, 180, 30).unwrap();
        let kind = InstanceType::find("c7i.24xlarge").unwrap();
        let [port, _] = ["a", "b"].map(|name| {
            let guests = [Guest { eni: eni(name), timeouts }];
            card.add_instance(Instant::ZERO, &Profile::of(kind), &guests)[0]
        });
        (card, port, eni("a"))
    }

    #[test]
    fn a_part_goes_through_so_many_places_and_all_parts_through_all() {
        let (mut card, port, eni) = card();
        for flow in 0..FLOWS {
            card.from_guest(Instant::ZERO, port, packet(1000 + flow), &mut Nothing);
        }
        let mut part = Part::first(port, eni);
        let memory = part.flows.capacity();
        let (mut ports, mut parts) = (Vec::new(), 0);
        while part.has_next() {
            part.fill(&card);
            assert!(part.flows.len() <= PLACES_PER_PART_MAX as usize);
            ports.extend(part.drain().map(|flow| flow.local.1));
            parts += 1;
        }
        assert_eq!(part.flows.capacity(), memory, "the packet thread takes no memory for it");
        ports.sort_unstable();
        assert_eq!(ports, (1000..1000 + FLOWS).collect::<Vec<_>>());
        assert!(parts >= u32::from(FLOWS) / PLACES_PER_PART_MAX, "{parts}");
    }

    #[test]
    fn an_interface_that_is_gone_or_another_has_no_flows_and_no_more_parts() {
        let (mut card, port, eni) = card();
        card.from_guest(Instant::ZERO, port, packet(1), &mut Nothing);
        let mut part = Part::first(port, EniId(eni.0 + 1));
        part.fill(&card);
        assert!(!part.has_next() && part.flows.is_empty());
        card.remove_instance(Instant::ZERO, port);
        let mut part = Part::first(port, eni);
        part.fill(&card);
        assert!(!part.has_next() && part.flows.is_empty());
    }

    #[test]
    fn a_table_that_is_larger_than_the_bound_is_gone_through_in_part() {
        let (_, port, eni) = card();
        let at = |from| Part { from: Some(from), ..Part::first(port, eni) };
        assert!(at(PLACES_MAX - 1).has_next() && !at(PLACES_MAX).has_next());
    }
}
