//! Positions of the instance types of a file, for errors about types that a reader of the file does
//! not have. This crate has no table of types.
//!
//! Bounds: one position and one instance for each type, the first ones in the file. The text is
//! read once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use srd_config::{ConfigError, Location, Source};
use toml::Spanned;

use super::document::Document;

/// The first position of each instance type of a file. Positions are no part of the content of the
/// file, so all values are equal.
#[derive(Debug, Clone, Default)]
pub struct TypePlaces {
    file: PathBuf,
    first: BTreeMap<String, Location>,
    /// Names of the instances at these positions, by their types.
    instances: BTreeMap<String, String>,
}

impl PartialEq for TypePlaces {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TypePlaces {}

impl TypePlaces {
    pub(crate) fn of(source: &Source<'_>, document: &Document) -> Self {
        let mut first: BTreeMap<&str, Range<usize>> = BTreeMap::new();
        let mut instances = BTreeMap::new();
        for (instance, table) in &document.instance {
            let name: &Spanned<String> = &table.as_ref().instance_type;
            let span = name.span();
            let known = first.entry(name.get_ref().as_str()).or_insert_with(|| span.clone());
            if span.start <= known.start {
                *known = span;
                instances.insert(name.get_ref().clone(), instance.get_ref().clone());
            }
        }
        let mut all: Vec<(&str, Range<usize>)> = first.into_iter().collect();
        all.sort_unstable_by_key(|(_, span)| span.start);
        let (mut line_begin, mut lines) = (0, 0);
        let mut places = Self { file: source.path.to_owned(), first: BTreeMap::new(), instances };
        for (name, span) in all {
            let before = source.text.get(line_begin..span.start).unwrap_or_default();
            lines += before.matches('\n').count();
            line_begin += before.rfind('\n').map_or(0, |at| at + 1);
            let line = source.text.get(line_begin..).unwrap_or_default();
            let line = Source { path: source.path, text: line };
            let within = span.start - line_begin..span.end - line_begin;
            if let Some(place) = line.error(Some(within), "", "").place {
                let place = Location { line: place.line + lines, ..place };
                places.first.insert(name.to_owned(), place);
            }
        }
        places
    }

    /// Returns the types.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.first.keys().map(String::as_str)
    }

    /// Returns the name of the first instance with a type, whose position errors have; `None` if
    /// the file does not contain the type.
    pub fn instance(&self, name: &str) -> Option<&str> {
        self.instances.get(name).map(String::as_str)
    }

    /// Returns an error at the first position of a type; `None` if the file does not contain the
    /// type.
    pub fn error(
        &self,
        name: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Option<ConfigError> {
        let place = Some(self.first.get(name)?.clone());
        Some(ConfigError {
            file: self.file.clone(),
            place,
            what: what.into(),
            remedy: remedy.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::parse;

    #[test]
    fn each_type_has_its_first_position() {
        let text = "[instance.z]\ntype = \"c7i.lage\" # é\n[instance.a]\n\
                    # another one\n  type = \"m5.large\"\n[instance.b]\ntype = \"c7i.lage\"\n";
        let file = parse(text, Path::new("vpc.toml")).unwrap();
        let place = |name: &str| {
            let error = file.types.error(name, "no such type", "another").unwrap();
            let place = error.place.unwrap();
            (place.line, place.column, place.text)
        };
        assert_eq!(place("c7i.lage"), (2, 8, "type = \"c7i.lage\" # é".to_owned()));
        assert_eq!(place("m5.large"), (5, 10, "  type = \"m5.large\"".to_owned()));
        // Regression: an error at this position named another instance.
        assert_eq!(file.types.instance("c7i.lage"), Some("z"));
        assert_eq!(file.types.instance("t2.nano"), None);
        assert!(file.types.error("t2.nano", "", "").is_none());
        assert_eq!(file.types.names().count(), 2);
        // A comment changes positions only.
        assert_eq!(parse(&format!("# new\n{text}"), Path::new("vpc.toml")).unwrap(), file);
    }
}
