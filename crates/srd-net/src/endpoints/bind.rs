//! Binds an endpoint: opens the sockets of the options, and makes an engine over the sockets of
//! each shard.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use srd_proto::{Config, Ecn, Epoch, Node};

use crate::back_ends::io::PacketIo;
use crate::back_ends::udp::UdpIo;
use crate::clock;
use crate::endpoints::engine::Engine;
use crate::endpoints::options::{BindError, BindOptions, UdpOptions};
use crate::interfaces::link;

/// Length of a greeting in bytes. A greeting is the sender's identity, which the first packets of a
/// context carry in plain mode.
#[allow(clippy::cast_possible_truncation)] // the value is 16
const GREETING_BYTES: u16 = srd_proto::wire::greeting::GREETING_BYTES as u16;

impl BindOptions {
    /// Opens the sockets that these options describe, and makes an engine that sends and receives
    /// by them.
    pub(crate) fn open(&self) -> Result<Engine<UdpIo>, BindError> {
        let (io, config) = self.open_io(1)?;
        only(engines(io, config, clock::epoch())?)
    }

    /// Opens the sockets that these options describe, and makes one engine for each shard of a
    /// node. A shard is the part of a node that one thread processes.
    pub(crate) fn open_shards(&self, shards: u8) -> Result<Vec<Engine<UdpIo>>, BindError> {
        let (io, config) = self.open_io(shards)?;
        engines(io, config, clock::epoch())
    }

    /// Opens the sockets of each shard. Returns the sockets, and the configuration with the values
    /// that were read from the network interface.
    pub(crate) fn open_io(&self, shards: u8) -> Result<(Vec<UdpIo>, Config), BindError> {
        let mut config = self.config.clone();
        let ip = self.address;
        if self.packet_bytes_from_interface {
            let passes = link::local_packet_bytes(ip).map_err(BindError::Io)?;
            // The first packets of a context without encryption carry a greeting in addition to the
            // datagram.
            let greeting = if config.protection.is_on() { 0 } else { GREETING_BYTES };
            config.packet_bytes_max = passes.saturating_sub(greeting);
        }
        if self.link_rate_from_interface && config.link_rate_bps == 0 {
            config.link_rate_bps = link::local_rate(ip).unwrap_or(0);
        }
        let mut options = UdpOptions::new(SocketAddr::new(ip, self.base_port));
        options.paths = config.paths;
        options.paths_anywhere = self.paths_anywhere;
        options.ecn = if config.ecn { Ecn::Ect } else { Ecn::NotEct };
        options.poll = self.poll;
        options.receive_buffer_bytes = self.receive_buffer_bytes;
        options.send_buffer_bytes = self.send_buffer_bytes;
        options.segmentation = self.segmentation;
        Ok((UdpIo::open_shards(&options, shards).map_err(BindError::Io)?, config))
    }
}

/// Makes an engine with this configuration, which sends and receives by the back end `io`.
pub(crate) fn engine_over<I: PacketIo>(io: I, config: Config) -> Result<Engine<I>, BindError> {
    engine_of_run(io, config, clock::epoch())
}

/// Makes the engine of one run of an endpoint. The epoch identifies the run.
pub(crate) fn engine_of_run<I: PacketIo>(
    io: I,
    config: Config,
    epoch: Epoch,
) -> Result<Engine<I>, BindError> {
    only(engines(vec![io], config, epoch)?)
}

/// Makes the engines of the shards of a node, one over each back end. All back ends receive at the
/// same address.
pub(crate) fn engines<I: PacketIo>(
    ios: Vec<I>,
    config: Config,
    epoch: Epoch,
) -> Result<Vec<Engine<I>>, BindError> {
    let mut config = config;
    if let Some(first) = ios.first() {
        config.local_port = first.local_address().port();
        config.local_addresses = first.local_addresses();
    }
    // If file descriptors are scarce, the back ends can have different numbers of paths. The node
    // uses the smallest number.
    config.paths = ios.iter().map(PacketIo::paths).min().unwrap_or(config.paths);
    let shards = u8::try_from(ios.len()).unwrap_or(u8::MAX);
    let node = Arc::new(Node::new(config, epoch, shards).map_err(BindError::Config)?);
    let engine = |(shard, io): (u8, I)| {
        let seed = clock::seed().map_err(BindError::Io)?;
        let core = srd_proto::Endpoint::of_node(node.clone(), shard, seed, io.clock().now());
        Ok(Engine::new(core, io))
    };
    (0..shards).zip(ios).map(engine).collect()
}

fn only<I>(engines: Vec<Engine<I>>) -> Result<Engine<I>, BindError> {
    let none = || BindError::Io(io::Error::other("there is no back end"));
    engines.into_iter().next().ok_or_else(none)
}
