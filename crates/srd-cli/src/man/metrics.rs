//! The man page about all metrics, derived from the text that `/metrics` serves.

use clap_mangen::roff::{Roff, bold, italic, roman};

/// A metric, as described in OpenMetrics text.
#[derive(PartialEq, Eq, Debug, Default)]
struct Family {
    name: String,
    kind: String,
    meaning: String,
    /// Names of the labels, in the order of the text.
    labels: Vec<String>,
}

/// Parses the metrics of an OpenMetrics text, in its order.
fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        let entry = |words: &str| words.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        if let Some((name, meaning)) = line.strip_prefix("# HELP ").and_then(entry) {
            families.push(Family { name, meaning, ..Family::default() });
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(entry)
            && let Some(family) = families.last_mut().filter(|of| of.name == name)
        {
            family.kind = kind;
        } else if let Some((name, rest)) = line.split_once('{')
            && let Some(family) = families.last_mut().filter(|of| of.labels.is_empty())
        {
            // The sample of a counter has a suffix after the name of the metric.
            family.name = name.to_owned();
            let labels = rest.split("\",").filter_map(|label| label.split_once('='));
            family.labels = labels.map(|(label, _)| label.to_owned()).collect();
        }
    }
    families
}

/// Returns the man page about all metrics.
pub(super) fn page(version: &str) -> String {
    let mut roff = Roff::default();
    roff.control("SH", ["NAME"]);
    roff.text([roman("srd-metrics - metrics of overlays and cards")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        roman("With "),
        bold("[metrics]"),
        roman(" in its configuration file, "),
        bold("srd up"),
        roman(" and "),
        bold("srd card up"),
        roman(" serve these metrics at "),
        italic("/metrics"),
        roman(" as OpenMetrics text, which Prometheus reads. Counters begin at zero when the "),
        roman("program starts. Counters of the ENA driver have the names and the type (unknown) "),
        roman("that exporters give them on EC2."),
    ]);
    let parts = [
        ("METRICS OF THE INTERFACE AND ITS PEERS", srd_daemon::metrics::sample()),
        ("METRICS OF INSTANCES", srd_guest::metrics_sample()),
    ];
    for (title, text) in parts {
        roff.control("SH", [title]);
        for family in families(&text) {
            roff.control("TP", []);
            let labels = format!("{{{}}}", family.labels.join(", "));
            // Each queue of an interface has this metric, with the queue's number in the name.
            let name = family.name.replace("queue_0_", "queue_N_");
            roff.text([bold(name), roman(" "), italic(labels), roman(format!(" {}", family.kind))]);
            roff.text([roman(family.meaning)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("srd-up(1), srd-card-up(1), srd.toml(5)")]);
    format!(".TH SRD-METRICS 7 \"\" \"OpenSRD {version}\" OpenSRD\n{}", roff.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_exported_name_its_kind_its_labels_and_its_meaning() {
        let text = "# HELP srd_drops Packets dropped, by reason.\n# TYPE srd_drops counter\n\
                    srd_drops_total{device=\"srd0\",reason=\"a, b\"} 2\n# EOF\n";
        let family = Family {
            name: "srd_drops_total".into(),
            kind: "counter".into(),
            meaning: "Packets dropped, by reason.".into(),
            labels: vec!["device".into(), "reason".into()],
        };
        assert_eq!(families(text), [family]);
    }

    #[test]
    fn every_metric_of_both_programs_is_complete() {
        let all = [srd_daemon::metrics::sample(), srd_guest::metrics_sample()];
        let all: Vec<Family> = all.iter().flat_map(|text| families(text)).collect();
        assert!(all.len() > 100, "{} families", all.len());
        for of in &all {
            assert!(!of.kind.is_empty() && !of.labels.is_empty(), "{of:?}");
        }
    }
}
