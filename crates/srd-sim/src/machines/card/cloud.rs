//! Instances of one subnet, each on a separate host, as the text of a `vpc.toml`.

use std::path::Path;
use std::sync::Arc;

use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::EniId;
use srd_vpc::object::World;

use crate::engine::node::HostId;

/// Host part of the IP address of host 0: EC2 reserves the first four addresses of a subnet.
pub(super) const FIRST: u32 = 10;

/// Description of instances in one subnet: types and rules. The first hosts have one sender each,
/// and the next host has the receiver.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Instance types of the senders and of the receiver.
    pub kinds: [&'static str; 2],
    /// Number of instances that send, each on a separate host.
    pub senders: u32,
    /// Whether the instances are in one cluster placement group.
    pub clustered: bool,
    /// Whether ENA Express is on for the interfaces.
    pub express: bool,
    /// Inbound rules of the security group, as phrases of a `vpc.toml`.
    pub ingress: &'static str,
    /// Outbound rules of the security group, as phrases of a `vpc.toml`.
    pub egress: &'static str,
    /// Time for which full credits carry the peak rate; `None` means the time of the instance
    /// type's profile.
    pub burst: Option<Duration>,
}

impl Pair {
    /// Returns the description of two instances of one type in one placement group. Their security
    /// group admits all packets.
    pub const fn of(kind: &'static str) -> Self {
        Self {
            kinds: [kind, kind],
            senders: 1,
            clustered: true,
            express: false,
            ingress: r#""all from 0.0.0.0/0""#,
            egress: r#""all to 0.0.0.0/0""#,
            burst: None,
        }
    }

    fn text(&self) -> String {
        let Self { clustered, express, ingress, egress, .. } = self;
        let placement = if *clustered { "placement = \"near\"\n" } else { "" };
        let mut text = format!(
            "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n\
             [subnet.main]\ncidr = \"10.0.0.0/24\"\n\
             [placement.near]\nstrategy = \"cluster\"\n\
             [group.main]\ningress = [{ingress}]\negress = [{egress}]\n"
        );
        let kinds = (0..self.senders).map(|_| self.kinds[0]).chain([self.kinds[1]]);
        for (host, kind) in (0_u32..).zip(kinds) {
            let address = crate::engine::nic::inner_address(HostId(host + FIRST));
            text += &format!(
                "[instance.i{host}]\ntype = \"{kind}\"\nhost = \"{}\"\n{placement}\
                 [interface.{host}]\nsubnet = \"main\"\naddress = [\"{address}\"]\n\
                 groups = [\"main\"]\ninstance = \"i{host}\"\nexpress = {express}\n",
                name_of(HostId(host))
            );
        }
        text
    }
}

/// Returns the name of a host in envelopes and rules.
pub(super) fn name_of(host: HostId) -> Arc<str> {
    format!("host{}", host.0).into()
}

/// Instances of one subnet, with all objects of their cloud.
#[derive(Clone, Debug)]
pub struct Cloud {
    world: World,
    senders: u32,
    profiles: [Profile; 2],
}

impl Cloud {
    /// Creates the objects for a description of instances.
    ///
    /// # Errors
    /// A description of the invalid phrase or type.
    pub fn new(pair: &Pair) -> Result<Self, String> {
        let file = srd_vpc_file::parse(&pair.text(), Path::new("the cloud of an experiment"));
        let world = file.map_err(|error| error.to_string())?.world;
        let profile = |kind: &str| {
            let profile = InstanceType::find(kind).map(Profile::of).map_err(|e| e.to_string())?;
            Ok::<_, String>(match pair.burst {
                Some(burst) => profile.with_burst(burst),
                None => profile,
            })
        };
        let [sender, receiver] = pair.kinds;
        let profiles = [profile(sender)?, profile(receiver)?];
        Ok(Self { world, senders: pair.senders, profiles })
    }

    /// Returns the profile (rates and limits) of the type of a host's instance.
    pub fn profile(&self, host: HostId) -> &Profile {
        &self.profiles[usize::from(host.0 >= self.senders)]
    }

    /// Returns the rules of the cloud, compiled for a host.
    pub fn rules(&self, host: HostId) -> Arc<Rules> {
        Arc::new(Rules::compile(&self.world, &name_of(host)))
    }

    /// Creates the card of a host, with its instance. Returns the card and the port of the
    /// instance.
    pub(super) fn card(&self, host: HostId, secret: Secret) -> (Card, PortId) {
        let mut card = Card::new(&name_of(host), self.rules(host), secret);
        let eni = self.eni(host);
        let guests = [Guest { eni, timeouts: Timeouts::DEFAULT }];
        let ports = card.add_instance(Instant::ZERO, self.profile(host), &guests);
        (card, ports[0])
    }

    fn eni(&self, host: HostId) -> EniId {
        let address = crate::engine::nic::inner_address(HostId(host.0 + FIRST));
        let mut enis = self.world.enis.iter();
        let found = enis.find(|(_, eni)| eni.ipv4.first() == Some(&address));
        *found.expect("each host has an interface").0
    }
}
