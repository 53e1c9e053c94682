//! Connection between the hosts of a cloud: the ENA Express layer and the SRD endpoint of each
//! host, as in `srd card up`.
//!
//! ```text
//!  Card --to_host--> stage: queues, tenants in turns --> endpoint --packets--> link of the world
//!  Card <-Arrival--- stage: order by flow            <-- endpoint <--packets-- link of the world
//! ```
//!
//! A frame uses SRD over all paths if ENA Express is on for its interfaces. Any other frame is sent
//! plainly: one unreliable datagram for each packet, on the path that its hash selects. Each host
//! is a node of one shard. Frames for a peer wait until the peer has agreed to receive them.
//!
//! Bounds: those of the ENA Express layer ([`srd_card::Express`]) and of the endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use srd_card::vpc::{Envelope, FrameRoute};
use srd_card::{
    Arrivals, Arrived, Config as StageConfig, Counters, Express, Guest, Parcel, Partner,
    PeerSettings, PeerSlot, Trailer,
};
use srd_proto::{Config, DropReason, Endpoint, Epoch, Instant, PeerConfig, Secret, TransmitBuf};

use crate::engine::hash::mix;
use crate::engine::nic::{self, Totals, address};
use crate::engine::node::{HostId, Packet};

/// The epochs of consecutive runs of a host differ by two to the power of this number, because an
/// endpoint numbers its contexts upwards from its epoch.
const EPOCH_BITS: u32 = 32;
/// Number with which the secret of the host's card is derived, so that it differs from the secret
/// of the ENA Express layer.
const OF_CARD: u64 = 0xca2d;

/// Configuration of a [`Carrier`].
#[derive(Clone, Debug)]
pub(crate) struct CarrierConfig {
    /// Configuration of the host's endpoint.
    pub(crate) endpoint: Config,
    /// Seed of all random values of the world.
    pub(crate) seed: u64,
    /// Peers of the host, with their names.
    pub(crate) peers: Vec<(HostId, Arc<str>)>,
}

/// A frame that has arrived from another host.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Name of the host that sent the frame.
    pub(crate) from: Arc<str>,
    /// Sender, receiver and route of the frame.
    pub(crate) envelope: Envelope,
    /// Whether the frame was received over SRD.
    pub(crate) by_srd: bool,
    pub(crate) frame: Vec<u8>,
}

/// The ENA Express layer and the endpoint of a host.
pub(crate) struct Carrier {
    host: HostId,
    config: CarrierConfig,
    endpoint: Endpoint,
    express: Express,
    /// By host name of a peer: its slot in the ENA Express layer.
    slots: BTreeMap<Arc<str>, PeerSlot>,
    /// By slot of a peer: its host name.
    names: Vec<Arc<str>>,
    epoch: u64,
    buf: TransmitBuf,
    arrivals: Vec<Arrival>,
    /// Number of frames with a trailer that is not an envelope, and of frames for an unknown host.
    malformed: u64,
    past: Totals,
}

/// Receiver of arriving frames, which collects them in a list.
struct Inward<'a> {
    names: &'a [Arc<str>],
    arrivals: &'a mut Vec<Arrival>,
    malformed: &'a mut u64,
}

impl Arrivals for Inward<'_> {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        let Arrived { from, by_srd, .. } = how;
        let (Some(from), Ok(envelope)) = (self.names.get(from.0 as usize), Envelope::of(trailer))
        else {
            *self.malformed += 1;
            return;
        };
        let (from, frame) = (Arc::clone(from), frame.to_vec());
        self.arrivals.push(Arrival { from, envelope, by_srd, frame });
    }
}

/// A guest that drops all frames. Hosts of a cloud have no guest of an overlay network, but a call
/// requires one.
struct Nobody;

impl Guest for Nobody {
    fn deliver(&mut self, _: &[u8]) {}
}

fn endpoint(config: &CarrierConfig, host: HostId, epoch: u64, now: Instant) -> Endpoint {
    let seed = nic::seed_bytes(config.seed, host, epoch);
    Endpoint::new(config.endpoint.clone(), Epoch(epoch << EPOCH_BITS), seed, now)
        .expect("the configuration was checked")
}

/// Returns a number that differs between hosts and between the runs of a host.
fn run_seed(config: &CarrierConfig, host: HostId, epoch: u64) -> u64 {
    mix(config.seed ^ mix(u64::from(host.0) << EPOCH_BITS ^ epoch))
}

/// Creates the ENA Express layer for one run of a host. Each run has a different secret, so its
/// flow numbers differ from those of earlier runs.
fn stage(config: &CarrierConfig, host: HostId, epoch: u64, endpoint: &mut Endpoint) -> Express {
    let secret = Secret::known(run_seed(config, host, epoch));
    Express::new(StageConfig { cloud: true, secret, ..StageConfig::default() }, endpoint)
}

impl Carrier {
    /// Creates the carrier of a host with the peers of its configuration.
    ///
    /// # Panics
    /// If the endpoint's configuration is out of range.
    pub(crate) fn new(host: HostId, config: CarrierConfig, now: Instant) -> Self {
        let mut endpoint = endpoint(&config, host, 1, now);
        let express = stage(&config, host, 1, &mut endpoint);
        let mut carrier = Self {
            host,
            endpoint,
            express,
            slots: BTreeMap::new(),
            names: Vec::new(),
            epoch: 1,
            buf: nic::transmit_buf(),
            arrivals: Vec::new(),
            malformed: 0,
            past: Totals::default(),
            config,
        };
        carrier.add_peers(now);
        carrier
    }

    fn add_peers(&mut self, now: Instant) {
        let Self { config, endpoint, express, slots, names, .. } = self;
        slots.clear();
        names.clear();
        for (host, name) in &config.peers {
            let at = PeerConfig::at(address(*host, config.endpoint.local_port));
            let id = endpoint.add_peer(now, at).expect("fewer hosts than peers_max");
            let settings =
                PeerSettings { id, allowed: Vec::new(), express: true, express_udp: true };
            slots.insert(Arc::clone(name), express.add_peer(now, settings));
            names.push(Arc::clone(name));
        }
    }

    /// Returns the length of the largest packet that can be sent without SRD, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        let all = self.slots.values().map(|slot| self.express.cloud_bytes_max(*slot));
        all.min().unwrap_or(usize::MAX)
    }

    /// Returns the counters of the ENA Express layer.
    pub(crate) fn counters(&self) -> Counters {
        self.express.counters()
    }

    /// Returns the number of frames with a trailer that is not an envelope, and of frames for an
    /// unknown host.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the endpoint's packet counters since the start of the simulation, restarts included.
    pub(crate) fn totals(&self) -> Totals {
        self.past + Totals::of(self.endpoint.stats())
    }

    /// Returns a text with the numbers of packets that the ENA Express layer and the endpoint
    /// dropped, by cause.
    pub(crate) fn drops(&self) -> String {
        let counters = self.express.counters();
        let of_stage = counters.drops().map(|(name, n)| (name.to_owned(), n));
        let causes = DropReason::ALL.iter().map(|reason| format!("{reason:?}"));
        let of_endpoint = causes.zip(self.endpoint.stats().drops);
        let all = of_stage.chain(of_endpoint).filter(|(_, n)| *n > 0);
        all.map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    }

    /// Passes a frame of the card for another host to the ENA Express layer.
    pub(crate) fn send(&mut self, now: Instant, way: &FrameRoute<'_>, frame: Vec<u8>) {
        let Some(&to) = self.slots.get(way.host) else {
            self.malformed += 1;
            return;
        };
        let parcel = Parcel {
            to,
            // The number 0 belongs to no tenant.
            tenant: way.instance.saturating_add(1),
            interface: way.envelope.sender(),
            trailer: way.envelope.trailer(),
            express: way.express,
        };
        self.express.from_cloud(now, parcel, frame);
    }

    /// Processes a packet from the network. Returns false if the packet is not a packet of the
    /// transport.
    pub(crate) fn on_packet(&mut self, now: Instant, packet: &mut Packet) -> bool {
        let is_sealed = self.config.endpoint.protection.is_on();
        let Some((meta, bytes)) = nic::open(now, packet, is_sealed) else { return false };
        let Self { endpoint, express, names, arrivals, malformed, .. } = self;
        if let Some(delivery) = endpoint.handle_packet(now, meta, bytes) {
            let by = Partner { context: delivery.peer, shard: 0 };
            let inward = &mut Inward { names, arrivals, malformed };
            if !express.delivered_of_cloud(now, by, &delivery, inward) {
                express.delivered_by(now, by, &delivery, &mut Nobody);
            }
        }
        self.events(now);
        true
    }

    /// Processes the timers that are due.
    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        self.events(now);
        let Self { express, names, arrivals, malformed, .. } = self;
        express.handle_cloud_timeout(now, &mut Inward { names, arrivals, malformed });
        self.pump(now);
    }

    /// Returns the time when [`Carrier::on_timer`] has to be called; `None` if no timer is set.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let of_both = [self.endpoint.poll_timeout(), self.express.poll_timeout()];
        of_both.into_iter().flatten().min()
    }

    /// Passes waiting frames to the endpoint. Returns whether there were any.
    pub(crate) fn pump(&mut self, now: Instant) -> bool {
        self.express.pump(now, &mut self.endpoint) > 0
    }

    /// Fills a slot with the next packet of the endpoint. Returns false if there is no packet.
    pub(crate) fn poll(&mut self, now: Instant, slot: &mut Packet) -> bool {
        self.buf.clear();
        let transmit = self.endpoint.poll_transmit(now, &mut self.buf);
        if let Some(transmit) = &transmit {
            let overhead_bytes = self.config.endpoint.wire_overhead_bytes;
            nic::fill(slot, self.host, transmit, &mut self.buf, overhead_bytes);
        }
        self.events(now);
        transmit.is_some()
    }

    /// Removes and returns the frames that have arrived.
    pub(crate) fn take_arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals)
    }

    fn events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.express.event(now, &event);
        }
    }

    /// Returns the secret for the host's card in this run. `srd card up` draws a random secret at
    /// each start, and also when it takes over from a card that runs. So each run of each host has
    /// a different secret.
    pub(crate) fn card_secret(&self) -> Secret {
        Secret::known(mix(run_seed(&self.config, self.host, self.epoch) ^ OF_CARD))
    }

    /// Restarts the host, without any state of its earlier run.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.past = self.totals();
        self.epoch += 1;
        self.endpoint = endpoint(&self.config, self.host, self.epoch, now);
        self.express = stage(&self.config, self.host, self.epoch, &mut self.endpoint);
        self.arrivals.clear();
        self.add_peers(now);
    }
}
