//! A worker without a daemon around it, for tests of the card that drives it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::event::{EventfdFlags, eventfd};

use super::orders::{self, Batch, Change, ControlEnds, NewPeer, Order, WorkerWaker};
use super::queues::Queues;
use super::setup;
use super::waker::Waker;
use super::worker::carrier::CardWorker;
use super::worker::publish::Publisher;
use crate::config::{Config, PeerSettings};
use crate::pages::page::Page;
use crate::pages::peer::PeerPage;
use crate::plane::{PeerNumber, oneshot};

/// Orders to a worker without a daemon. The worker continues without this value.
#[derive(Debug)]
pub struct Orders(ControlEnds);

/// Creates the worker of a configuration, whose peers are hosts of the clouds. `sockets`:
/// those of another process; `None`: the worker opens its sockets.
///
/// # Errors
/// An error of the operating system.
pub fn card_worker(config: &Config, sockets: Option<Vec<OwnedFd>>) -> Result<(CardWorker, Orders)> {
    let packet_bytes = setup::packet_bytes(config)?;
    let endpoints = match sockets {
        Some(sockets) => setup::adopt(config, packet_bytes, vec![sockets])?,
        None => setup::bind(config, packet_bytes)?,
    };
    let mtu = setup::inner_mtu(config, &endpoints)?;
    let endpoint = endpoints.into_iter().next().context("no worker")?;
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let of_worker = WorkerWaker::Card(Arc::clone(&wake));
    let (control, ends) = orders::queues(Waker::default(), of_worker);
    let changes = (0..).zip(&config.peers).map(|(number, peer)| addition(number, peer)).collect();
    let (done, _) = oneshot();
    control.orders.send(Order::Apply(Batch { changes, done }));
    let publisher = Publisher::new(Arc::new(Page::default()), endpoint.now());
    let first = CardWorker {
        number: 0,
        endpoint,
        queues: Queues::new(Vec::new())?,
        card: setup::card_config(config, mtu)?,
        ends,
        publisher,
        wake,
        interface: config.interface.name.clone(),
        taken: None,
    };
    Ok((first, Orders(control)))
}

/// As [`card_worker`], for a worker that takes over from another process: it waits for
/// [`Orders::begin`].
///
/// # Errors
/// An error of the operating system.
pub fn card_worker_that_takes_over(config: &Config) -> Result<(CardWorker, Orders)> {
    let (first, orders) = card_worker(config, None)?;
    Ok((CardWorker { taken: Some(Vec::new()), ..first }, orders))
}

fn addition(number: u32, settings: &PeerSettings) -> Change {
    let peer = NewPeer {
        transport: settings.transport(),
        allowed: Vec::new(),
        express: settings.express,
        express_udp: settings.express_udp,
        cloud_host: settings.cloud_host.as_deref().map(Arc::from),
        page: Arc::new(PeerPage::new(1)),
    };
    Change::Add(PeerNumber(number), Box::new(peer))
}

impl Orders {
    /// Lets a worker move packets that takes over from another process.
    pub fn begin(&self) {
        self.0.orders.send(Order::Begin);
    }

    /// Makes the worker end.
    pub fn stop(&self) {
        self.0.orders.stop();
    }

    /// Returns the sockets of the worker, for another process. `work` makes the worker carry out
    /// its orders.
    ///
    /// # Errors
    /// An error of the operating system, or `work` carries out no order.
    pub fn sockets(&self, work: impl FnOnce()) -> Result<Vec<OwnedFd>> {
        let (done, answer) = oneshot();
        self.0.orders.send(Order::Descriptors(done));
        work();
        let descriptors = answer.recv_timeout(std::time::Duration::ZERO)?;
        Ok(descriptors?.sockets)
    }
}
