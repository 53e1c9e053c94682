use super::*;
use crate::needs::Directed;

fn needs() -> Needs {
    let backlog = || crate::analysis::ladder::Backlog::new(1e6, 4e12);
    Needs {
        headroom: 0.2,
        bandwidth_bps: Directed { r#in: 1e9, out: 1e9 },
        mean_bps: Directed { r#in: 0.1e9, out: 0.1e9 },
        gateway_bps: Directed::default(),
        packets_per_second: 100_000.0,
        entries: [1000, 500, 100],
        fastest: None,
        flow_over: [[0; 2]; 3],
        backlog: [backlog(), backlog()],
    }
}

fn of(name: &str) -> InstanceType {
    InstanceType::find(name).unwrap()
}

fn judged(needs: &Needs, name: &str) -> Verdict {
    judge(needs, &of(name), FlowKind::Exterior)
}

#[test]
fn each_limit_alone_makes_a_type_insufficient_and_is_named_first() {
    let name = "c7i.large";
    assert!(judged(&needs(), name).sufficient);
    type Change = fn(&mut Needs);
    let cases: [(&str, Change); 8] = [
        (limit::IN, |needs| needs.bandwidth_bps.r#in = 13e9),
        (limit::OUT, |needs| needs.bandwidth_bps.out = 13e9),
        (limit::BASELINE_IN, |needs| needs.mean_bps.r#in = 0.8e9),
        (limit::BASELINE_OUT, |needs| needs.mean_bps.out = 0.8e9),
        (limit::PACKETS, |needs| needs.packets_per_second = 1.1e6),
        (limit::TRACKING, |needs| needs.entries[0] = 136_813),
        (limit::GATEWAY_OUT, |needs| needs.gateway_bps.out = 5.1e9),
        (limit::FLOW, |needs| needs.flow_over[0] = [1, 1]),
    ];
    for (limit, change) in cases {
        let mut needs = needs();
        change(&mut needs);
        let verdict = judged(&needs, name);
        assert!(!verdict.sufficient, "{limit}");
        assert_eq!(verdict.first().limit, limit);
        assert!(verdict.first().exceeded);
        assert_eq!(verdict.lacks().count(), 1, "{limit}");
    }
}

#[test]
fn headroom_is_short_before_a_limit_is_exceeded() {
    let mut needs = needs();
    needs.packets_per_second = 900_000.0;
    let verdict = judged(&needs, "c7i.large");
    assert!(!verdict.sufficient && !verdict.first().exceeded && verdict.first().short);
    needs.headroom = 0.1;
    assert!(judged(&needs, "c7i.large").sufficient);
}

#[test]
fn types_of_the_sixth_version_have_shorter_idle_times() {
    let mut needs = needs();
    needs.entries = [200_000, 100_000, 50_000];
    assert!(!judged(&needs, "c7i.large").sufficient);
    assert!(judged(&needs, "c8i.large").sufficient);
}

#[test]
fn a_mean_above_the_baseline_lasts_as_long_as_credits() {
    let mut needs = needs();
    needs.mean_bps.out = 1.781e9;
    let verdict = judged(&needs, "c7i.large");
    // Full credits are (12.5 - 0.781) Gb/s x 300 s. They are spent at 1 Gb/s more than is earned.
    assert!((3515.0..3517.0).contains(&verdict.credits_s.unwrap()), "{verdict:?}");
}

#[test]
fn the_next_smaller_type_of_a_family_is_shown_with_what_it_lacks() {
    let mut needs = needs();
    needs.packets_per_second = 3e6;
    let filter = Filter { families: vec!["c7i".into()], ..Filter::default() };
    let choices = choose(&needs, &filter, None);
    let choice = &choices.families[0];
    assert_eq!(choice.sufficient.name, "c7i.2xlarge");
    let smaller = choice.smaller.as_ref().unwrap();
    assert_eq!((smaller.name, smaller.first().limit), ("c7i.xlarge", limit::PACKETS));
    let filter = Filter { types: vec!["c7i.xlarge".into()], ..filter };
    assert_eq!(choose(&needs, &filter, None).asked[0].name, "c7i.xlarge");
    let filter = Filter { vcpus: 16, ..filter };
    assert_eq!(choose(&needs, &filter, None).families[0].sufficient.name, "c7i.4xlarge");
    let filter = Filter { enis: 15, ..filter };
    assert_eq!(choose(&needs, &filter, None).families[0].sufficient.name, "c7i.16xlarge");
}

#[test]
fn a_fast_flow_goes_where_it_may_and_only_express_types_give_it_more() {
    let mut needs = needs();
    needs.flow_over = [[9, 9], [0, 0], [0, 0]];
    assert_eq!(flows_to(&needs), (FlowKind::ClusterPlacementGroup, false));
    needs.flow_over = [[9, 9], [9, 9], [0, 0]];
    let choices = choose(&needs, &Filter::default(), None);
    assert_eq!(choices.flows_to, FlowKind::Express);
    assert!(!choices.families.is_empty());
    for choice in &choices.families {
        assert!(of(choice.sufficient.name).ena_srd, "{}", choice.sufficient.name);
    }
    needs.flow_over = [[9, 9], [9, 9], [0, 9]];
    let choices = choose(&needs, &Filter::default(), None);
    assert!(choices.flow_too_fast && choices.families.is_empty());
}

#[test]
fn no_type_is_slower_than_the_slowest_rung() {
    assert!(InstanceType::all().all(|of| of.baseline_bps >= 1_000_000));
}

#[test]
fn families_without_a_sufficient_type_show_what_the_nearest_one_lacks() {
    let mut needs = needs();
    needs.bandwidth_bps.out = 45e9;
    let filter = Filter { families: vec!["c7i".into(), "c7gn".into()], ..Filter::default() };
    let choices = choose(&needs, &filter, None);
    assert_eq!(choices.families.len(), 1);
    let [nearest] = &choices.nearest[..] else { panic!("{:?}", choices.nearest) };
    assert!(nearest.name.starts_with("c7i.") && nearest.first().limit == limit::OUT);
    needs.bandwidth_bps.out = 1e14;
    let choices = choose(&needs, &Filter::default(), None);
    assert!(choices.families.is_empty());
    assert_eq!(choices.nearest.len(), NEAREST);
    assert!(choices.nearest.iter().all(|of| of.lacks().any(|of| of.limit == limit::OUT)));
}

#[test]
fn filters_may_let_no_type_through() {
    assert!(Filter::default().has_types());
    assert!(!Filter { vcpus: 99_999, ..Filter::default() }.has_types());
}
