//! Creates the status of the card from the pages of figures, on the reader's thread.

use std::collections::BTreeMap;
use std::iter::zip;

use srd_card::Counters;
use srd_card::vpc::Cause;
use srd_net::clock;
use srd_proto::time::{Duration, Instant};
use srd_vpc::object::ExpressSpec;

use super::directory::{Directory, Listed, ListedHost, ListedInterface};
use super::figures::{
    DeviceFigures, Figures, InterfaceFigures, Totals, lost_between, take_interface,
};
use super::{Pages, Stale};
use crate::control::protocol::{Instance, Interface, PeerHost, Status, VhostUser};
use crate::interfaces::adapter::{QueueCounts, queues_max};
use crate::interfaces::gone;
use crate::interfaces::port::DEVICE_DROPS;
use crate::traffic::hosts::Contact;

/// Returns the status of the card of one worker, as that of the first one. `stale_s`: the age of
/// the figures, if they are older than the request.
pub(crate) fn status(pages: &Pages, stale_s: Stale) -> Status {
    let directory = pages.directory.get();
    let now = clock::now();
    let (totals, between) = totals(pages);
    let about = &directory.about;
    let mut drops: BTreeMap<String, u64> = causes(totals.drops).collect();
    let lost = pages.lost_names.with(&totals.lost);
    drops.extend(lost.map(|(why, packets)| (format!("lost: {why}"), packets)));
    let between = between.into_iter().filter(|_| about.has_transport);
    drops.extend(between.map(|(why, frames)| (of_transport(why), frames)));
    let edge_failed = pages.edge_failed.get();
    Status {
        host: about.host.clone(),
        scale: about.scale,
        internet: about.internet,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: about.began.map_or(0.0, |began| seconds(now, began)),
        began_unix_s: in_seconds(Duration::from_nanos(about.began_unix_ns)),
        cpu_s: in_seconds(clock::process_cpu()),
        tables: totals.tables,
        hosts: directory.hosts.iter().map(|of| host(of, now)).collect(),
        workers: 1,
        instances: directory
            .instances
            .iter()
            .map(|of| instance(&directory, of, totals.utilization))
            .collect(),
        drops,
        internet_gone: totals.is_edge_gone.then(|| gone::in_words(edge_failed.as_deref())),
        rules_restored: 0,
        warnings: Vec::new(),
        stale_s,
    }
}

/// Returns the name of a cause in the status. In a node, the causes of the interface count packets
/// of the interface, and no frame of an instance.
fn of_transport(why: &str) -> String {
    let of = if Counters::is_of_interface(why) { "interface" } else { "between hosts" };
    format!("{of}: {why}")
}

/// Returns the attributes and figures of an instance, as one of the first worker; `None` if there
/// is no instance of this name.
pub(crate) fn instance_of(pages: &Pages, name: &str) -> Option<Instance> {
    let directory = pages.directory.get();
    let (totals, _) = totals(pages);
    directory.instance(name).map(|of| instance(&directory, of, totals.utilization))
}

fn seconds(now: Instant, since: Instant) -> f64 {
    in_seconds(now.since(since))
}

fn in_seconds(duration: Duration) -> f64 {
    std::time::Duration::from_nanos(duration.as_nanos()).as_secs_f64()
}

/// Returns the figures of the whole card, and the numbers of packets that the transport to other
/// hosts has dropped, by cause.
fn totals(pages: &Pages) -> (Totals, Vec<(&'static str, u64)>) {
    pages.totals.read(|from| {
        let totals = Totals::take(from);
        let between = lost_between().map(|why| (why, from.take()));
        (totals, between.filter(|(_, frames)| *frames > 0).collect())
    })
}

/// Returns the causes for which at least one packet was dropped, with their numbers.
fn causes(drops: [u64; Cause::COUNT]) -> impl Iterator<Item = (String, u64)> {
    let all = zip(Cause::all(), drops).filter(|(_, packets)| *packets > 0);
    all.map(|(cause, packets)| (cause.name().to_owned(), packets))
}

fn host(of: &ListedHost, now: Instant) -> PeerHost {
    of.page.read(Contact::take).report(now, &of.name, of.at)
}

fn instance(directory: &Directory, of: &Listed, utilization: u64) -> Instance {
    let Listed { name, id, namespace, profile, .. } = of;
    let queues_max = usize::from(queues_max(&profile.instance));
    let read = |interface: &ListedInterface| {
        interface.row.page.read(|from| take_interface(from, queues_max))
    };
    let rows: Vec<_> = of.interfaces.iter().map(read).collect();
    let figures = rows.first().map(|(first, _)| first.instance).unwrap_or_default();
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let interfaces = zip(&of.interfaces, &rows).map(|(interface, (figures, queues))| {
        self::interface(directory, interface, figures, queues, utilization)
    });
    Instance {
        name: name.clone(),
        id: id.to_string(),
        instance_type: profile.instance.name.to_owned(),
        namespace: namespace.clone(),
        worker: 0,
        interfaces: interfaces.collect(),
        tracked: narrow(figures.tracked),
        untracked: narrow(figures.untracked),
        credits_bits: figures.credits_bits,
        bandwidth_bps: [profile.peak_bps(), profile.baseline_bps()],
        packets_per_second: profile.limits().packets_per_second,
        fragments_dropped: figures.fragments_dropped,
    }
}

fn interface(
    directory: &Directory,
    of: &ListedInterface,
    figures: &InterfaceFigures,
    queues: &[QueueCounts],
    utilization: u64,
) -> Interface {
    let eni = directory.file().and_then(|file| file.world.enis.get(&of.eni));
    let attachment = eni.and_then(|eni| eni.attachment.as_ref());
    let express = attachment.map(|of| of.express).unwrap_or_default();
    let DeviceFigures { is_connected, is_running, pairs, is_gone, .. } = figures.device;
    let vhost_user = of.socket.as_ref().filter(|_| figures.device.is_socket);
    let drops = zip(DEVICE_DROPS, figures.device.drops).filter(|(_, packets)| *packets > 0);
    let drops = drops.map(|(cause, packets)| (cause.to_owned(), packets));
    Interface {
        name: directory.eni_name(of.eni),
        id: of.eni.to_string(),
        device: of.device.name.clone(),
        mac: eni.map(|eni| eni.mac).unwrap_or_default().map(|byte| format!("{byte:02x}")).join(":"),
        addresses: of.device.addresses.iter().map(|(a, n)| format!("{a}/{n}")).collect(),
        counters: counters(figures, express, utilization, queues),
        drops: causes(figures.drops).chain(drops).collect(),
        vhost_user: vhost_user.map(|path| VhostUser {
            path: path.display().to_string(),
            connected: is_connected,
            running: is_running,
            pairs: usize::try_from(pairs).unwrap_or(usize::MAX),
        }),
        gone: is_gone.then(|| gone::in_words(of.row.failed.get().as_deref())),
    }
}

/// Returns the counters of an interface, in the order of `ethtool -S`. // V22
pub(crate) fn counters(
    figures: &InterfaceFigures,
    ExpressSpec { enabled, udp }: ExpressSpec,
    utilization: u64,
    queues: &[QueueCounts],
) -> Vec<(String, u64)> {
    let InterfaceFigures { counts, allowances, available, device, .. } = figures;
    let express = [
        ("ena_srd_mode", u64::from(enabled) | u64::from(udp) << 1),
        ("ena_srd_tx_pkts", counts.express_tx_packets),
        ("ena_srd_eligible_tx_pkts", counts.express_eligible_packets),
        ("ena_srd_rx_pkts", counts.express_rx_packets),
        ("ena_srd_resource_utilization", utilization),
    ];
    let packets = [
        ("tx_packets", counts.tx_packets),
        ("tx_bytes", counts.tx_bytes),
        ("rx_packets", counts.rx_packets),
        ("rx_bytes", counts.rx_bytes),
        ("judged_packets", counts.judged),
        ("mirrored_packets", counts.mirrored_packets),
        ("mirrored_bytes", counts.mirrored_bytes),
        ("mirror_dropped_packets", counts.mirror_dropped),
    ];
    let overruns = queues.iter().map(|queue| queue.rx_overruns).sum();
    let overruns = device.is_kernel.then_some(("rx_overruns", overruns));
    let all = allowances.ethtool(*available).into_iter().chain(express).chain(allowances.ours());
    let all = all.chain(packets).chain(overruns).map(|(name, value)| (name.to_owned(), value));
    let queues = queues.iter().enumerate().flat_map(|(number, of)| {
        [
            (format!("queue_{number}_tx_cnt"), of.tx_packets),
            (format!("queue_{number}_tx_bytes"), of.tx_bytes),
            (format!("queue_{number}_rx_cnt"), of.rx_packets),
            (format!("queue_{number}_rx_bytes"), of.rx_bytes),
        ]
    });
    all.chain(queues).collect()
}
