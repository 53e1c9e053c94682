//! Changes of rules, and the verdicts that they make invalid (V4).

use alloc::sync::Arc;

use srd_vpc::compile::{Concern, Concerned, Rules};
use srd_vpc::id::EniId;

use super::{Card, Port};
use crate::track::Key;
use crate::vpc::tables::epochs::Since;
use crate::vpc::tables::flow::Flow;

impl Card {
    /// Replaces the rules of the card. After the call, no packet passes by the old rules, neither a
    /// new packet nor one that waits for a limit (V4). Verdicts that do not depend on the change
    /// stay valid; to find these, the card compares both sets of rules once.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        let concern = self.rules.concern(&rules);
        self.set_rules_that_concern(rules, &concern);
    }

    /// Replaces the rules of the card if the caller has already determined what the change
    /// concerns.
    pub fn set_rules_that_concern(&mut self, rules: Arc<Rules>, concern: &Concern) {
        self.rules = rules;
        for port in &mut self.ports {
            port.vpc = self.rules.vpc_of(port.eni).unwrap_or(port.vpc);
        }
        self.forget(concern);
        let now = self.epochs.now();
        let changed = |port: &&mut Port| match concern {
            Concern::Everything => true,
            Concern::These(concerned) => {
                concerned.ways.contains(&port.eni) || concerned.groups.contains(&port.eni)
            }
        };
        self.ports.iter_mut().filter(changed).for_each(|port| port.changed = now);
    }

    /// Makes verdicts invalid, although no rule has changed.
    pub(super) fn forget(&mut self, concern: &Concern) {
        match concern {
            Concern::These(concerned) if !self.ends.are_too_many() => {
                self.forget_concerned(concerned);
            }
            Concern::These(concerned) => {
                self.forget_verdicts();
                concerned.addresses.iter().for_each(|address| self.epochs.concern(*address));
            }
            Concern::Everything => self.forget_verdicts(),
        }
    }

    /// Makes all verdicts invalid. Each verdict contains the number of the last change before it,
    /// so the cost does not depend on the number of flows.
    pub(super) fn forget_verdicts(&mut self) {
        let anew = self.epochs.begin();
        self.forget_all(anew);
    }

    /// Makes all verdicts invalid. `anew` states that the kept numbers of changes begin anew; then
    /// the verdicts of each flow are removed.
    fn forget_all(&mut self, anew: bool) {
        if anew {
            self.instances.iter_mut().for_each(|instance| instance.flows.each(Flow::forget));
        }
        let since = Since::all(self.epochs.now());
        self.ports.iter_mut().for_each(|port| port.since = since);
        self.ends.clear();
    }

    /// Invalidates the verdicts that depend on the changed interfaces, groups and addresses.
    fn forget_concerned(&mut self, Concerned { ways, groups, addresses }: &Concerned) {
        if ways.is_empty() && groups.is_empty() && addresses.is_empty() {
            return;
        }
        if self.epochs.begin() {
            return self.forget_all(true);
        }
        let now = self.epochs.now();
        let port_of = |eni: &EniId| self.by_eni.get(eni).copied();
        for port in ways.iter().filter_map(port_of) {
            self.ports[port.0 as usize].since = Since::all(now);
        }
        for port in groups.iter().filter_map(port_of) {
            self.ports[port.0 as usize].since.groups = now;
        }
        addresses.iter().for_each(|address| self.epochs.concern(*address));
    }

    /// Returns the number of the last change of rules that concerns a flow of an interface. Unlike
    /// the result of [`Card::since`], this is never a change that made verdicts invalid for another
    /// cause, such as a new interface on this host.
    pub(in crate::vpc) fn changed(&self, port: &Port, key: &Key) -> u64 {
        port.changed.max(self.epochs.of_remote(key))
    }

    /// Returns the numbers of the last changes that concern a flow of an interface.
    #[inline]
    pub(in crate::vpc) fn since(&self, port: &Port, key: &Key) -> Since {
        port.since.and(self.epochs.of_remote(key))
    }
}
