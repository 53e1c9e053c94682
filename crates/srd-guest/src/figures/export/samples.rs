//! Reads OpenMetrics text that the card has written: families with their samples.

/// A metric and its samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Family {
    /// Name of the metric, without the suffix `_total` of a counter.
    pub(super) name: String,
    /// Type of the metric, as `counter`.
    pub(super) kind: String,
    /// Meaning of the metric.
    pub(super) help: String,
    pub(super) samples: Vec<Sample>,
}

/// A value, and the labels of the object that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sample {
    /// Names and values of the labels, in the order of the text.
    pub(super) labels: Vec<(String, String)>,
    /// The value as it is in the text.
    pub(super) value: String,
}

/// Returns the metrics of a text, in its order. Lines of another form are skipped.
pub(super) fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        let entry = |words: &str| words.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(entry) {
            families.push(Family { name, help: unescaped(&help), ..Family::default() });
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(entry) {
            if let Some(family) = families.last_mut().filter(|of| of.name == name) {
                family.kind = kind;
            }
        } else if !line.starts_with('#')
            && let Some((name, sample)) = sample(line)
            && let Some(family) = families.last_mut()
            && name.strip_suffix("_total").unwrap_or(name) == family.name
        {
            family.samples.push(sample);
        }
    }
    families
}

/// Returns the name and the sample of a line.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let end = end_of_value(after)?;
            labels.push((label.to_owned(), unescaped(&after[..end])));
            rest = after[end + 1..].trim_start_matches(',');
        }
        rest = &rest[1..];
    }
    let value = rest.trim_start().split(' ').next()?;
    Some((name, Sample { labels, value: value.to_owned() }))
}

/// Returns the position of the quotation mark that ends the value of a label.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_with_its_labels_and_escapes() {
        let text = "# HELP a Packets \\\\ of \\\"a\\\".\n# TYPE a counter\n\
                    a_total{guest=\"w \\\"1\\\"\\n\\\\\",device=\"ens5\"} 7\na_total 8\n\
                    # HELP b_bytes Bytes.\n# TYPE b_bytes gauge\n# UNIT b_bytes bytes\n\
                    b_bytes{x=\"}\"} 0.5 12\nother 1\nb_bytes{x=\"\n# EOF\n";
        let families = families(text);
        assert_eq!(families.len(), 2);
        let [a, b] = families.try_into().unwrap();
        assert_eq!((&*a.name, &*a.kind, &*a.help), ("a", "counter", "Packets \\ of \"a\"."));
        let labels = |sample: &Sample| sample.labels.clone();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(labels(&a.samples[0]), [pair("guest", "w \"1\"\n\\"), pair("device", "ens5")]);
        assert_eq!((&*a.samples[0].value, &*a.samples[1].value, a.samples.len()), ("7", "8", 2));
        assert_eq!((labels(&b.samples[0]), &*b.samples[0].value), (vec![pair("x", "}")], "0.5"));
        assert_eq!(b.samples.len(), 1);
    }
}
