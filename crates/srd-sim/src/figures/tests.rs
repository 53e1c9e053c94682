//! Tests of the figures in their quick form, and of the paper's figure 3.

use super::*;
use crate::runs::run::RunResult;

#[test]
fn every_figure_has_its_charts_numbers_and_sentences() {
    let mut drawn = Vec::new();
    for figure in figures(true).unwrap() {
        let results = run::run_all(figure.jobs(), 1, &|_, _| {});
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let one = figure.draw(&results);
        let of_each = figure.number == 4;
        let transports = if of_each { &ENDLESS[..] } else { &ENDING[..] };
        assert_eq!(one.ours.len(), transports.len(), "{:?}", one.ours);
        assert_eq!(one.charts.len(), if of_each { transports.len() } else { 1 });
        for (n, transport) in transports.iter().enumerate() {
            let name = transport.name();
            let svg = &one.charts[if of_each { n } else { 0 }].text;
            // A chart of one transport has it in its subtitle, and the other charts have a line for
            // each transport.
            let shown = if of_each { format!("{name}, seed 1") } else { format!("{name}: ") };
            assert!(svg.contains("</svg>") && svg.contains(&shown), "no `{shown}` in {svg}");
            assert!(one.ours[n].starts_with(&format!("{name}: ")), "{:?}", one.ours);
            assert!(one.table.text.contains(name), "{}", one.table.text);
        }
        assert!(one.table.text.lines().count() > transports.len(), "{}", one.table.text);
        drawn.push((figure, one));
    }
    let numbers: Vec<u8> = drawn.iter().map(|(figure, _)| figure.number).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6]);
    let page = index_html(&drawn);
    for (figure, one) in &drawn {
        assert!(one.charts.iter().all(|chart| page.contains(&chart.name)));
        assert!(page.contains(&one.table.name) && page.contains(figure.title));
    }
}

/// In an earlier version, a sentence about the slowest flow did not contain the number of
/// unfinished flows.
#[test]
fn regression_unfinished_flows_are_told() {
    let figure = figures(true).unwrap().remove(0);
    let mut result = run::run(&figure.jobs()[0]).unwrap();
    result.unfinished = 3;
    let sentence = figure.draw(&[result]).ours.remove(0);
    assert!(sentence.ends_with("; 3 flows did not finish"), "{sentence}");
}

/// Returns the completion times of all flows of a transport in milliseconds, in ascending order.
fn times_ms(results: &[RunResult], transport: Transport) -> Vec<f64> {
    let of = results.iter().filter(|result| result.transport == transport.name());
    let flows = of.flat_map(|result| &result.flow_records);
    let mut times: Vec<f64> =
        flows.map(|flow| flow.fct_us.expect("every flow is done") / 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Returns the value below which `share` percent of the times are.
fn percentile(times: &[f64], share: usize) -> f64 {
    times[(times.len() * share).div_ceil(100).max(1) - 1]
}

/// The paper's figure 3 has 48 flows of 2 MB, and TCP's minimum timeout is 50 ms. The whole
/// distribution is in docs/perf-notes.md.
#[test]
fn figure_3_has_the_distribution_of_the_paper() {
    let figure = figures(false).unwrap().into_iter().find(|figure| figure.number == 3).unwrap();
    assert!(figure.jobs.iter().all(|job| job.scenario.tcp.rto_min_us == Some(50_000.0)));
    let results = run::run_all(figure.jobs(), 2, &|_, _| {});
    let results: Vec<RunResult> = results.into_iter().map(Result::unwrap).collect();
    let ideal_ms = results[0].ideal_us / 1e3;
    for transport in ENDING {
        let times = times_ms(&results, transport);
        assert_eq!(times.len(), 5 * 48);
        let shares = [1, 10, 25, 50, 75, 80, 90, 95, 99, 100];
        let [first, .., median, _, _, ninety, ninety_five, ninety_nine, last] =
            shares.map(|share| percentile(&times, share));
        let told = shares.map(|share| format!("{:.2}", percentile(&times, share))).join(" ");
        let late = times.iter().filter(|ms| **ms > 50.0).count();
        println!("{}: {told} ms, {late} of 240 above 50 ms; ideal {ideal_ms:.2}", transport.name());
        match transport {
            // Some flows end one timeout of 50 ms later. The others end before, at different times.
            Transport::Tcp => {
                assert!((5..=20).contains(&late), "{late}: {told}");
                assert!(ninety_nine > 50.0 && ninety_five < 50.0 && last < 100.0, "{told}");
                assert!(ninety > 1.3 * ideal_ms && median < 0.7 * ideal_ms, "{told}");
            }
            // All flows end at nearly the same time, when the link has sent all bytes.
            Transport::Srd | Transport::Express => {
                assert!(first > ideal_ms && last < 1.03 * ideal_ms, "{told}");
            }
            // The messages of one sender are sent one after the other.
            _ => assert!(last < 1.03 * ideal_ms, "{told}"),
        }
    }
}

/// In the paper's figure 6, flows of TCP that meet on an uplink take longer. The average of TCP is
/// 1.5 times the ideal, and SRD's slowest flow is below this average. The whole distribution is in
/// docs/perf-notes.md.
#[test]
fn figure_6_has_collisions_for_tcp_and_none_for_srd() {
    let figure = figures(false).unwrap().into_iter().find(|figure| figure.number == 6).unwrap();
    // The messages of `efa` and three of the five seeds are left out, because they take time.
    let is_run = |job: &&Job| job.seed <= 2 && job.transport != Transport::Efa;
    let jobs: Vec<Job> = figure.jobs().iter().filter(is_run).cloned().collect();
    let results = run::run_all(&jobs, 2, &|_, _| {});
    let results: Vec<RunResult> = results.into_iter().map(Result::unwrap).collect();
    let ideal_ms = results[0].ideal_us / 1e3;
    let over_ideal = |transport| -> Vec<f64> {
        times_ms(&results, transport).into_iter().map(|ms| ms / ideal_ms).collect()
    };
    let tcp = over_ideal(Transport::Tcp);
    assert_eq!(tcp.len(), 2 * 8);
    let mean = tcp.iter().sum::<f64>() / tcp.len() as f64;
    println!("tcp: mean {mean:.3}, {tcp:.3?}");
    // Two flows on one uplink have half of it each.
    assert!(mean > 1.2 && percentile(&tcp, 100) > 1.9, "{mean} {tcp:?}");
    for transport in [Transport::Srd, Transport::Express] {
        let ours = over_ideal(transport);
        println!("{}: {ours:.3?}", transport.name());
        assert!(ours[0] > 1.0 && percentile(&ours, 50) < 1.05, "{ours:?}");
        assert!(percentile(&ours, 100) < mean, "{ours:?} {mean}");
    }
}
