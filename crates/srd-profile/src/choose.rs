//! Choice of an EC2 instance type: the types that suffice for the traffic, the limit that each
//! other type exceeds first, and the kind of destination that the flows need.
//!
//! A type is sufficient if each of its limits is above the need of the traffic with headroom. The
//! limits are the bandwidth of each direction (the peak for bursts, the baseline for the mean,
//! credits for the rates between), packets per second, tracked connections, gateways, and the
//! ceiling of one flow.

use serde::Serialize;
use srd_card::limits::FlowKind;
use srd_card::limits::gateway_bps;
use srd_card::profile::catalogue::{Ena, Hypervisor};
use srd_card::profile::{InstanceType, Origin, Profile};
use srd_card::track::timeouts::Timeouts;

use crate::analysis::flows::KINDS;
use crate::needs::Needs;

/// Largest number of types that are listed as nearest if no type suffices.
const NEAREST: usize = 3;

/// Types in which the user is interested.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Families, such as `c7i`; if empty, all families.
    pub families: Vec<String>,
    /// Names of types whose verdicts are reported even if they do not suffice.
    pub types: Vec<String>,
    /// Least number of vCPUs.
    pub vcpus: u32,
    /// Least number of network interfaces that can be attached.
    pub enis: u16,
}

/// Use of one limit of an instance type by the traffic.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Use {
    /// Name of the limit.
    pub limit: &'static str,
    /// Amount that the traffic needs, without headroom, in the unit of the limit.
    pub needs: f64,
    /// Amount that the instance type has.
    pub has: f64,
    /// Whether the limit is an estimate, because EC2 does not publish it.
    pub estimate: bool,
    /// Whether the need exceeds the limit.
    pub exceeded: bool,
    /// Whether the need with headroom exceeds the limit.
    pub short: bool,
}

impl Use {
    /// Returns the share of the limit that the traffic needs, without headroom; 1 is the whole
    /// limit.
    pub fn share(&self) -> f64 {
        if self.has > 0.0 { self.needs / self.has } else { f64::INFINITY }
    }
}

/// Verdict on an instance type: whether it suffices for the traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Name of the type.
    pub name: &'static str,
    /// Number of vCPUs of the type.
    pub vcpus: u32,
    /// Memory of the type in MiB.
    pub memory_mib: u64,
    /// Whether each limit is above the need of the traffic with headroom.
    pub sufficient: bool,
    /// Time in seconds for which full credits would last at the mean rate; `None` if the mean is
    /// not above the baseline.
    pub credits_s: Option<f64>,
    /// Use of each limit. Limits that do not suffice come first; otherwise the most used limit
    /// comes first.
    pub uses: Vec<Use>,
}

impl Filter {
    /// Whether at least one type passes the filter.
    pub fn has_types(&self) -> bool {
        InstanceType::all().any(|of| passes(&of, self))
    }
}

impl Verdict {
    /// Returns the use of the limit that the traffic exceeds first, or comes nearest to.
    pub fn first(&self) -> &Use {
        &self.uses[0]
    }

    /// Returns the largest needed share among the limits that do not suffice; zero if all suffice.
    fn missing(&self) -> f64 {
        self.lacks().map(Use::share).fold(0.0, f64::max)
    }

    /// Returns the limits that do not suffice.
    pub fn lacks(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(|used| used.short)
    }
}

/// An instance family with its smallest sufficient type and the next smaller type.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// Name of the family.
    pub family: &'static str,
    /// The smallest type that suffices.
    pub sufficient: Verdict,
    /// The next smaller type of the family; `None` if the sufficient type is the smallest.
    pub smaller: Option<Verdict>,
}

/// The instance types that suffice, or come near to it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choices {
    /// Kind of destination (outside, cluster placement group, ENA Express) for which flows are
    /// judged.
    #[serde(serialize_with = "kind_name")]
    pub flows_to: FlowKind,
    /// Whether a flow exceeds its ceiling even with the kind of destination in `flows_to`, so that
    /// no type suffices.
    pub flow_too_fast: bool,
    /// The families that have a sufficient type; the family whose sufficient type is the smallest
    /// comes first.
    pub families: Vec<Choice>,
    /// For families without a sufficient type, the type that comes nearest. If the filter names
    /// families, the list has all of these; otherwise it is empty, or has the nearest few types if
    /// no family has a sufficient type.
    pub nearest: Vec<Verdict>,
    /// Verdicts on the types that the filter names.
    pub asked: Vec<Verdict>,
    /// Number of types that pass the filter and were judged.
    pub looked_at: usize,
}

fn kind_name<S: serde::Serializer>(kind: &FlowKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match kind {
        FlowKind::Exterior => "exterior",
        FlowKind::ClusterPlacementGroup => "group",
        FlowKind::Express => "express",
    })
}

/// Names of the limits of an instance type.
pub(crate) mod limit {
    pub(crate) const IN: &str = "bandwidth in";
    pub(crate) const OUT: &str = "bandwidth out";
    pub(crate) const BASELINE_IN: &str = "baseline in";
    pub(crate) const BASELINE_OUT: &str = "baseline out";
    pub(crate) const CREDITS_IN: &str = "credits in";
    pub(crate) const CREDITS_OUT: &str = "credits out";
    pub(crate) const PACKETS: &str = "packets a second";
    pub(crate) const TRACKING: &str = "tracked connections";
    pub(crate) const GATEWAY_IN: &str = "gateway in";
    pub(crate) const GATEWAY_OUT: &str = "gateway out";
    pub(crate) const FLOW: &str = "one flow";
}

/// Returns the kind of destination with the lowest ceiling of one flow that no flow exceeds. Also
/// returns whether a flow exceeds even the highest ceiling.
pub fn flows_to(needs: &Needs) -> (FlowKind, bool) {
    let fits = |kind: usize| needs.flow_over[kind][1] == 0;
    match (0..KINDS.len()).find(|kind| fits(*kind)) {
        Some(kind) => (KINDS[kind], false),
        None => (FlowKind::Express, true),
    }
}

impl Choices {
    /// Removes all types from the result. Without packets, every type would suffice, so there is no
    /// basis for a choice.
    pub(crate) fn without_packets(self) -> Self {
        let (families, nearest, asked) = Default::default();
        Self { families, nearest, asked, ..self }
    }
}

/// Judges all types that pass the filter. `kind` is the kind of destination of the flows; `None`
/// means the kind that the flows need.
pub fn choose(needs: &Needs, filter: &Filter, kind: Option<FlowKind>) -> Choices {
    let (least, too_fast) = flows_to(needs);
    let kind = kind.unwrap_or(least);
    let mut types: Vec<InstanceType> =
        InstanceType::all().filter(|instance| passes(instance, filter)).collect();
    types.sort_by_key(|of| (of.family(), of.vcpus, of.memory_mib, of.peak_bps, of.name));
    let verdicts: Vec<Verdict> = types.iter().map(|of| judge(needs, of, kind)).collect();
    let (mut families, mut nearest) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < types.len() {
        let family = types[at].family();
        let end = at + types[at..].iter().take_while(|of| of.family() == family).count();
        if let Some(found) = (at..end).find(|n| verdicts[*n].sufficient) {
            let smaller = (found > at).then(|| verdicts[found - 1].clone());
            families.push(Choice { family, sufficient: verdicts[found].clone(), smaller });
        } else {
            let least = verdicts[at..end].iter().min_by(|a, b| a.missing().total_cmp(&b.missing()));
            nearest.extend(least.cloned());
        }
        at = end;
    }
    families.sort_by_key(|choice| {
        let Verdict { vcpus, memory_mib, name, .. } = choice.sufficient;
        (vcpus, memory_mib, name)
    });
    nearest.sort_by(|a, b| a.missing().total_cmp(&b.missing()));
    if filter.families.is_empty() {
        nearest.truncate(if families.is_empty() { NEAREST } else { 0 });
    }
    let asked = filter
        .types
        .iter()
        .filter_map(|name| InstanceType::find(name).ok())
        .map(|of| judge(needs, &of, kind))
        .collect();
    let looked_at = types.len();
    Choices { flows_to: kind, flow_too_fast: too_fast, families, nearest, asked, looked_at }
}

/// Whether a type is judged: it must pass the filter, and be a Nitro type with the elastic network
/// adapter.
fn passes(of: &InstanceType, filter: &Filter) -> bool {
    let family = filter.families.is_empty() || filter.families.iter().any(|f| f == of.family());
    let current = of.ena != Ena::Unsupported && of.hypervisor != Hypervisor::Xen;
    family && current && of.vcpus >= filter.vcpus && of.enis_max >= filter.enis
}

/// Returns the verdict on a type, for flows to the given kind of destination.
pub fn judge(needs: &Needs, of: &InstanceType, kind: FlowKind) -> Verdict {
    let profile = Profile::of(*of);
    let more = 1.0 + needs.headroom;
    let plain = |limit, needs: f64, has: u64, estimate| {
        let has = has as f64;
        let (exceeded, short) = (needs > has, needs * more > has);
        Use { limit, needs, has, estimate, exceeded, short }
    };
    let (peak, baseline) = (of.peak_bps, of.baseline_bps);
    let gateway = gateway_bps(of.vcpus, peak, 1);
    let entries = needs.entries[usize::from(of.timeouts == Timeouts::DEFAULT_V6)] as f64;
    let is_estimate = |origin| origin == Origin::Estimate;
    let mut uses = vec![
        plain(limit::IN, needs.bandwidth_bps.r#in, peak, false),
        plain(limit::OUT, needs.bandwidth_bps.out, peak, false),
        plain(
            limit::PACKETS,
            needs.packets_per_second,
            profile.packets_per_second.value,
            is_estimate(profile.packets_per_second.origin),
        ),
        plain(
            limit::TRACKING,
            entries,
            profile.tracking_allowance.value,
            is_estimate(profile.tracking_allowance.origin),
        ),
        plain(limit::GATEWAY_IN, needs.gateway_bps.r#in, gateway, false),
        plain(limit::GATEWAY_OUT, needs.gateway_bps.out, gateway, false),
        flow(needs, of, kind),
    ];
    let mut credits_s = None;
    if baseline < peak {
        uses.push(plain(limit::BASELINE_IN, needs.mean_bps.r#in, baseline, false));
        uses.push(plain(limit::BASELINE_OUT, needs.mean_bps.out, baseline, false));
        let full = (peak - baseline) as f64 * profile.burst.as_nanos() as f64 / 1e9;
        for (name, backlog) in
            [limit::CREDITS_IN, limit::CREDITS_OUT].into_iter().zip(&needs.backlog)
        {
            let missing = backlog.of(baseline as f64);
            let with_headroom = backlog.of(baseline as f64 / more) * more;
            let (exceeded, short) = (missing > full, with_headroom > full);
            uses.push(Use {
                limit: name,
                needs: missing,
                has: full,
                estimate: true,
                exceeded,
                short,
            });
        }
        let mean = needs.mean_bps.r#in.max(needs.mean_bps.out);
        credits_s = (mean > baseline as f64).then(|| full / (mean - baseline as f64));
    }
    // Limits that do not suffice come first; within each group, the more used limit comes first.
    uses.sort_by(|a, b| {
        let order = |of: &Use| (of.exceeded, of.short);
        order(b).cmp(&order(a)).then(b.share().total_cmp(&a.share()))
    });
    let sufficient = uses.iter().all(|used| !used.short);
    let (name, vcpus, memory_mib) = (of.name, of.vcpus, of.memory_mib);
    Verdict { name, vcpus, memory_mib, sufficient, credits_s, uses }
}

/// Returns the use of the ceiling of one flow. On a type without ENA Express, the ceiling of a
/// cluster placement group applies in its place.
fn flow(needs: &Needs, of: &InstanceType, kind: FlowKind) -> Use {
    let kind = match kind {
        FlowKind::Express if !of.ena_srd => FlowKind::ClusterPlacementGroup,
        kind => kind,
    };
    let index = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
    let [over, over_with_headroom] = needs.flow_over[index];
    Use {
        limit: limit::FLOW,
        needs: needs.fastest.map_or(0.0, |(_, bits)| bits as f64),
        has: kind.ceiling_bps(of.peak_bps, 1) as f64,
        estimate: false,
        exceeded: over > 0,
        short: over_with_headroom > 0,
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
