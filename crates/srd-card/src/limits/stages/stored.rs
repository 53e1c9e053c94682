//! The limits of an instance as bytes: levels, counters, and the frames that wait.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Eni, Frame, Holds, LIMITS, LimitCounts, Limits, Offer, Parcel, Stage};
use crate::limits::allowances::{Allowances, Limit};
use crate::limits::waiting::DelayQueue;
use crate::store::{
    Reader, Stored, StoredError, stored, stored_counters, stored_values, write_count,
};

stored_counters!(LimitCounts { queued, dropped });
stored!(Offer { direction, bytes, packets, eni, gateway, link_local, fragment });
stored_values!(Stage:
    [Stage::Gateway], [Stage::Bandwidth], [Stage::Packets], [Stage::Eni], [Stage::Done],
);

impl Stored for Holds {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        u8::read(from).map(Self)
    }
}

impl Eni {
    fn export(&self, out: &mut Vec<u8>) {
        let Self { link_local, fragments, bypass, allowances } = self;
        link_local.export(out);
        fragments.export(out);
        bypass.write(out);
        allowances.write(out);
    }

    fn import(&mut self, from: &mut Reader<'_>) -> Result<(), StoredError> {
        self.link_local.import(from)?;
        self.fragments.import(from)?;
        self.bypass = Stored::read(from)?;
        self.allowances = Allowances::read(from)?;
        Ok(())
    }
}

impl<T> Limits<T> {
    /// Writes the state with which another card continues; the function `item` writes a frame.
    pub(crate) fn export(&self, out: &mut Vec<u8>, item: impl Fn(&T, &mut Vec<u8>)) {
        self.bandwidth.iter().for_each(|way| way.export(out));
        self.gateway.iter().for_each(|way| way.export(out));
        self.packets.export(out);
        write_count(self.enis.len(), out);
        self.enis.iter().for_each(|eni| eni.export(out));
        self.held.iter().for_each(|held| held.write(out));
        self.now.write(out);
        let waiting = self.waiting.all();
        write_count(waiting.len(), out);
        for (due, parcel) in waiting {
            let Parcel { before, next, frame: Frame { offer, item: of, held } } = parcel;
            due.write(out);
            before.write(out);
            next.write(out);
            offer.write(out);
            held.write(out);
            item(of, out);
        }
        write_count(self.ready.len(), out);
        for (offer, of, held) in &self.ready {
            offer.write(out);
            held.write(out);
            item(of, out);
        }
        write_count(self.dropped_late.len(), out);
        for (limit, of) in &self.dropped_late {
            limit.write(out);
            item(of, out);
        }
    }

    /// Copies the limits without the frames that wait.
    pub(crate) fn unused(&self) -> Self {
        Self {
            bandwidth: self.bandwidth,
            gateway: self.gateway,
            packets: self.packets,
            enis: self.enis.clone(),
            waiting: DelayQueue::new(),
            counts: [0; LIMITS],
            held: [LimitCounts::default(); LIMITS],
            ready: VecDeque::new(),
            dropped_late: VecDeque::new(),
            now: self.now,
            late: self.late,
            queue_delay_max: self.queue_delay_max,
            queue_packets_max: self.queue_packets_max,
        }
    }

    /// Reads the state that another card has written for an instance with the same number of
    /// interfaces. The rates of `self` do not change.
    pub(crate) fn import(
        &mut self,
        from: &mut Reader<'_>,
        mut item: impl FnMut(&mut Reader<'_>, Option<&Offer>) -> Result<T, StoredError>,
    ) -> Result<(), StoredError> {
        for way in &mut self.bandwidth {
            way.import(from)?;
        }
        for bucket in self.gateway.iter_mut().chain([&mut self.packets]) {
            bucket.import(from)?;
        }
        if from.count()? != self.enis.len() {
            return Err(StoredError::Wrong("the interfaces of an instance"));
        }
        for eni in &mut self.enis {
            eni.import(from)?;
        }
        for held in &mut self.held {
            *held = Stored::read(from)?;
        }
        self.now = Stored::read(from)?;
        for _ in 0..from.count()? {
            let due = Stored::read(from)?;
            let (before, next) = <(Limit, Stage)>::read(from)?;
            let frame = self.frame(from, &mut item)?;
            self.counts[before as usize] += 1;
            self.waiting.push(due, Parcel { before, next, frame });
        }
        for _ in 0..from.count()? {
            let Frame { offer, item, held } = self.frame(from, &mut item)?;
            self.ready.push_back((offer, item, held));
        }
        for _ in 0..from.count()? {
            let limit = Limit::read(from)?;
            self.dropped_late.push_back((limit, item(from, None)?));
        }
        Ok(())
    }

    fn frame(
        &self,
        from: &mut Reader<'_>,
        item: &mut impl FnMut(&mut Reader<'_>, Option<&Offer>) -> Result<T, StoredError>,
    ) -> Result<Frame<T>, StoredError> {
        let (offer, held) = <(Offer, Holds)>::read(from)?;
        if usize::from(offer.eni) >= self.enis.len() {
            return Err(StoredError::Wrong("a frame of no interface"));
        }
        Ok(Frame { item: item(from, Some(&offer))?, offer, held })
    }
}
