use super::*;
use proptest::prelude::*;
use srd_card::FlowKey;
use std::collections::BTreeMap;

fn flow(n: u32) -> Flow {
    let (source, destination) = (n.to_be_bytes().into(), [10, 0, 0, 2].into());
    Flow { outer: FlowKey { source, destination, protocol: 17, ports: (1, 2) }, inner: None }
}

fn carried(bytes: u64) -> Carried {
    Carried { bytes, packets: 1, queued: 0, dropped: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// No figure is too high, and no figure is too low by more than the error bound. The bound is a
    /// small part of all bytes. All of this holds for packets that are counted in one table, and
    /// for packets that are counted in several tables that are merged.
    #[test]
    fn figures_are_within_their_bound(
        seed in any::<u64>(),
        flows in 1_u32..20_000,
        parts in 1_usize..6,
    ) {
        let mut rng = srd_proto::rng::Rng::new(seed);
        let mut truth: BTreeMap<Flow, u64> = BTreeMap::new();
        let mut whole = TopFlows::default();
        for _ in 0..parts {
            let mut part = TopFlows::default();
            for _ in 0..10_000 {
                // Some flows carry far more than others.
                let n = rng.next_u64() % u64::from(flows) % (1 + rng.next_u64() % u64::from(flows));
                let bytes = 64 + rng.next_u64() % 9000;
                let flow = flow(u32::try_from(n).unwrap());
                // Packets arrive in runs.
                for _ in 0..=rng.next_u64() % 3 {
                    part.add(&flow, &carried(bytes));
                    *truth.entry(flow).or_default() += bytes;
                }
                prop_assert!(part.len() < FLOWS_MAX);
            }
            whole.absorb(&mut part);
            prop_assert!(part.is_empty() && whole.len() < FLOWS_MAX);
        }
        let total: u64 = truth.values().sum();
        prop_assert!(whole.error_bytes() <= total / FLOWS_KEPT as u64);
        let found: BTreeMap<Flow, Carried> = whole.largest().into_iter().collect();
        for (flow, bytes) in &truth {
            let seen = found.get(flow).map_or(0, |carried| carried.bytes);
            prop_assert!(seen <= *bytes && seen + whole.error_bytes() >= *bytes);
        }
        if truth.len() < FLOWS_MAX {
            let exact = whole.error_bytes() == 0 && found.len() == truth.len();
            prop_assert!(exact && whole.forgotten() == 0);
        }
    }
}

#[test]
fn a_run_counts_wherever_it_is_looked_at() {
    let mut top = TopFlows::default();
    for _ in 0..3 {
        top.add(&flow(1), &carried(10));
    }
    let of = |top: &TopFlows| top.largest()[0].1;
    assert_eq!((of(&top).bytes, of(&top).packets), (30, 3));
    top.add(&flow(2), &carried(1));
    top.add(&flow(1), &carried(10));
    top.add(&flow(1), &carried(10));
    assert_eq!((of(&top).bytes, of(&top).packets), (50, 5));
    let mut whole = TopFlows::default();
    whole.add(&flow(1), &carried(5));
    whole.add(&flow(1), &carried(5));
    whole.absorb(&mut top);
    assert_eq!((of(&whole).bytes, whole.len(), top.len()), (60, 2, 0));
    whole.add(&flow(1), &carried(1));
    whole.clear();
    whole.add(&flow(1), &carried(2));
    assert_eq!(of(&whole).bytes, 2);
}

#[test]
fn what_goes_is_counted_and_the_largest_comes_first() {
    let mut top = TopFlows::default();
    for n in 0..u32::try_from(FLOWS_MAX).unwrap() {
        top.add(&flow(n), &carried(u64::from(n) + 1));
    }
    assert_eq!(top.largest()[0].0, flow(2047));
    assert_eq!((top.len(), top.forgotten()), (FLOWS_KEPT, FLOWS_KEPT as u64));
    assert_eq!(top.error_bytes(), FLOWS_KEPT as u64);
    top.clear();
    assert_eq!((top.len(), top.error_bytes(), top.forgotten()), (0, 0, 0));
}
