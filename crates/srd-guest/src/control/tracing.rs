//! A trace of packets in the cards of all workers, or of the worker that has the traced instance.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;

use anyhow::Result;

use crate::control::orders::hand;
use crate::control::orders::{Command, Orders};
use crate::control::protocol::{Answer, Request, TraceEvent, TraceRecord};
use crate::control::trace::TraceFormatter;
use crate::control::views;

/// Number of records in an answer after which no further card is read.
const FEW_RECORDS: usize = 64;
/// Maximum number of packets whose last events are awaited. The trace may end before the last
/// events of further ones.
const OPEN_MAX: usize = 65_536;

/// A trace that a connection has begun. It ends when this is dropped.
pub(crate) struct Tracing {
    parts: Vec<Part>,
    /// Number of packets after which the trace ends. Each card ends its part after this number; the
    /// parts of several cards together may have more, which are left out.
    packets: u32,
    /// Number of packets so far, if there are several parts.
    arrived: u32,
    /// Packets of the trace whose last events have not arrived, if there are several parts.
    open: BTreeSet<u32>,
    /// Packets that are left out, until their last events.
    surplus: BTreeSet<u32>,
    /// Index of the part that is read next.
    next: usize,
}

/// The part of a trace in the card of one worker.
struct Part {
    orders: Orders,
    id: u64,
    words: TraceFormatter,
    is_over: bool,
}

impl Tracing {
    /// Begins the trace of a request [`Request::Trace`]. If a worker refuses it, returns the answer
    /// of that worker.
    pub(crate) fn begin(orders: &Orders, request: &Request) -> Result<Result<Self, Answer>> {
        let of_one = match request {
            Request::Trace { instance: Some(name), .. } if orders.are_several() => {
                match views::worker_with(orders, name)? {
                    Some((worker, _)) => Some(worker),
                    None => {
                        let what = views::why_unknown(orders, name);
                        return Ok(Err(Answer::Failed { what }));
                    }
                }
            }
            _ => None,
        };
        let workers: Vec<&Orders> = of_one.map_or_else(|| orders.all().collect(), |of| vec![of]);
        let packets = match request {
            Request::Trace { packets, .. } => *packets,
            _ => 0,
        };
        let mut begun = Self::of(Vec::new(), packets);
        for orders in workers {
            let (back, answer) = channel();
            match hand(orders, Command::Ask(request.clone(), back), &answer)? {
                Answer::Tracing { id } => {
                    let (orders, words) = (orders.clone(), TraceFormatter::default());
                    begun.parts.push(Part { orders, id, words, is_over: false });
                }
                refused => return Ok(Err(refused)),
            }
        }
        Ok(Ok(begun))
    }

    fn of(parts: Vec<Part>, packets: u32) -> Self {
        let (open, surplus) = (BTreeSet::new(), BTreeSet::new());
        Self { parts, packets, arrived: 0, open, surplus, next: 0 }
    }

    /// Returns new records. Cards are read in turn, up to the first one after [`FEW_RECORDS`], so
    /// that the answer fits into one line. `trace`: the number of the trace for the client.
    pub(crate) fn read(&mut self, trace: u64) -> Result<Answer> {
        let (count, mut all, mut lost) = (self.parts.len(), Vec::new(), 0);
        for _ in 0..count {
            if all.len() > FEW_RECORDS {
                break;
            }
            let number = self.next % count;
            self.next = number + 1;
            let part = &mut self.parts[number];
            if part.is_over {
                continue;
            }
            let (back, noted) = channel();
            let Some(noted) = hand(&part.orders, Command::Traced(part.id, back), &noted)? else {
                return Ok(Answer::Failed { what: format!("the trace {trace} has ended") });
            };
            let (mut records, more, is_over) = match part.words.say(noted) {
                Answer::Traced { records, lost, is_over } => (records, lost, is_over),
                other => return Ok(other),
            };
            part.is_over = is_over;
            lost += more;
            if count > 1 {
                self.distinguish(number, &mut records);
                self.leave_out(&mut records);
            }
            all.append(&mut records);
        }
        if count > 1 {
            all.sort_by_key(|of| of.unix_ns);
        }
        Ok(Answer::Traced { records: all, lost, is_over: self.is_over() })
    }

    /// Whether the outcome of all packets is known. The parts of several cards may follow further
    /// packets, which are left out.
    fn is_over(&self) -> bool {
        let has_enough = self.parts.len() > 1 && self.arrived >= self.packets;
        (has_enough && self.open.is_empty()) || self.parts.iter().all(|part| part.is_over)
    }

    /// Gives packets numbers that no packet of another card has. Each card counts from zero.
    fn distinguish(&self, number: usize, records: &mut [TraceRecord]) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (count, number) = (narrow(self.parts.len()), narrow(number));
        for of in records {
            of.packet = of.packet.wrapping_mul(count).wrapping_add(number);
        }
    }

    /// Removes the records of packets beyond the number of the trace, and records which packets of
    /// the trace have further events.
    fn leave_out(&mut self, records: &mut Vec<TraceRecord>) {
        let Self { packets, arrived, open, surplus, .. } = self;
        records.retain(|of| {
            if matches!(of.event, TraceEvent::Arrived(_)) {
                if arrived >= packets {
                    surplus.insert(of.packet);
                } else {
                    *arrived += 1;
                    if open.len() < OPEN_MAX {
                        open.insert(of.packet);
                    }
                }
            }
            let is_surplus = surplus.contains(&of.packet);
            if of.event.is_last() {
                open.remove(&of.packet);
                surplus.remove(&of.packet);
            }
            !is_surplus
        });
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        for Part { orders, id, .. } in &self.parts {
            orders.give(Command::EndTrace(*id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{TraceArrived, TraceHop};
    use std::net::Ipv4Addr;

    fn arrived(packet: u32) -> TraceRecord {
        let address = Ipv4Addr::LOCALHOST.into();
        let event = TraceEvent::Arrived(TraceArrived {
            instance: "a".into(),
            device: "ens5".into(),
            is_egress: true,
            source: address,
            destination: address,
            protocol: "udp".into(),
            ports: None,
            is_fragment: false,
            bytes: 100,
            packets: 1,
            flow: None,
            head: String::new(),
        });
        TraceRecord { packet, unix_ns: 0, event }
    }

    fn with(packet: u32, event: TraceEvent) -> TraceRecord {
        TraceRecord { event, ..arrived(packet) }
    }

    /// A trace of several workers ended with the first answer without records, and so before the
    /// outcome of packets that wait.
    #[test]
    fn regression_a_trace_ends_when_the_outcome_of_its_last_packets_is_known() {
        let all: Vec<_> = [(); 2].map(|()| Orders::new().unwrap()).into();
        let part = |(orders, ..): &(Orders, _, _)| {
            let (orders, words) = (orders.clone(), TraceFormatter::default());
            Part { orders, id: 1, words, is_over: false }
        };
        let mut trace = Tracing::of(all.iter().map(part).collect(), 2);
        let waits = |packet| with(packet, TraceEvent::Waits { limit: None });
        let gone = |packet| with(packet, TraceEvent::Gone { to: TraceHop::Guest });
        let mut read = |records: &[TraceRecord]| {
            let mut records = records.to_vec();
            trace.leave_out(&mut records);
            (records.iter().map(|of| of.packet).collect::<Vec<_>>(), trace.is_over())
        };
        assert_eq!(read(&[arrived(0), waits(0)]), (vec![0, 0], false));
        // The second worker has two packets, one of which is beyond the number.
        assert_eq!(read(&[arrived(1), arrived(3), waits(1)]), (vec![1, 1], false));
        assert_eq!(read(&[]), (vec![], false), "packets wait");
        assert_eq!(read(&[gone(3), gone(1)]), (vec![1], false));
        assert_eq!(read(&[gone(0)]), (vec![0], true));
    }
}
