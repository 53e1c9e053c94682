//! Control characters in text from other processes. On a terminal they can move the cursor,
//! overwrite existing text, or change settings.

/// Byte that replaces each byte of a control character.
const INSTEAD: u8 = b'?';

/// Replaces control characters in the strings of a JSON text, except line feeds and tabs. An escape
/// sequence becomes U+FFFD or spaces, and a byte becomes a question mark. The length of the text
/// stays the same. Invalid JSON stays invalid.
pub fn clean_json(text: &mut [u8]) {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' => at += clean_escape(&mut text[at..]),
            // DEL may be in a JSON string. Bytes below the space may not.
            0x7f => {
                text[at] = INSTEAD;
                at += 1;
            }
            // U+0080 to U+009F in UTF-8.
            0xc2 if text.get(at + 1).is_some_and(|next| (0x80..=0x9f).contains(next)) => {
                text[at..at + 2].fill(INSTEAD);
                at += 2;
            }
            _ => at += 1,
        }
    }
}

/// Replaces the JSON escape sequence at the start of the text, if it means a control character.
/// Returns the number of bytes to skip.
fn clean_escape(text: &mut [u8]) -> usize {
    match text.get(1) {
        Some(b'b' | b'f' | b'r') => {
            text[..2].fill(b' ');
            2
        }
        Some(b'u') => {
            let digits = text.get(2..6).and_then(|digits| str::from_utf8(digits).ok());
            let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let character = code.and_then(char::from_u32);
            if character.is_some_and(|c| c.is_control() && c != '\n' && c != '\t') {
                text[2..6].copy_from_slice(b"fffd");
            }
            // An invalid escape sequence is left for the parser, which reports it.
            2
        }
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        clean_json(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn control_characters_in_any_form_are_taken_out() {
        for (text, wanted) in [
            (r#""a\u001b[2Jb""#, r#""a\ufffd[2Jb""#),
            (r#""\u001B]0;t\u0007""#, r#""\ufffd]0;t\ufffd""#),
            (r#""\u009b2J\u007f""#, r#""\ufffd2J\ufffd""#),
            (r#""a\rb\bc\fd""#, r#""a  b  c  d""#),
            ("\"\u{7f}\u{9b}2J\"", "\"???2J\""),
        ] {
            assert_eq!(cleaned(text), wanted);
        }
    }

    #[test]
    fn all_else_stays() {
        for text in [
            r#"{"a":"two\nlines\tand \"quotes\" \\ \/","b":[1,-2.5e3,null]}"#,
            r#""\\u001b is no escape""#,
            r#""\\\\u001b neither""#,
            r#""\u00e9\u20ac\ud83d\ude00""#,
            "\"é € ¡ 😀 \u{a0}\"",
            r#""\u12"#,
            "\\",
            "",
        ] {
            assert_eq!(cleaned(text), text);
        }
    }
}
