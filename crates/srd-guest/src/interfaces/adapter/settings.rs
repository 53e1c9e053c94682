//! Settings of the device of an interface, and the changes that the instance type allows.

use anyhow::{Context, Result, bail};
use srd_card::device::moderation;
use srd_card::device::ring::{RingSize, Side};
use srd_card::device::rss::{self, Hash, KEY_BYTES, Rss, TABLE_ENTRIES};
use srd_card::device::steering::{FlowType, Rule, RuleError, Steering};
use srd_card::profile::{Generation, InstanceType, queues};
use srd_proto::time::Duration;

use crate::control::protocol::{DeviceChange, DeviceRule, DeviceSettings, RssTable};

/// Longest delay of interrupts in microseconds. // D8
const RX_USECS_MAX: u32 = 10_000;
/// Number of entries for n-tuple rules that an instance has for each of its vCPUs. // D9
const RULE_PLACES_PER_VCPU: u32 = 8;

/// Limits of the instance that a change of a device must not exceed.
pub(crate) struct DeviceLimits<'a> {
    pub(crate) kind: &'a InstanceType,
    /// Index of the interface among the interfaces of its instance.
    pub(crate) eni: u16,
    /// Queue pairs of the instance's other interfaces.
    pub(crate) queues_of_others: u32,
}

/// Returns an empty table of n-tuple rules for an instance of a type. The table has no entries if
/// the type does not support such rules.
pub(crate) fn steering_of(kind: &InstanceType) -> Steering {
    let has = kind.generation().is_some_and(Generation::has_steering);
    Steering::new(if has { kind.vcpus * RULE_PLACES_PER_VCPU } else { 0 })
}

/// Returns the maximum number of queue pairs of an interface of a type.
pub(crate) fn queues_max(kind: &InstanceType) -> u16 {
    // An error for more queues contains the maximum.
    queues::queues(kind, Some(u16::MAX)).unwrap_or_else(|error| error.most)
}

impl DeviceSettings {
    /// Returns the settings of a new device of an instance type. Interrupts are not delayed. // D8
    pub(crate) fn of(kind: &InstanceType) -> Self {
        let queues = queues::queues(kind, None).unwrap_or(1);
        // D4: Rings
        let has_large_entries = kind.generation().is_some_and(Generation::has_large_tx_entries);
        let tx_ring =
            if has_large_entries { RingSize::TX_WIDE_DEFAULT } else { RingSize::TX_DEFAULT };
        Self {
            queues,
            tx_ring: tx_ring.entries(),
            rx_ring: RingSize::RX_DEFAULT.entries(),
            rss_key: None,
            rss_table: Rss::new(Hash::default(), queues).table().to_vec(),
            rss_table_is_set: false,
            rx_usecs: 0,
            adaptive_rx: false,
        }
    }

    /// Returns the settings after a change, and the instance's n-tuple rules after it. If any part
    /// of the change fails, nothing changes (D10).
    pub(crate) fn changed(
        &self,
        rules: &Steering,
        change: &DeviceChange,
        facts: &DeviceLimits<'_>,
    ) -> Result<(Self, Steering)> {
        // D10: Atomic change of a device
        let (mut next, mut steering) = (self.clone(), rules.clone());
        if let Some(asked) = change.queues {
            next.set_queues(asked, facts)?;
        }
        if let Some(entries) = change.tx_ring {
            next.tx_ring = RingSize::new(Side::Tx, entries).map_err(anyhow::Error::msg)?.entries();
        }
        if let Some(entries) = change.rx_ring {
            next.rx_ring = RingSize::new(Side::Rx, entries).map_err(anyhow::Error::msg)?.entries();
        }
        if let Some(key) = &change.rss_key {
            next.set_key(key, facts.kind)?;
        }
        next.set_table(change.rss.as_ref())?;
        if let Some(usecs) = change.rx_usecs {
            if usecs > RX_USECS_MAX {
                bail!("--rx-usecs {usecs}; give a number from 0 to {RX_USECS_MAX}");
            }
            next.rx_usecs = usecs;
        }
        next.adaptive_rx = change.adaptive_rx.unwrap_or(next.adaptive_rx);
        next.steer(&mut steering, change, facts)?;
        Ok((next, steering))
    }

    fn set_queues(&mut self, asked: u16, facts: &DeviceLimits<'_>) -> Result<()> {
        let kind = facts.kind;
        let name = kind.name;
        self.queues = queues::queues(kind, Some(asked))
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("an instance of type {name}"))?;
        let all = facts.queues_of_others + u32::from(asked);
        if let Some(most) = kind.queues_max.filter(|most| all > u32::from(*most)) {
            bail!(
                "an instance of type {name} has at most {most} queue pairs, and its other \
                 interfaces have {}: take some from these first",
                facts.queues_of_others
            );
        }
        Ok(())
    }

    fn set_key(&mut self, key: &str, kind: &InstanceType) -> Result<()> {
        if key == "default" {
            self.rss_key = None;
            return Ok(());
        }
        let accelerated = kind.family().trim_start_matches(char::is_alphabetic).contains('n');
        let has = kind.generation().is_some_and(|generation| {
            generation >= Generation::V4 || (generation == Generation::V3 && accelerated)
        });
        if !has {
            bail!("the adapter of a {} has a fixed key: Nitro v4 and later take one", kind.name);
        }
        let bytes = key_of(key).with_context(|| {
            format!("--rss-key takes {KEY_BYTES} bytes in hexadecimal with colons, or `default`")
        })?;
        self.rss_key = Some(bytes.map(|byte| format!("{byte:02x}")).join(":"));
        Ok(())
    }

    fn set_table(&mut self, rss: Option<&RssTable>) -> Result<()> {
        let equal = |queues| Rss::new(Hash::default(), queues).table().to_vec();
        match rss {
            Some(RssTable::Default) => self.rss_table_is_set = false,
            Some(RssTable::Equal(0)) => bail!("--rss-equal 0; give at least one queue"),
            Some(RssTable::Equal(of)) => {
                (self.rss_table, self.rss_table_is_set) = (equal(*of), true);
            }
            Some(RssTable::Weights(weights)) if weights.len() > usize::from(self.queues) => bail!(
                "--rss-weights has {} weights, and the device has {} queues: give a weight for \
                 each queue at most, or more --queues where the type has them",
                weights.len(),
                self.queues
            ),
            Some(RssTable::Weights(weights)) => {
                let table = rss::weighted(weights);
                let table = table.context("--rss-weights needs a weight that is more than zero")?;
                (self.rss_table, self.rss_table_is_set) = (table.to_vec(), true);
            }
            None => {}
        }
        if !self.rss_table_is_set {
            self.rss_table = equal(self.queues);
        }
        self.rss()
            .map(drop)
            .context("the indirection table: give --rss-equal, --rss-weights or --rss-default, too")
    }

    fn steer(
        &self,
        steering: &mut Steering,
        change: &DeviceChange,
        facts: &DeviceLimits<'_>,
    ) -> Result<()> {
        let DeviceLimits { kind, eni, .. } = *facts;
        if steering.size() == 0 && !(change.rules.is_empty() && change.delete_rules.is_empty()) {
            bail!(
                "a {} takes no n-tuple rules: types of Nitro v5 and later do, as c7gn, c8g or c8i",
                kind.name
            );
        }
        for location in &change.delete_rules {
            let is_own = steering.rules(eni).any(|(at, _)| at == *location);
            if !is_own || !steering.remove(*location) {
                bail!("there is no rule at loc {location} of this device");
            }
        }
        for rule in &change.rules {
            let set = steering.set(rule.location, eni, self.queues, rule.to_rule()?);
            set.map_err(|error: RuleError| anyhow::anyhow!("`{rule}`: {error}"))?;
        }
        let beyond = steering.rules(eni).find(|(_, rule)| rule.queue >= self.queues);
        if let Some((location, rule)) = beyond {
            bail!(
                "the rule at loc {location} names queue {}: delete it, or keep as many queues",
                rule.queue
            );
        }
        Ok(())
    }

    /// Returns the hash and its indirection table, which select the queue of a packet.
    pub(crate) fn rss(&self) -> Result<Rss> {
        let key = self.rss_key.as_deref().map(|key| key_of(key).context("the key"));
        let hash = key.transpose()?.map_or(Hash::default(), Hash::Reversed);
        let mut rss = Rss::new(hash, self.queues);
        let table: Result<[u16; TABLE_ENTRIES], _> = self.rss_table.as_slice().try_into();
        let table = table.with_context(|| format!("a table has {TABLE_ENTRIES} entries"))?;
        rss.set_table(table).map_err(anyhow::Error::msg)?;
        Ok(rss)
    }

    /// Returns the size of the ring for packets to the instance.
    pub(crate) fn rx_ring_size(&self) -> RingSize {
        RingSize::new(Side::Rx, self.rx_ring).unwrap_or(RingSize::RX_DEFAULT)
    }

    /// Returns the delay (moderation) of interrupts; `None` if interrupts are not delayed.
    pub(crate) fn moderation(&self) -> Option<moderation::Settings> {
        let rx = Duration::from_micros(self.rx_usecs.into());
        let settings = moderation::Settings { rx, adaptive_rx: self.adaptive_rx, ..<_>::default() };
        (self.adaptive_rx || self.rx_usecs > 0).then_some(settings)
    }
}

impl DeviceRule {
    pub(crate) fn to_rule(&self) -> Result<Rule> {
        let flow_type = match self.flow_type.as_str() {
            "tcp4" => FlowType::Tcp4,
            "udp4" => FlowType::Udp4,
            "tcp6" => FlowType::Tcp6,
            "udp6" => FlowType::Udp6,
            "ip4" => FlowType::Ip4,
            "ip6" => FlowType::Ip6,
            other => bail!("`{other}` is no flow type"),
        };
        let block = |text: &Option<String>| {
            let block = text.as_ref().map(|text| text.parse().with_context(|| text.clone()));
            block.transpose()
        };
        Ok(Rule {
            flow_type,
            source: block(&self.source)?,
            destination: block(&self.destination)?,
            source_port: self.source_port,
            destination_port: self.destination_port,
            queue: self.queue,
        })
    }

    pub(crate) fn of(location: u32, rule: &Rule) -> Self {
        let flow_type = match rule.flow_type {
            FlowType::Tcp4 => "tcp4",
            FlowType::Udp4 => "udp4",
            FlowType::Tcp6 => "tcp6",
            FlowType::Udp6 => "udp6",
            FlowType::Ip4 => "ip4",
            FlowType::Ip6 => "ip6",
        };
        Self {
            flow_type: flow_type.to_owned(),
            source: rule.source.map(|block| block.to_string()),
            destination: rule.destination.map(|block| block.to_string()),
            source_port: rule.source_port,
            destination_port: rule.destination_port,
            queue: rule.queue,
            location: Some(location),
        }
    }
}

fn key_of(text: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: &str, change: &DeviceChange) -> Result<(DeviceSettings, Steering), String> {
        let kind = InstanceType::find(kind).unwrap();
        let facts = DeviceLimits { kind: &kind, eni: 0, queues_of_others: 0 };
        let settings = DeviceSettings::of(&kind);
        let changed = settings.changed(&steering_of(&kind), change, &facts);
        changed.map_err(|error| format!("{error:#}"))
    }

    fn rules(rules: &[&str]) -> Vec<DeviceRule> {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn a_device_is_as_its_type_has_it() {
        let of = |name| DeviceSettings::of(&InstanceType::find(name).unwrap());
        let settings = of("c7i.large");
        assert_eq!((settings.queues, settings.tx_ring, settings.rx_ring), (2, 512, 1024));
        // The talk NET402 (AWS re:Invent 2024) shows the defaults of a c6i: 512 of at most 1,024,
        // and 1,024 of at most 16,384.
        for (name, tx_ring) in
            [("c6i.8xlarge", 512), ("c8g.8xlarge", 512), ("c5n.large", 1024), ("c5.large", 1024)]
        {
            assert_eq!((of(name).tx_ring, of(name).rx_ring), (tx_ring, 1024), "{name}");
        }
        assert_eq!(settings.rss_table[..4], [0, 1, 0, 1]);
        assert!(settings.moderation().is_none());
        assert_eq!(queues_max(&InstanceType::find("m6i.8xlarge").unwrap()), 32);
        assert_eq!(steering_of(&InstanceType::find("c7i.large").unwrap()).size(), 0);
        assert_eq!(steering_of(&InstanceType::find("c8g.8xlarge").unwrap()).size(), 256);
    }

    #[test]
    fn changes_are_whole_and_within_bounds() {
        let all = DeviceChange {
            queues: Some(4),
            tx_ring: Some(256),
            rx_ring: Some(16_384),
            rss: Some(RssTable::Weights(vec![1, 0, 0, 3])),
            rules: rules(&["tcp4 dst-port 22 action 1 loc 0", "tcp4 action 2 loc 1"]),
            rx_usecs: Some(20),
            ..DeviceChange::default()
        };
        let (settings, steering) = change("c8g.8xlarge", &all).unwrap();
        assert_eq!((settings.queues, settings.tx_ring, settings.rx_ring), (4, 256, 16_384));
        assert_eq!((settings.rss_table[31], settings.rss_table[32]), (0, 3));
        assert_eq!(steering.rules(0).count(), 2);
        assert_eq!(settings.moderation().unwrap().rx, Duration::from_micros(20));
        // Fewer queues than the highest queue in the table or in a rule.
        let kind = InstanceType::find("c8g.8xlarge").unwrap();
        let facts = DeviceLimits { kind: &kind, eni: 0, queues_of_others: 0 };
        let fewer = DeviceChange { queues: Some(2), ..DeviceChange::default() };
        let said = format!("{:#}", settings.changed(&steering, &fewer, &facts).unwrap_err());
        assert!(said.contains("--rss-default") && said.contains("no queue 3"), "{said}");
        let fewer = DeviceChange { rss: Some(RssTable::Default), ..fewer };
        let said = format!("{:#}", settings.changed(&steering, &fewer, &facts).unwrap_err());
        assert!(said.contains("the rule at loc 1 names queue 2"), "{said}");
        let fewer = DeviceChange { delete_rules: vec![1], ..fewer };
        let (two, _) = settings.changed(&steering, &fewer, &facts).unwrap();
        assert_eq!((two.queues, two.rss_table[..3].to_vec()), (2, vec![0, 1, 0]));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        let none = DeviceChange::default;
        let said = |kind: &str, asked: DeviceChange| change(kind, &asked).unwrap_err();
        let text = said("c7i.large", DeviceChange { queues: Some(3), ..none() });
        assert!(text.contains("c7i.large: an ENI with 3 queue pairs; give a number from 1 to 2"));
        let text = said("c7i.large", DeviceChange { tx_ring: Some(2048), ..none() });
        assert!(text.contains("power of two from 256 to 1024"), "{text}");
        let text = said("c7i.large", DeviceChange { rx_ring: Some(100), ..none() });
        assert!(text.contains("from 256 to 16384"), "{text}");
        let text = said("c7i.large", DeviceChange { rx_usecs: Some(10_001), ..none() });
        assert!(text.contains("from 0 to 10000"), "{text}");
        let rule = DeviceChange { rules: rules(&["tcp4 action 0 loc 0"]), ..none() };
        assert!(said("c7i.large", rule.clone()).contains("takes no n-tuple rules"));
        let rule = DeviceChange { rules: rules(&["tcp4 action 0"]), ..none() };
        assert!(said("c8g.8xlarge", rule).contains("add `loc N`"));
        let rule = DeviceChange { rules: rules(&["tcp4 action 0 loc 256"]), ..none() };
        assert!(said("c8g.8xlarge", rule).contains("from 0 to 255"));
        let key = DeviceChange { rss_key: Some("12:34".into()), ..none() };
        assert!(said("c8g.8xlarge", key.clone()).contains("40 bytes"));
        assert!(said("c5.large", key).contains("fixed key"));
        let weights = DeviceChange { rss: Some(RssTable::Weights(vec![0])), ..none() };
        assert!(said("c7i.large", weights).contains("more than zero"));
        let weights = DeviceChange { rss: Some(RssTable::Weights(vec![1, 1, 1])), ..none() };
        assert!(said("c7i.large", weights).contains("has 3 weights, and the device has 2 queues"));
        let deleted = DeviceChange { delete_rules: vec![3], ..none() };
        assert!(said("c8g.8xlarge", deleted).contains("no rule at loc 3"));
        let kind = InstanceType::find("m6i.8xlarge").unwrap();
        let facts = DeviceLimits { kind: &kind, eni: 1, queues_of_others: 40 };
        let asked = DeviceChange { queues: Some(32), ..none() };
        let settings = DeviceSettings::of(&kind);
        let error = settings.changed(&steering_of(&kind), &asked, &facts).unwrap_err();
        assert!(error.to_string().contains("at most 64 queue pairs"), "{error}");
    }
}
