//! The state of reading a file: its text, and the names and objects that have been read so far.

use std::collections::BTreeMap;
use std::ops::Range;

use srd_config::{ConfigError, Source};
use srd_vpc::id::{EniId, InstanceId, SubnetId, VpcId};
use srd_vpc::object::World;
use toml::Spanned;

use super::document::{Document, Maybe, Named};
use super::names::{Kind, Names};
use super::phrase::Wrong;
use super::taken::Taken;

pub(crate) type Result<T> = std::result::Result<T, ConfigError>;

/// A file that is being read.
pub(crate) struct Build<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) names: Names,
    pub(crate) world: World,
    /// Address blocks of subnets.
    pub(crate) subnet_blocks: Taken<SubnetId>,
    /// Addresses and delegated prefixes of interfaces.
    pub(crate) addresses: Taken<EniId>,
    /// The interface at each device index of each instance.
    pub(crate) devices: BTreeMap<(InstanceId, u8), EniId>,
}

impl<'a> Build<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self {
            source,
            names: Names::default(),
            world: World::default(),
            subnet_blocks: Taken::default(),
            addresses: Taken::default(),
            devices: BTreeMap::new(),
        }
    }
}

impl Build<'_> {
    /// Returns the name of an interface.
    pub(crate) fn interface_name(&self, id: EniId) -> &str {
        self.names.name(Kind::Interface, id.0).unwrap_or_default()
    }

    /// Collects the names of all objects. It runs before any object is created, so that objects may
    /// refer to each other in any order.
    pub(crate) fn name_all(&mut self, document: &Document) -> Result<()> {
        fn all<T>(build: &mut Build<'_>, kind: Kind, named: &Named<T>) -> Result<()> {
            for name in named.keys() {
                build.check_name(name)?;
                build.names.add(kind, name.as_ref());
            }
            Ok(())
        }
        all(self, Kind::Vpc, &document.vpc)?;
        all(self, Kind::Subnet, &document.subnet)?;
        all(self, Kind::RouteTable, &document.route_table)?;
        all(self, Kind::Acl, &document.acl)?;
        all(self, Kind::Group, &document.group)?;
        all(self, Kind::PrefixList, &document.prefix_list)?;
        all(self, Kind::Interface, &document.interface)?;
        all(self, Kind::Instance, &document.instance)?;
        all(self, Kind::Placement, &document.placement)?;
        all(self, Kind::InternetGateway, &document.internet_gateway)?;
        all(self, Kind::EgressOnlyGateway, &document.egress_only_gateway)?;
        all(self, Kind::NatGateway, &document.nat_gateway)?;
        all(self, Kind::ElasticAddress, &document.elastic_address)?;
        all(self, Kind::Peering, &document.peering)?;
        all(self, Kind::Endpoint, &document.endpoint)?;
        all(self, Kind::FlowLog, &document.flow_log)?;
        all(self, Kind::MirrorFilter, &document.mirror_filter)?;
        all(self, Kind::MirrorTarget, &document.mirror_target)?;
        all(self, Kind::MirrorSession, &document.mirror_session)?;
        all(self, Kind::DhcpOptions, &document.dhcp_options)
    }

    /// Checks the characters and the length of a name, which has to be one word of a phrase and of
    /// a command line.
    pub(crate) fn check_name(&self, name: &Spanned<String>) -> Result<()> {
        let text = name.as_ref();
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !text.is_empty() && text.len() <= 255 && text.chars().all(good) {
            return Ok(());
        }
        let what = format!("`{text}` can be no name");
        Err(self.error(name.span(), what, "at most 255 letters, digits, '-', '_' and '.'"))
    }

    pub(crate) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        self.source.error(Some(span), what, remedy)
    }

    pub(crate) fn wrong(&self, span: Range<usize>, wrong: Wrong) -> ConfigError {
        self.error(span, wrong.what, wrong.remedy)
    }

    /// Returns the number in the identifier of the object with this name.
    pub(crate) fn find(&self, kind: Kind, name: &Spanned<String>) -> Result<u64> {
        self.find_at(kind, name.as_ref(), name.span())
    }

    /// Returns the number in the identifier of an object whose name is part of a phrase at `span`.
    pub(crate) fn find_at(&self, kind: Kind, name: &str, span: Range<usize>) -> Result<u64> {
        self.names.number(kind, name).ok_or_else(|| {
            let word = kind.word();
            let remedy = match self.names.similar(kind, name) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => format!("add a table [{word}.{name}]"),
            };
            self.error(span, format!("there is no {word} `{name}`"), remedy)
        })
    }

    /// Returns the cloud with this name; without a name, the only cloud of the file.
    pub(crate) fn vpc(&self, named: &Maybe<String>, table: Range<usize>) -> Result<VpcId> {
        if let Some(name) = named {
            return self.find(Kind::Vpc, name).map(VpcId);
        }
        let mut all = self.world.vpcs.keys();
        match (all.next(), all.next()) {
            (Some(vpc), None) => Ok(*vpc),
            (None, _) => Err(self.error(table, "there is no [vpc]", "add [vpc.main] with `cidr`")),
            _ => {
                let what = "there are several clouds, and this names none";
                Err(self.error(table, what, "add vpc = \"NAME\""))
            }
        }
    }
}
