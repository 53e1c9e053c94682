//! For every region that requests can create, filters see the values that descriptions show.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::field::{Condition, found};
use super::list::Listing;
use super::source::Source;
use super::{group, instance, interface, subnet};
use crate::project::generate::Maker;
use crate::state::{Object, Table};

/// Returns all texts that a condition gets.
fn texts(see: impl Fn(Condition<'_>) -> bool) -> BTreeSet<String> {
    let texts = RefCell::new(BTreeSet::new());
    see(&|text| {
        texts.borrow_mut().insert(text.to_owned());
        false
    });
    texts.into_inner()
}

/// Compares the values that filters see with those of the descriptions. Returns their number.
fn check<T: Object>(listing: &Listing, table: &Table<T>, source: &Source<'_, T>) -> usize {
    let mut count = 0;
    for object in table.iter() {
        let view = source.view(object);
        assert_eq!(view[listing.id], object.id());
        for (name, path) in listing.filters {
            let path: Vec<&str> = path.split('.').collect();
            let shown = texts(|condition| found(&view, &path, condition));
            let seen = texts(|condition| source.has(object, &path, condition));
            assert_eq!(seen, shown, "{name} of {}", object.id());
            count += shown.len();
        }
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn filters_see_what_descriptions_show(seed: u64) {
        let region = &Maker::new(seed).make().region;
        let interfaces = check(&interface::LISTING, &region.interfaces, &interface::source(region));
        let instances = check(&instance::LISTING, &region.instances, &instance::source(region));
        let subnets = check(&subnet::LISTING, &region.subnets, &subnet::source(region));
        let groups = check(&group::LISTING, &region.groups, &group::source(region));
        prop_assert!([interfaces, instances, subnets, groups].iter().all(|count| *count > 10));
    }
}
