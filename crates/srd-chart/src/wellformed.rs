//! A check, for tests, that the text of an SVG or HTML document is well-formed: elements nest,
//! attributes are quoted, and nothing is left unescaped.

/// Checks, for tests, that the elements of a document nest, its attributes are quoted, and nothing
/// is left unescaped.
///
/// # Errors
/// If the document is not well-formed: the description of the first fault.
pub fn check(mut text: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    while let Some(start) = text.find('<') {
        check_text(&text[..start])?;
        let end = text[start..].find('>').ok_or("a tag does not end")? + start;
        let tag = &text[start + 1..end];
        text = &text[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().unwrap_or_default();
            if last != name {
                return Err(format!("<{last}> is closed by </{name}>"));
            }
            continue;
        }
        let whole = tag.trim_end_matches('/');
        let name = whole.split_whitespace().next().ok_or("a tag without a name")?;
        check_attributes(&whole[name.len()..])?;
        if !tag.ends_with('/') {
            open.push(name.to_owned());
        }
    }
    check_text(text)?;
    if open.is_empty() { Ok(()) } else { Err(format!("not closed: {}", open.join(", "))) }
}

fn check_text(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('&') {
        let entity = text[at..].split(';').next().unwrap_or_default();
        if !["&amp", "&lt", "&gt", "&quot", "&#39"].contains(&entity) {
            return Err(format!("a bare ampersand in `{text}`"));
        }
    }
    if text.contains(['<', '>']) { Err(format!("a bare < or > in `{text}`")) } else { Ok(()) }
}

fn check_attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or(format!("`{rest}` is not quoted"))?;
        if name.contains(|c: char| c.is_whitespace() || c == '"') {
            return Err(format!("`{name}` is no attribute's name"));
        }
        let (value, after) = after.split_once('"').ok_or(format!("`{after}` has no end"))?;
        check_text(value)?;
        rest = after.trim_start();
    }
    Ok(())
}

#[test]
fn broken_documents_are_found() {
    assert!(check("<a><b c=\"d\"/></a>").is_ok());
    for broken in ["<a>", "<a></b>", "<a b=c></a>", "<a>&</a>", "<a>></a>", "<a b=\"<\"></a>"] {
        assert!(check(broken).is_err(), "{broken}");
    }
}
