//! Deadlines of many connections in a binary heap. An index of each slot's position ensures that a
//! connection has one entry, even if its deadline changes often.

use srd_proto::time::Instant;

const ABSENT: u32 = u32::MAX;

/// Deadlines of connections, by slot number.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    // Pairs of deadline and slot, as a heap with the earliest deadline first.
    heap: Vec<(Instant, u32)>,
    // Position of each slot in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// Returns the earliest deadline and its slot; `None` if there is no deadline.
    pub fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Sets or clears the deadline of `slot`.
    pub fn set(&mut self, slot: u32, deadline: Option<Instant>) {
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.places[index];
        match (deadline, place) {
            (None, ABSENT) => {}
            (None, _) => self.remove(place as usize),
            (Some(at), ABSENT) => {
                self.heap.push((at, slot));
                self.rise(self.heap.len() - 1);
            }
            (Some(at), _) => {
                let place = place as usize;
                let earlier = at < self.heap[place].0;
                self.heap[place].0 = at;
                if earlier {
                    self.rise(place);
                } else {
                    self.sink(place);
                }
            }
        }
    }

    /// Removes all deadlines.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
    }

    fn remove(&mut self, place: usize) {
        let (_, slot) = self.heap.swap_remove(place);
        self.places[slot as usize] = ABSENT;
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place);
        }
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].1 as usize] = u32::try_from(place).unwrap_or(ABSENT);
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let child = match self.heap.get(left..) {
                Some([a, b, ..]) if b < a => left + 1,
                Some([_, ..]) => left,
                _ => break,
            };
            if self.heap[place] <= self.heap[child] {
                break;
            }
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::rng::Rng;

    #[test]
    fn first_is_the_earliest_whatever_moved() {
        let mut timers = Timers::default();
        let mut model = vec![None; 40];
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let slot = rng.below(40);
            let at = (rng.below(4) > 0).then(|| Instant::from_nanos(u64::from(rng.below(1000))));
            timers.set(slot, at);
            model[slot as usize] = at;
            let earliest = (0_u32..).zip(&model).filter_map(|(s, at)| at.map(|at| (at, s))).min();
            assert_eq!(timers.first(), earliest);
            assert_eq!(timers.heap.len(), model.iter().flatten().count());
        }
    }
}
