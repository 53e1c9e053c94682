use super::*;
use crate::arrival::{Arrival, Flow};
use crate::model::Model;
use crate::watch::{Event, Settings, Watch};
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
            let (way, flow) = (Way::In, Flow { outer: key, inner: None });
            let bytes = 2500 + u32::try_from(burst).unwrap();
            watch.arrive(&Arrival { time, way, flow, bytes, packets: 1, fragment: false });
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
    let html = page([&session].into_iter(), &gathered);
    srd_chart::check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    for text in ["limit 100.0 Mb/s", "mean over 60 s", "largest bin", "&lt;if&gt;", "of 300"] {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("<svg").count(), 1 + PICTURES_MAX);
    let empty = page(std::iter::empty(), &Gathered::default());
    assert!(empty.contains("There were none."));
}
