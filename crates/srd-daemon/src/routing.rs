//! Maintains the routes through the interface. A caller sets the list of required routes as a
//! whole; a separate thread applies it to the kernel.
//!
//! ```text
//!   control thread -- want(peers) --> the latest state ---> srd-routes ---> network process
//!                     never waits     (one, replaced)       differences
//! ```
//!
//! **Overlay.** The interface has addresses; prefixes behind peers are routed to it as long as the
//! daemon runs.
//! **Transparent.** The interface has no addresses. The peers' real addresses are routed to it
//! while the peers answer. When the daemon ends for any reason, the interface and all its routes
//! are deleted, and packets take the routes that they had without the daemon.
//!
//! The routes enable ECN for connections, so that our queues can mark packets instead of dropping
//! them.
//!
//! Bounds: at most one list of routes waits, with as many peers and prefixes as a configuration may
//! contain.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use ipnet::IpNet;
use srd_net::Link;

use crate::config::{Interface, Mode, Table};
use crate::netconf::{CHANGES_MAX, Listener, Network, Request, Route, Spec};
use crate::waiting::WaitingThread;

/// Number of the routing table and of the firewall mark of `srd0`. For `srd7` this number is
/// greater by seven.
const TABLE: u32 = 7471;
/// Interval between two attempts to apply routes after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Returns the number of an interface's routing table and mark if the configuration sets none.
pub(crate) fn table_of(interface: &str) -> u32 {
    let digits: String =
        interface.chars().rev().take_while(char::is_ascii_digit).collect::<String>();
    let number: String = digits.chars().rev().collect();
    TABLE + number.parse::<u32>().unwrap_or(0) % 10_000
}

/// Returns the specification of the network process for an interface.
pub(crate) fn spec(interface: &Interface) -> Spec {
    let usual = table_of(&interface.name);
    let (table, mark) = match interface.table {
        Table::Usual => (Some(usual), usual),
        Table::Number(number) => (Some(number), number),
        Table::Off => (None, usual),
    };
    let (name, addresses) = (interface.name.clone(), interface.address.clone());
    Spec { interface: name, addresses, table, mark, kill_switch: interface.kill_switch }
}

/// The prefixes behind one peer: packets to them are routed into the interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Behind {
    /// Prefixes behind the peer.
    pub(crate) prefixes: Vec<IpNet>,
    /// Outer address of the peer; `None` if it is not known.
    pub(crate) endpoint: Option<SocketAddr>,
}

/// The required routes: an entry for each peer with a route.
pub(crate) type State = Vec<Arc<Behind>>;

/// The source address for packets to each prefix; `None`: the interface's address.
type Routes = BTreeMap<IpNet, Option<IpAddr>>;

#[derive(Debug, Default)]
struct Slot {
    /// The last requested routes, until the thread begins to apply them.
    state: Option<State>,
    /// Result of applying the first requested routes; `None` until then.
    first: Option<Result<(), String>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the thread that maintains routes. Dropping it ends the network process, which deletes
/// the interface and removes the routes.
#[derive(Debug)]
pub(crate) struct Routing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

/// Function that sends a request to the network process.
type Ask = Box<dyn FnMut(&Request) -> Result<()> + Send>;

/// The threads that maintain routes, which wait for the network process. If this is dropped, they
/// end.
#[derive(Debug)]
pub(crate) struct PreparedRouting {
    shared: Arc<Shared>,
    keeper: WaitingThread<Ask>,
    listener: Listener,
}

impl PreparedRouting {
    /// Starts the threads. Call it after privileges were dropped, because a thread keeps the
    /// privileges with which it was started.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn new(mode: Mode) -> Result<Self> {
        Self::with(mode, |to| Link::towards(to).ok().map(|link| link.local))
    }

    /// Starts the threads with a function that finds the source address for packets to an endpoint,
    /// which tests replace.
    fn with(
        mode: Mode,
        towards: impl FnMut(SocketAddr) -> Option<IpAddr> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let keep = move |ask: Ask| {
            let (told, sources) = (Routes::new(), BTreeMap::new());
            Keeper { mode, towards, ask, told, sources }.run(&theirs);
        };
        let keeper = WaitingThread::start("srd-routes", keep)?;
        Ok(Self { shared, keeper, listener: Network::listener()? })
    }

    /// Lets the threads work with a network process that has set the interface up.
    pub(crate) fn begin(self, network: Network) -> Routing {
        let Self { shared, keeper, listener } = self;
        let mut network = network.listen_by(listener);
        let has_ended = network.has_ended();
        let thread = keeper.begin(Box::new(move |request: &Request| network.ask(request)));
        Routing { shared, thread: Some(thread), has_ended }
    }
}

impl Routing {
    /// Starts the threads as [`PreparedRouting::new`] does, and lets them work.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn start(network: Network, mode: Mode) -> Result<Self> {
        Ok(PreparedRouting::new(mode)?.begin(network))
    }

    /// Whether the network process has ended. Without it routes can neither be changed nor removed.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Requests routes in place of the previously requested routes. Never waits. Earlier routes
    /// that the thread has not begun to apply are skipped.
    pub(crate) fn want(&self, state: State) {
        self.shared.lock().state = Some(state);
        self.shared.changed.notify_all();
    }

    /// Waits until the first requested routes have been applied.
    ///
    /// # Errors
    /// The reason why the routes could not be applied.
    pub(crate) fn wait_for_first(&self) -> Result<()> {
        let mut slot = self.shared.lock();
        while slot.first.is_none() {
            slot = self.shared.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        slot.first.clone().unwrap_or(Ok(())).map_err(anyhow::Error::msg)
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread that maintains routes.
struct Keeper<Towards, Ask> {
    mode: Mode,
    /// Returns the source address of packets to an endpoint at present; `None` if there is no
    /// route.
    towards: Towards,
    ask: Ask,
    /// Routes that were sent to the network process.
    told: Routes,
    /// Source address for packets to each endpoint, found earlier.
    sources: BTreeMap<SocketAddr, IpAddr>,
}

impl<Towards, Ask> Keeper<Towards, Ask>
where
    Towards: FnMut(SocketAddr) -> Option<IpAddr>,
    Ask: FnMut(&Request) -> Result<()>,
{
    fn run(mut self, shared: &Shared) {
        let mut state = State::new();
        let mut failure: Option<String> = None;
        while let Some(next) = next(shared, failure.is_some()) {
            if let Some(next) = next {
                state = next;
            }
            let wanted = self.routes(&state);
            let done = self.tell(&wanted).map_err(|e| format!("{e:#}"));
            if let Err(error) = &done
                && failure.as_ref() != Some(error)
            {
                tracing::warn!("routes: {error}; trying again");
            }
            failure = done.clone().err();
            if failure.is_some() {
                // A source address that was found earlier may have been removed from the machine.
                self.sources.clear();
            }
            shared.lock().first.get_or_insert(done);
            shared.changed.notify_all();
        }
    }

    /// Computes the routes for the given peers. In transparent mode, packets keep the source
    /// address that they would have without the daemon, so that the peer accepts them.
    fn routes(&mut self, state: &State) -> Routes {
        let endpoints = state.iter().filter_map(|behind| behind.endpoint);
        let known = std::mem::take(&mut self.sources);
        if self.mode == Mode::Transparent {
            let towards = &mut self.towards;
            let mut source = |to: SocketAddr| known.get(&to).copied().or_else(|| towards(to));
            self.sources = endpoints.filter_map(|to| Some((to, source(to)?))).collect();
        }
        let mut routes = Routes::new();
        for behind in state {
            let source = behind.endpoint.and_then(|to| self.sources.get(&to).copied());
            for prefix in &behind.prefixes {
                let same = source.filter(|s| s.is_ipv4() == prefix.addr().is_ipv4());
                routes.insert(*prefix, same);
            }
        }
        routes
    }

    /// Sends the differences from the previous routes to the network process, and makes it apply
    /// them.
    fn tell(&mut self, wanted: &Routes) -> Result<()> {
        let is_new =
            |(prefix, source): &(&IpNet, &Option<IpAddr>)| self.told.get(*prefix) != Some(*source);
        let add: Vec<Route> = wanted
            .iter()
            .filter(is_new)
            .map(|(prefix, source)| Route { prefix: *prefix, source: *source })
            .collect();
        let remove: Vec<IpNet> =
            self.told.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
        for part in remove.chunks(CHANGES_MAX) {
            (self.ask)(&Request::Change { add: Vec::new(), remove: part.to_vec() })?;
            for prefix in part {
                self.told.remove(prefix);
            }
        }
        for part in add.chunks(CHANGES_MAX) {
            (self.ask)(&Request::Change { add: part.to_vec(), remove: Vec::new() })?;
            self.told.extend(part.iter().map(|route| (route.prefix, route.source)));
        }
        // The changes are applied only after all of them were sent. Therefore a prefix that moves
        // from one peer to another has a route all the time.
        (self.ask)(&Request::Apply)
    }
}

/// Waits for new required routes (`Some(Some(_))`), or until the previously required routes have to
/// be tried again (`Some(None)`). Returns `None` at the end.
fn next(shared: &Shared, again: bool) -> Option<Option<State>> {
    let mut slot = shared.lock();
    loop {
        if slot.closed {
            return None;
        }
        if let Some(state) = slot.state.take() {
            return Some(Some(state));
        }
        if !again {
            slot = shared.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (kept, waited) =
            shared.changed.wait_timeout(slot, RETRY_EVERY).unwrap_or_else(PoisonError::into_inner);
        slot = kept;
        if waited.timed_out() {
            return Some(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Starts routing with functions in place of the network process and of the routing table.
    fn over(
        mode: Mode,
        towards: impl FnMut(SocketAddr) -> Option<IpAddr> + Send + 'static,
        ask: impl FnMut(&Request) -> Result<()> + Send + 'static,
    ) -> Routing {
        let PreparedRouting { shared, keeper, .. } = PreparedRouting::with(mode, towards).unwrap();
        Routing { shared, thread: Some(keeper.begin(Box::new(ask))), has_ended: Arc::default() }
    }

    fn behind(prefixes: &[&str]) -> Arc<Behind> {
        let prefixes = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        Arc::new(Behind { prefixes, endpoint: None })
    }

    fn route(prefix: &str) -> Route {
        Route { prefix: prefix.parse().unwrap(), source: None }
    }

    #[test]
    fn interfaces_have_tables_of_their_own() {
        assert_eq!(table_of("srd0"), 7471);
        assert_eq!(table_of("srd12"), 7483);
        assert_eq!(table_of("fabric"), 7471);
    }

    #[test]
    fn regression_a_slow_kernel_holds_up_nobody_and_the_latest_state_wins() {
        let (requests, asked) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let routing = over(
            Mode::Overlay,
            |_| None,
            move |request| {
                requests.send(request.clone()).unwrap();
                let _ = may_go_on.recv();
                Ok(())
            },
        );
        routing.want(vec![behind(&["10.0.0.0/32"])]);
        let first = Request::Change { add: vec![route("10.0.0.0/32")], remove: Vec::new() };
        assert_eq!(asked.recv().unwrap(), first);
        // The thread is waiting for an answer. Of a thousand lists that are requested in the
        // meantime, only the last one is applied.
        for i in 0..1000_u32 {
            routing.want(vec![behind(&[&format!("10.0.{}.{}/32", i / 256, i % 256)])]);
        }
        drop(go_on);
        assert_eq!(asked.recv().unwrap(), Request::Apply);
        let last = "10.0.3.231/32";
        let gone = vec!["10.0.0.0/32".parse().unwrap()];
        assert_eq!(asked.recv().unwrap(), Request::Change { add: Vec::new(), remove: gone });
        let add = vec![route(last)];
        assert_eq!(asked.recv().unwrap(), Request::Change { add, remove: Vec::new() });
        assert_eq!(asked.recv().unwrap(), Request::Apply);
        drop(routing);
        assert!(asked.recv().is_err());
    }

    #[test]
    fn regression_a_prefix_that_moves_to_another_peer_keeps_its_route() {
        let (requests, asked) = mpsc::channel();
        let routing = over(
            Mode::Overlay,
            |_| None,
            move |request| {
                requests.send(request.clone()).unwrap();
                Ok(())
            },
        );
        routing.want(vec![behind(&["10.1.0.0/16"]), behind(&["10.2.0.0/16"])]);
        routing.wait_for_first().unwrap();
        routing.want(vec![behind(&["10.2.0.0/16"]), behind(&["10.1.0.0/16", "10.3.0.0/16"])]);
        let told: Vec<Request> = asked.iter().take(4).collect();
        let add = vec![route("10.3.0.0/16")];
        assert_eq!(told[2..], [Request::Change { add, remove: Vec::new() }, Request::Apply]);
    }

    #[test]
    fn requests_stay_within_their_bound_and_failures_are_tried_again() {
        let (requests, asked) = mpsc::channel();
        let mut tries = 0;
        let routing = over(
            Mode::Overlay,
            |_| None,
            move |request| {
                tries += 1;
                requests.send(request.clone()).unwrap();
                if tries == 2 { anyhow::bail!("not now") } else { Ok(()) }
            },
        );
        let many: Vec<String> =
            (0..700).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        routing.want(vec![behind(&many)]);
        assert!(routing.wait_for_first().is_err());
        let sizes = asked.iter().take(4).map(|request| match request {
            Request::Change { add, .. } => {
                assert!(
                    serde_json::to_string(&add).unwrap().len() < crate::netconf::LINE_BYTES_MAX
                );
                add.len()
            }
            _ => 0,
        });
        // The second request was refused, so it is sent again; after it, all changes are applied.
        assert_eq!(sizes.collect::<Vec<_>>(), [512, 188, 188, 0]);
    }

    #[test]
    fn regression_an_address_that_the_machine_has_no_more_is_looked_up_anew() {
        let (requests, asked) = mpsc::channel();
        let addresses = ["192.0.2.1", "192.0.2.9"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut looks = addresses.into_iter();
        let towards = move |_| looks.next();
        // The kernel accepts no route with a source that is not an address of the machine.
        let routing = over(Mode::Transparent, towards, move |request| {
            requests.send(request.clone()).unwrap();
            let gone = |route: &Route| route.source == Some(addresses[0]);
            match request {
                Request::Change { add, .. } if add.iter().any(gone) => anyhow::bail!("no address"),
                _ => Ok(()),
            }
        });
        let endpoint = "198.51.100.1:7471".parse().ok();
        let prefixes = vec!["198.51.100.1/32".parse().unwrap()];
        routing.want(vec![Arc::new(Behind { prefixes, endpoint })]);
        let sources = asked.iter().take(2).map(|request| match request {
            Request::Change { add, .. } => add[0].source,
            _ => None,
        });
        assert_eq!(sources.collect::<Vec<_>>(), addresses.map(Some));
    }
}
