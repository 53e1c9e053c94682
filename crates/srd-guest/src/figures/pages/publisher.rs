//! Selection of the rows that the packet thread writes to the pages of figures in one turn of its
//! loop.
//!
//! A sweep begins when a reader waits for a sweep, and at least [`SWEEP_PAUSE`] after the previous
//! sweep. It writes every row once: [`ROWS_PER_TURN_MAX`] of them in a turn, and the totals in a
//! separate turn. So the work of a turn for readers depends neither on the number of readers nor on
//! that of rows. After a change of instances or hosts, the rows are listed again, which costs less
//! than the change itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use srd_card::vpc::PortId;
use srd_net::page::Page;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::EniId;

use super::Pages;
use super::directory::{Directory, InterfaceRow};
use super::figures::interface_words;
use crate::control::protocol::Tables;

/// Maximum number of rows that are written in one turn of the loop, which takes about 10 us.
pub(crate) const ROWS_PER_TURN_MAX: usize = 16;
/// Minimum time from the beginning of one sweep to that of the next.
pub(crate) const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// A row of the pages of figures.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    Interface(PortId, Arc<InterfaceRow>),
    /// Another host, by its name.
    Host(Arc<str>, Arc<Page>),
    Totals,
}

/// The packet thread's access to the pages of figures.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) pages: Arc<Pages>,
    /// The newest directory.
    directory: Arc<Directory>,
    /// Sizes of those tables that change only when names change.
    lasting: Tables,
    /// Whether names have changed since the directory was created.
    is_outdated: bool,
    /// Whether readers have not yet received the newest list of the names in the rows.
    is_owed: bool,
    rows: Vec<Row>,
    /// Index of the next row of the sweep under way; `None` if no sweep has begun.
    at: Option<usize>,
    /// Earliest start of the next sweep.
    not_before: Instant,
}

impl Publisher {
    pub(crate) fn new(pages: Arc<Pages>) -> Self {
        Self {
            pages,
            directory: Arc::default(),
            lasting: Tables::default(),
            is_outdated: true,
            is_owed: false,
            rows: Vec::new(),
            at: None,
            not_before: Instant::ZERO,
        }
    }

    /// Records that instances, interfaces, flow logs or rules have changed.
    pub(crate) fn names_have_changed(&mut self) {
        self.is_outdated = true;
    }

    /// Whether a new directory has to be created, and passed to [`Publisher::list`].
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Returns the newest directory.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub(crate) fn lasting(&self) -> Tables {
        self.lasting
    }

    /// Takes another directory. A sweep under way starts again.
    pub(crate) fn list(&mut self, directory: Directory, lasting: Tables) {
        self.lasting = lasting;
        let interfaces = directory.instances.iter().flat_map(|of| &of.interfaces);
        let interfaces = interfaces.map(|of| Row::Interface(of.port, Arc::clone(&of.row)));
        let hosts = directory.hosts.iter();
        let hosts = hosts.map(|of| Row::Host(Arc::clone(&of.name), Arc::clone(&of.page)));
        self.rows = interfaces.chain(hosts).chain([Row::Totals]).collect();
        self.directory = Arc::new(directory);
        (self.is_outdated, self.is_owed) = (false, true);
        self.at = self.at.map(|_| 0);
    }

    /// Returns the rows of the interfaces in the newest directory. A new directory uses them again,
    /// so that the figures of an interface stay on its page.
    pub(crate) fn known_rows(&self) -> BTreeMap<(PortId, EniId), Arc<InterfaceRow>> {
        let interfaces = self.directory.instances.iter().flat_map(|of| &of.interfaces);
        interfaces.map(|of| ((of.port, of.eni), Arc::clone(&of.row))).collect()
    }

    /// Returns the time from which [`Publisher::turn`] has rows to write; `None` if no reader
    /// waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.at {
            Some(_) => Some(Instant::ZERO),
            None => self.pages.is_wanted().then_some(self.not_before),
        }
    }

    /// Whether rows have to be written now. Begins a sweep if one is due.
    pub(crate) fn begins(&mut self, now: Instant) -> bool {
        if self.at.is_none() && now >= self.not_before && self.pages.is_wanted() {
            self.pages.begin();
            self.not_before = now + SWEEP_PAUSE;
            self.at = Some(0);
        }
        self.at.is_some()
    }

    /// Writes the next rows of the sweep under way. `write` returns whether it has written the row.
    /// A row that was not written is left to the next turn.
    pub(crate) fn turn(&mut self, now: Instant, mut write: impl FnMut(&Pages, &Row) -> bool) {
        let Some(at) = self.at else { return };
        if self.is_owed {
            self.is_owed = self.pages.directory.try_put(Arc::clone(&self.directory)).is_err();
        }
        let next = self.rows.iter().skip(at).take(ROWS_PER_TURN_MAX);
        let at = at + next.take_while(|row| write(&self.pages, row)).count();
        let is_over = at >= self.rows.len() && !self.is_owed;
        if is_over {
            self.pages.written(now);
        }
        self.at = Some(at).filter(|_| !is_over);
    }

    /// Records that no more rows are written.
    pub(crate) fn end(&self) {
        self.pages.end();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end();
    }
}

impl InterfaceRow {
    /// Creates the row of an interface with at most `queues_max` queues.
    pub(crate) fn new(queues_max: usize) -> Self {
        Self { page: Page::new(interface_words(queues_max)), failed: super::Slot::default() }
    }

    /// Whether the page of the row has exactly the size for `queues_max` queues.
    pub(crate) fn has_room_for(&self, queues_max: usize) -> bool {
        self.page.words() == interface_words(queues_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Duration as WallDuration;

    use crate::cloud::world::Vpc;
    use crate::figures::pages::directory::{About, Listed, ListedInterface};
    use crate::machine::namespace::Device;
    use srd_card::profile::{InstanceType, Profile};
    use srd_vpc::id::InstanceId;

    const INSTANCES: u32 = 200;
    const INTERFACES: u32 = 2;

    fn directory() -> Directory {
        let kind = InstanceType::find("c7i.large").unwrap();
        let interface = |number: u32| ListedInterface {
            port: PortId(number),
            eni: EniId(number.into()),
            device: Device { name: "ens5".into(), addresses: Vec::new(), is_primary: true },
            socket: None,
            row: Arc::new(InterfaceRow::new(2)),
        };
        let instance = |number: u32| Listed {
            name: format!("i{number}"),
            id: InstanceId(number.into()),
            namespace: None,
            profile: Profile::of(kind),
            interfaces: (0..INTERFACES).map(|n| interface(number * INTERFACES + n)).collect(),
        };
        let instances = (0..INSTANCES).map(instance).collect();
        Directory::new(About::default(), Vpc::of_none(), Arc::default(), instances, Vec::new())
    }

    fn publisher() -> Publisher {
        let mut publisher = Publisher::new(Arc::new(Pages::new()));
        publisher.list(directory(), Tables::default());
        publisher
    }

    fn ask(publisher: &Publisher) {
        // This returns at once, because no thread writes figures meanwhile.
        let _ = publisher.pages.refresh(|| (), WallDuration::ZERO);
    }

    /// Runs turns until the sweep ends. Returns the number of rows that each turn has written.
    fn turns(publisher: &mut Publisher, now: Instant) -> Vec<usize> {
        let mut turns = Vec::new();
        while publisher.begins(now) {
            let mut written = 0;
            publisher.turn(now, |_, _| {
                written += 1;
                true
            });
            turns.push(written);
        }
        turns
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn a_turn_writes_so_many_rows_however_many_readers_and_interfaces_there_are() {
        let mut publisher = publisher();
        assert_eq!(turns(&mut publisher, at(0)), [0; 0], "nobody reads");
        let rows = (INSTANCES * INTERFACES + 1) as usize;
        for readers in [1, 1000] {
            let now = at(1000 * readers);
            (0..readers).for_each(|_| ask(&publisher));
            assert_eq!(publisher.due(), Some(publisher.not_before));
            let turns = turns(&mut publisher, now);
            assert!(turns.iter().all(|rows| *rows <= ROWS_PER_TURN_MAX), "{turns:?}");
            assert_eq!((turns.len(), turns.iter().sum::<usize>()), (rows.div_ceil(16), rows));
            assert_eq!(publisher.due(), None);
        }
        assert_eq!(publisher.pages.ended.load(Ordering::Relaxed), 2, "one for all of them");
    }

    #[test]
    fn readers_that_ask_without_pause_get_a_sweep_in_so_much_time_and_no_more() {
        let mut publisher = publisher();
        let mut sweeps = 0;
        for ms in 0..1000 {
            ask(&publisher);
            sweeps += usize::from(!turns(&mut publisher, at(ms)).is_empty());
        }
        assert_eq!(sweeps, 50);
    }

    #[test]
    fn each_row_is_written_once_and_one_that_could_not_be_is_tried_again() {
        let mut publisher = publisher();
        ask(&publisher);
        let (mut ports, mut refused) = (Vec::new(), 0);
        while publisher.begins(at(0)) {
            publisher.turn(at(0), |_, row| match row {
                Row::Interface(PortId(20), _) if refused < 3 => {
                    refused += 1;
                    false
                }
                Row::Interface(port, _) => {
                    ports.push(port.0);
                    true
                }
                _ => true,
            });
            let is_over = publisher.pages.ended.load(Ordering::Relaxed) == 1;
            assert_eq!(is_over, publisher.at.is_none());
        }
        assert_eq!((refused, ports), (3, (0..INSTANCES * INTERFACES).collect()));
    }

    /// A sweep over the previous rows would omit interfaces of the new directory.
    #[test]
    fn a_sweep_begins_again_with_another_directory_and_ends_when_readers_have_it() {
        let mut publisher = publisher();
        ask(&publisher);
        assert!(publisher.begins(at(0)));
        publisher.turn(at(0), |_, _| true);
        publisher.names_have_changed();
        assert!(publisher.is_outdated());
        publisher.list(directory(), Tables::default());
        let pages = Arc::clone(&publisher.pages);
        let reader = pages.directory.0.lock().unwrap();
        let mut written = 0;
        for _ in 0..100 {
            assert!(publisher.begins(at(0)));
            publisher.turn(at(0), |_, _| {
                written += 1;
                true
            });
        }
        assert_eq!(written, INSTANCES * INTERFACES + 1);
        assert_eq!(pages.ended.load(Ordering::Relaxed), 0);
        drop(reader);
        publisher.turn(at(0), |_, _| panic!("all are written"));
        assert_eq!((pages.ended.load(Ordering::Relaxed), publisher.due()), (1, None));
        assert!(Arc::ptr_eq(&pages.directory.get(), publisher.directory()));
    }
}
