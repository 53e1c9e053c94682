//! Enrolment tokens: a secret that permits hosts to enrol, and the fingerprint of the controller.
//!
//! ```text
//!   srd1.IDENTIFIER.SECRET.FINGERPRINT
//! ```
//!
//! The identifier is public, and names the token in lists. The secret has 32 random bytes, and the
//! controller keeps only its SHA-256 hash. The hash needs no salt and no slow function, because the
//! secret cannot be guessed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::message::Secret;
use crate::tls::Fingerprint;

/// First part of each token.
const PREFIX: &str = "srd1";
/// Number of bytes of the identifier of a token.
const ID_BYTES: usize = 6;
/// Number of bytes of the secret of a token.
const SECRET_BYTES: usize = 32;

/// An enrolment token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Identifier of the token.
    pub id: String,
    /// Its secret, in base64.
    pub secret: Secret,
    /// Fingerprint of the controller.
    pub controller: Fingerprint,
}

/// Returns the hash of a token's secret, in base64.
pub fn hash(secret: &Secret) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, secret.0.as_bytes()))
}

/// Returns random bytes in base64.
fn draw<const N: usize>() -> Result<String, String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the kernel gives no random bytes".to_owned())?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl Token {
    /// Draws a token of a controller.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn draw(controller: Fingerprint) -> Result<Self, String> {
        let (id, secret) = (draw::<ID_BYTES>()?, draw::<SECRET_BYTES>()?);
        Ok(Self { id, secret: Secret(secret), controller })
    }

    /// Returns the text of the token. It contains the secret.
    pub fn expose(&self) -> String {
        format!("{PREFIX}.{}.{}.{}", self.id, self.secret.0, self.controller)
    }

    /// Reads a token from its text.
    ///
    /// # Errors
    /// A text for the operator, which does not contain the token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("it is no enrolment token, which has the form {PREFIX}.ID.SECRET.FINGERPRINT")
        };
        let mut parts = text.trim().split('.');
        let mut next = || parts.next().ok_or_else(wrong);
        let (prefix, id, secret, controller) = (next()?, next()?, next()?, next()?);
        let has_bytes = |text: &str, count: usize| {
            URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == count)
        };
        if prefix != PREFIX
            || !has_bytes(id, ID_BYTES)
            || !has_bytes(secret, SECRET_BYTES)
            || parts.next().is_some()
        {
            return Err(wrong());
        }
        let controller = Fingerprint::parse(controller).map_err(|_| wrong())?;
        Ok(Self { id: id.to_owned(), secret: Secret(secret.to_owned()), controller })
    }
}

impl fmt::Display for Token {
    /// Writes the public parts of the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of the controller {}", self.id, self.controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Identity;

    #[test]
    fn a_token_survives_its_text_and_hides_its_secret() {
        let controller = Identity::draw().unwrap().fingerprint();
        let token = Token::draw(controller).unwrap();
        let text = token.expose();
        assert_eq!(Token::parse(&format!(" {text}\n")), Ok(token.clone()));
        for shown in [format!("{token}"), format!("{token:?}")] {
            assert!(!shown.contains(&token.secret.0), "{shown}");
        }
        assert_ne!(Token::draw(controller).unwrap(), token);
        assert_ne!(hash(&token.secret), token.secret.0);
    }

    #[test]
    fn texts_that_are_no_tokens_are_refused_without_being_shown() {
        let token = Token::draw(Identity::draw().unwrap().fingerprint()).unwrap();
        let text = token.expose();
        let cut = &text[..text.len() - 1];
        let short = format!("{PREFIX}.{}.{}.{}", token.id, "abc", token.controller);
        for bad in ["", "hidden", cut, &format!("{text}.x"), &text.replace("srd1", "srd2"), &short]
        {
            let error = Token::parse(bad).unwrap_err();
            assert!(!error.contains("hidden") && !error.contains(&token.secret.0), "{error}");
        }
    }
}
