use super::*;
use crate::analysis::model::Model;
use crate::analysis::timeline::COLUMNS_MAX;
use crate::analysis::watch::{Event, Settings, Watch};
use crate::sources::arrival::{Arrival, Flow};
use srd_card::FlowKey;
use srd_proto::time::Instant;

#[test]
fn the_page_shows_bursts_averages_and_limit_and_is_well_formed() {
    let model = Model::of_rate(100_000_000, None);
    let mut watch = Watch::new("<if>", Settings::default(), &model, Instant::ZERO);
    let key = FlowKey {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        ports: (1, 2),
    };
    for burst in 0..300_u64 {
        for n in 0..200 {
            let time = Instant::from_nanos(burst * 200_000_000 + n * 100_000);
            let (way, flow) = (PacketDirection::In, Flow { outer: key, inner: None });
            let bytes = 2500 + u32::try_from(burst).unwrap();
            let (packets, packet_bytes, fragment) = (1, bytes, false);
            watch.arrive(&Arrival { time, way, flow, bytes, packets, packet_bytes, fragment });
        }
    }
    watch.finish(Instant::from_nanos(61_000_000_000));
    let mut gathered = Gathered::default();
    while let Some(event) = watch.next_event() {
        if let Event::Ended(burst) = event {
            gathered.add(&burst);
        }
    }
    assert_eq!((gathered.count, gathered.rows.len()), (300, ROWS_MAX));
    assert_eq!(gathered.worst.len(), PICTURES_MAX);
    let session = Session::new(watch, None, 0);
    let html = spaced(&page([&session].into_iter(), &gathered));
    srd_chart::check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    for text in [
        "limit of bandwidth 100.0 Mb/s",
        "limit of bandwidth in 100.0 Mb/s",
        "mean over 60 s",
        "largest bin",
        "&lt;if&gt;",
        "of 300",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("<figure>").count(), 1 + PICTURES_MAX);
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{html}"));
    assert!(
        at("<p class=\"verdict bad\">300 bursts; the worst, &lt;if&gt; in, lasted") < at("<h2>")
    );
    assert!(html.contains(">burst 1</text>"), "its time is marked");
    let empty = page(std::iter::empty(), &Gathered::default());
    assert!(empty.contains("There were no bursts"));
}

/// Replaces non-breaking spaces between numbers and units by spaces, so that tests can search for
/// them.
fn spaced(html: &str) -> String {
    html.replace('\u{a0}', " ")
}

/// Returns the analysis of one flow that sends 240 Mb/s for 20 ms, and its bursts. The bandwidth
/// limit is 1 Gb/s, and the ceiling of one flow is 50 Mb/s.
fn one_flow() -> (Watch, Vec<Burst>) {
    let model = Model::of_rate(1_000_000_000, None).with_flow_rate(50_000_000);
    let mut watch = Watch::new("eth7", Settings::default(), &model, Instant::ZERO);
    let outer = FlowKey {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        ports: (1, 2),
    };
    for n in 0..20_000 {
        let (time, way) = (Instant::from_nanos(n * 33_333), PacketDirection::Out);
        let (flow, bytes, packets) = (Flow { outer, inner: None }, 1000, 1);
        let (packet_bytes, fragment) = (bytes, false);
        watch.arrive(&Arrival { time, way, flow, bytes, packets, packet_bytes, fragment });
    }
    watch.end();
    let mut bursts = Vec::new();
    while let Some(event) = watch.next_event() {
        if let Event::Ended(burst) = event {
            bursts.push(*burst);
        }
    }
    assert_eq!(bursts.len(), 1);
    (watch, bursts)
}

/// Returns the page of [`one_flow`].
fn page_of_one_flow() -> String {
    let (watch, bursts) = one_flow();
    let mut gathered = Gathered::default();
    bursts.iter().for_each(|burst| gathered.add(burst));
    page([&Session::new(watch, None, 0)].into_iter(), &gathered)
}

#[test]
fn a_burst_is_drawn_beside_the_limit_that_it_exceeded() {
    let html = spaced(&page_of_one_flow());
    let burst = &html[html.find("The worst bursts").unwrap()..];
    assert!(burst.contains("limit of bandwidth of one flow 50.0 Mb/s"), "{burst}");
    assert!(!burst.contains("limit of bandwidth out 1.00 Gb/s"), "{burst}");
    // The facts of the burst are in one table, and the heading is not repeated as a caption.
    assert!(!burst.contains("<p>"), "{burst}");
    let between = |begin: &str, end: &str| {
        let rest = &burst[burst.find(begin).unwrap() + begin.len()..];
        rest[..rest.find(end).unwrap()].to_owned()
    };
    let (heading, caption) = (between("<h3>", "</h3>"), between("<figcaption>", "</figcaption>"));
    assert!(
        heading.starts_with("Burst 1: eth7 out at") && !caption.contains("eth7"),
        "{heading} {caption}"
    );
    let [peak, exceeded] =
        ["<td>peak</td>", "<td>exceeded</td><td>bandwidth of one flow of 50.0 Mb"];
    assert!(burst.contains(peak) && burst.contains(exceeded), "{burst}");
    // The mean over a second is drawn later than the mean over a minute, and its line has gaps.
    let [minute, second] = ["mean over the 66", "mean over the second"];
    let legend = |name: &str| burst.find(name).unwrap();
    assert!(legend(minute) < legend(second), "the second is drawn later");
    // The chart of the whole time also shows the exceeded limit, and the summary states by how much
    // it was exceeded.
    let before = &html[..html.find("The worst bursts").unwrap()];
    assert!(before.contains(">limit of bandwidth of one flow 50.0 Mb/s</text>"), "{before}");
    assert!(before.contains("times the limit of bandwidth of one flow (50.0 Mb/s)"), "{before}");
    assert!(html.contains("mean over 60 s") && html.contains("<td>largest minute</td>"), "{html}");
}

/// Regression: the chart had a point for each bin after the last packet. The page of an interface
/// that was idle for hours took all memory.
#[test]
fn regression_the_time_after_the_last_packet_has_few_points() {
    let (mut watch, _) = one_flow();
    watch.finish(Instant::from_nanos(100_000_000_000));
    let line = watch.timeline(PacketDirection::Out);
    let chart = overview(line, watch.settings().bin_ns, watch.seen_ns(), "");
    for line in &chart.lines {
        assert!(line.points.len() <= COLUMNS_MAX + 2, "{}: {}", line.label, line.points.len());
        let (end, rate) = *line.points.last().unwrap();
        assert!((end - 100.0).abs() < 0.2, "{}: {end}", line.label);
        assert!(rate < 0.1, "{}: {rate}", line.label);
    }
}

#[test]
fn regression_the_parts_of_a_long_burst_are_one_burst_in_the_sentence() {
    let mut gathered = Gathered::default();
    let (_, mut bursts) = one_flow();
    let burst = bursts.remove(0);
    gathered.add(&Burst { continues: true, ..burst.clone() });
    assert!(verdict(&gathered).starts_with("One burst, "), "{}", verdict(&gathered));
    gathered.add(&burst);
    let said = "One burst in 2 parts; the worst part, ";
    assert!(verdict(&gathered).starts_with(said), "{}", verdict(&gathered));
    gathered.add(&burst);
    let said = "2 bursts in 3 parts; the worst part, ";
    assert!(verdict(&gathered).starts_with(said), "{}", verdict(&gathered));
}

/// The table has a row for each part, so the page contains the number of parts that it shows.
#[test]
fn regression_the_page_says_that_it_shows_the_first_parts_only() {
    let mut gathered = Gathered::default();
    let (watch, bursts) = one_flow();
    for _ in 0..=ROWS_MAX {
        gathered.add(&Burst { continues: true, ..bursts[0].clone() });
    }
    let html = page([&Session::new(watch, None, 0)].into_iter(), &gathered);
    assert!(html.contains("The first 200 of 201."), "{html}");
}
