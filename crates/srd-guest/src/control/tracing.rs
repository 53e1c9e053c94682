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

/// A trace that a connection has begun. It ends when this is dropped.
pub(crate) struct Tracing {
    parts: Vec<Part>,
    /// Number of packets after which the trace ends. Each card ends its part after this number; the
    /// parts of several cards together may have more, which are left out.
    packets: u32,
    /// Number of packets so far, if there are several parts.
    arrived: u32,
    /// Packets that are left out, until the trace ends.
    surplus: BTreeSet<u32>,
    has_enough: bool,
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
        let (parts, surplus) = (Vec::new(), BTreeSet::new());
        let (arrived, has_enough, next) = (0, false, 0);
        let mut begun = Self { parts, packets, arrived, surplus, has_enough, next };
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
        let is_over = self.is_over() || (self.has_enough && all.is_empty());
        Ok(Answer::Traced { records: all, lost, is_over })
    }

    fn is_over(&self) -> bool {
        self.parts.iter().all(|part| part.is_over)
    }

    /// Gives packets numbers that no packet of another card has. Each card counts from zero.
    fn distinguish(&self, number: usize, records: &mut [TraceRecord]) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (count, number) = (narrow(self.parts.len()), narrow(number));
        for of in records {
            of.packet = of.packet.wrapping_mul(count).wrapping_add(number);
        }
    }

    /// Removes the records of packets beyond the number of the trace. The trace ends when there are
    /// no further records of its packets.
    fn leave_out(&mut self, records: &mut Vec<TraceRecord>) {
        let Self { packets, arrived, surplus, .. } = self;
        records.retain(|of| {
            if matches!(of.event, TraceEvent::Arrived(_)) {
                if arrived >= packets {
                    surplus.insert(of.packet);
                } else {
                    *arrived += 1;
                }
            }
            !surplus.contains(&of.packet)
        });
        self.has_enough = self.arrived >= self.packets;
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        for Part { orders, id, .. } in &self.parts {
            orders.give(Command::EndTrace(*id));
        }
    }
}
