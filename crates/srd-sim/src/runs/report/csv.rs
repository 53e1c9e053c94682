//! Output of flow records as CSV, with a line for each flow.

use std::fmt::Write as _;

use crate::runs::run::FlowRecord;

/// Returns the records of flows as CSV, with a header. A time is empty if its event did not happen.
pub fn flows_csv(flows: &[FlowRecord]) -> String {
    let mut csv =
        String::from("id,src,dst,bytes,start_us,fct_us,ideal_us,delivered_bytes,failed,damaged\n");
    let time = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:.3}"));
    for flow in flows {
        let FlowRecord { id, src, dst, delivered_bytes, failed, damaged, .. } = flow;
        let bytes = flow.bytes.map_or_else(String::new, |b| b.to_string());
        let (start, fct) = (time(flow.start_us), time(flow.fct_us));
        let _ = writeln!(
            csv,
            "{id},{src},{dst},{bytes},{start},{fct},{:.3},{delivered_bytes},{failed},{damaged}",
            flow.ideal_us
        );
    }
    csv
}
