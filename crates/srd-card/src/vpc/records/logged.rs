//! Packets that flow logs count: packets that pass the rules and limits, and packets that the rules
//! refuse. For an interface without a flow log, a packet costs one check of an empty list.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::EniId;
use srd_vpc::judge::Reason;

use crate::limits::Offer;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::observe::{Action, Aggregator, Observed, Path};
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::frames::parcel::{Going, Parcel};
use crate::vpc::frames::read::{Read, bytes_of};
use crate::vpc::port::PortId;
use crate::vpc::records::logs::LoggedWindow;
use crate::vpc::records::mirror::VXLAN_PORT;

impl Card {
    /// Sets the interfaces whose packets are counted, and the lengths of their windows. Windows of
    /// other lengths or interfaces end, and can be taken. A window that has one of the new lengths
    /// continues.
    pub fn set_flow_logs(&mut self, now: Instant, lengths: &BTreeMap<EniId, BTreeSet<Duration>>) {
        self.roll_logs(now);
        let none = BTreeSet::new();
        for at in 0..self.ports.len() {
            let port = &mut self.ports[at];
            if port.is_gone {
                continue;
            }
            let wanted = lengths.get(&port.eni).unwrap_or(&none);
            let (mut stay, end): (Vec<_>, Vec<_>) = core::mem::take(&mut port.logs)
                .into_iter()
                .partition(|log| wanted.contains(&log.length()));
            self.logs.end(now, port.eni, end);
            for length in wanted {
                if !stay.iter().any(|log| log.length() == *length) {
                    stay.push(Aggregator::new(now, *length, self.secret_of_log()));
                }
            }
            self.ports[at].logs = stay;
        }
        self.arm_logs();
    }

    /// Removes and returns the next window that is over, if there is one.
    pub fn take_window(&mut self) -> Option<LoggedWindow> {
        self.logs.done.pop_front()
    }

    /// Number of windows that were dropped because more than
    /// [`crate::vpc::records::logs::WINDOWS_MAX`] waited.
    pub fn windows_lost(&self) -> u64 {
        self.logs.lost
    }

    pub(in crate::vpc) fn arm_logs(&mut self) {
        let logs = self.ports.iter().flat_map(|port| &port.logs);
        self.logs.next = logs.map(Aggregator::ends).min();
    }

    /// Ends windows whose time is over. // F2
    pub(in crate::vpc) fn roll_logs(&mut self, now: Instant) {
        if self.logs.next.is_none_or(|next| now < next) {
            return;
        }
        for port in &mut self.ports {
            for log in &mut port.logs {
                if let Some(window) = log.roll(now) {
                    self.logs.add(port.eni, log.length(), window);
                }
            }
        }
        self.arm_logs();
    }

    /// Counts a packet that has passed rules and limits. // F1
    #[inline]
    pub(in crate::vpc) fn log_passed(
        &mut self,
        now: Instant,
        port: PortId,
        frame: &[u8],
        offer: &Offer,
        path: Option<Path>,
    ) {
        if self.ports[port.0 as usize].logs.is_empty() {
            return;
        }
        let Some(read) = Read::frame(frame) else { return };
        let way = offer.direction;
        self.log(now, port, &read, &frame[OFFLOAD_BYTES..], way, Action::Accept, path);
    }

    /// Counts a packet that the rules have refused. // F1
    #[inline]
    pub(in crate::vpc) fn log_refusal(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
        cause: Cause,
    ) {
        let is_logged = match direction {
            Direction::Egress => matches!(cause, Cause::Rule(Reason::GroupsOut | Reason::AclOut)),
            Direction::Ingress => matches!(cause, Cause::Rule(Reason::GroupsIn | Reason::AclIn)),
        };
        if is_logged && !self.ports[port.0 as usize].logs.is_empty() {
            self.log(now, port, read, bytes, direction, Action::Reject, None);
        }
    }

    /// Counts a packet that the rules have refused after it waited for a limit.
    pub(in crate::vpc) fn log_late_refusal(&mut self, now: Instant, parcel: &Parcel, cause: Cause) {
        let direction = match parcel.going {
            Going::Out(_) => Direction::Egress,
            Going::In(_) => Direction::Ingress,
        };
        if let Some(read) = Read::frame(&parcel.frame) {
            let bytes = &parcel.frame[OFFLOAD_BYTES..];
            self.log_refusal(now, parcel.port, &read, bytes, direction, cause);
        }
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // one packet and its action
    fn log(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
        action: Action,
        path: Option<Path>,
    ) {
        let egress = direction == Direction::Egress;
        let Some(seen) = Observed::of(&read.packet, bytes, egress) else { return };
        let is_copy =
            !egress && seen.key.protocol == protocol::UDP && seen.key.ports.1 == VXLAN_PORT;
        if is_copy && self.ports[port.0 as usize].is_mirror_target {
            return;
        }
        self.roll_logs(now);
        let packets = packets(&read.layout);
        let seen = Observed { action, path, packets, bytes: bytes_of(&read.layout), ..seen };
        for log in &mut self.ports[port.0 as usize].logs {
            log.count(now, &seen);
        }
    }
}

fn packets(layout: &Layout) -> u32 {
    u32::try_from(layout.packets()).unwrap_or(u32::MAX)
}
