//! Reader for the XML of EC2's answers: elements with text or with elements. Attributes and
//! comments are skipped.
//!
//! Bounds: elements are nested at most [`DEPTH_MAX`] deep; the caller bounds the size of the text.

/// Largest depth of nested elements.
pub const DEPTH_MAX: usize = 32;

/// An element with its content.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Element {
    /// Name of the element.
    pub name: String,
    /// Text of the element.
    pub text: String,
    /// Elements inside the element.
    pub children: Vec<Element>,
}

impl Element {
    /// Returns all elements at a path of names.
    pub fn all(&self, path: &[&str]) -> Vec<&Element> {
        let Some((first, rest)) = path.split_first() else { return vec![self] };
        let children = self.children.iter().filter(|child| child.name == *first);
        children.flat_map(|child| child.all(rest)).collect()
    }

    /// Returns the first element at a path of names.
    pub fn at(&self, path: &[&str]) -> Option<&Element> {
        self.all(path).into_iter().next()
    }

    /// Returns the text of the first element at a path of names.
    pub fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).map(|element| element.text.as_str())
    }
}

/// Reads a document, and returns its root.
///
/// # Errors
/// A text that describes why the document is no XML of the expected form.
pub fn parse(text: &str) -> Result<Element, String> {
    let mut open = vec![Element::default()];
    let mut rest = text;
    while let Some(begin) = rest.find('<') {
        let (before, tag) = rest.split_at(begin);
        let top = open.last_mut().ok_or("an element ends that did not begin")?;
        top.text.push_str(&unescape(before.trim())?);
        if let Some(comment) = tag.strip_prefix("<!--") {
            rest = comment.split_once("-->").ok_or("a comment has no end")?.1;
            continue;
        }
        let (tag, after) = tag[1..].split_once('>').ok_or("a tag has no end")?;
        rest = after;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let element = open.pop().filter(|of| of.name == name.trim());
            let element = element.ok_or("an element ends that did not begin")?;
            open.last_mut().ok_or("an element ends that did not begin")?.children.push(element);
            continue;
        }
        let is_empty = tag.ends_with('/');
        let name = tag.trim_end_matches('/').split_whitespace().next().unwrap_or_default();
        let element = Element { name: name.to_owned(), ..Element::default() };
        if is_empty {
            top.children.push(element);
        } else if open.len() > DEPTH_MAX {
            return Err(format!("elements are nested more than {DEPTH_MAX} deep"));
        } else {
            open.push(element);
        }
    }
    match (open.pop(), open.is_empty()) {
        (Some(mut outside), true) if outside.children.len() == 1 => {
            Ok(outside.children.swap_remove(0))
        }
        _ => Err("it is no XML document".to_owned()),
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut parts = text.split('&');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (entity, rest) = part.split_once(';').ok_or("an entity has no end")?;
        let number =
            |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let c = match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match (entity.strip_prefix("#x"), entity.strip_prefix('#')) {
                (Some(digits), _) => number(digits, 16),
                (None, Some(digits)) => number(digits, 10),
                (None, None) => None,
            },
        };
        plain.push(c.ok_or_else(|| format!("the entity &{entity}; is unknown"))?);
        plain.push_str(rest);
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_texts_and_entities_are_read() {
        let root = parse(
            "<?xml version=\"1.0\"?>\n<R xmlns=\"u\"><!-- <x> --><set><item><id>a</id></item>\
             <item><id>b &amp; &#65;&#x42;</id></item></set><none/><empty></empty></R>\n",
        )
        .unwrap();
        assert_eq!(root.name, "R");
        let ids: Vec<_> = root.all(&["set", "item"]).iter().map(|i| i.text_at(&["id"])).collect();
        assert_eq!(ids, [Some("a"), Some("b & AB")]);
        assert_eq!((root.text_at(&["none"]), root.text_at(&["empty"])), (Some(""), Some("")));
        assert_eq!(root.text_at(&["set", "other"]), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "text",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a",
            "<a>&x;</a>",
            "<a>&amp</a>",
            "<a>&#x110000;</a>",
            "<!-- <a/>",
            "<a></a></a>",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        parse(&nested(DEPTH_MAX)).unwrap();
        assert!(parse(&nested(DEPTH_MAX + 1)).unwrap_err().contains("more than 32 deep"));
    }
}
