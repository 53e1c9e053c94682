//! Metrics for Prometheus, in the format OpenMetrics.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Request, Response, Status};

/// Type of the content of a response with metrics.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a request of a server that has only `/metrics`. `encode` writes the metrics.
pub fn answer(request: &Request, encode: impl FnOnce(&mut String) -> fmt::Result) -> Response {
    if request.path != "/metrics" {
        return Response::text(Status::NotFound, "there is /metrics");
    }
    let mut text = String::new();
    match encode(&mut text) {
        Ok(()) => Response::ok(CONTENT_TYPE, text),
        Err(error) => Response::text(Status::Unavailable, error.to_string()),
    }
}

/// Joins two texts with metrics to one. A family that both contain keeps the description of the
/// first text, and the samples of both.
pub fn joined(first: &str, second: &str) -> String {
    let mut families = Families::default();
    for line in first.lines().chain(second.lines()) {
        families.take(line);
    }
    families.text()
}

/// The families of metrics, in the order of their first appearance.
#[derive(Default)]
struct Families<'a> {
    all: Vec<Family<'a>>,
    places: BTreeMap<&'a str, usize>,
    /// Index of the family of the present lines, and whether it appears for the first time.
    present: Option<(usize, bool)>,
}

#[derive(Default)]
struct Family<'a> {
    description: Vec<&'a str>,
    samples: Vec<&'a str>,
}

impl<'a> Families<'a> {
    fn take(&mut self, line: &'a str) {
        let mut words = line.strip_prefix("# ").unwrap_or_default().split(' ');
        let name = match words.next() {
            Some("HELP" | "TYPE" | "UNIT") => words.next(),
            Some("EOF") => return self.present = None,
            _ => None,
        };
        if let Some(name) = name {
            let is_known = self.places.get(name).copied();
            let is_same = is_known.is_some() && is_known == self.present.map(|(place, _)| place);
            if !is_same {
                self.present = Some((is_known.unwrap_or(self.all.len()), is_known.is_none()));
            }
            if is_known.is_none() {
                self.places.insert(name, self.all.len());
                self.all.push(Family::default());
            }
        }
        let Some((place, is_new)) = self.present else { return };
        let family = &mut self.all[place];
        match name {
            Some(_) if is_new => family.description.push(line),
            Some(_) => {}
            None => family.samples.push(line),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in self.all.iter().flat_map(|of| of.description.iter().chain(&of.samples)) {
            text.push_str(line);
            text.push('\n');
        }
        text + "# EOF\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_both_texts_appear_once_with_the_samples_of_both() {
        let first = "# HELP a The first.\n# TYPE a counter\na_total{d=\"x\"} 1\n\
                     # HELP b Of one.\n# TYPE b gauge\nb 2\n# EOF\n";
        let second = "# HELP c Of the other.\n# TYPE c unknown\nc 3\n\
                      # HELP a The second.\n# TYPE a counter\na_total{d=\"y\"} 4\n# EOF\n";
        let wanted = "# HELP a The first.\n# TYPE a counter\na_total{d=\"x\"} 1\n\
                      a_total{d=\"y\"} 4\n# HELP b Of one.\n# TYPE b gauge\nb 2\n\
                      # HELP c Of the other.\n# TYPE c unknown\nc 3\n# EOF\n";
        assert_eq!(joined(first, second), wanted);
        assert_eq!(joined(first, "# EOF\n"), first);
        assert_eq!(joined("# EOF\n", first), first);
    }
}
