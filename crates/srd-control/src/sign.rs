//! Signature Version 4 of AWS: verification of signed headers and of presigned queries, and the
//! signature of a client.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ring::{digest, hmac};
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, ApiResult};
use crate::http::HttpRequest;
use crate::random;
use crate::wire::form;

/// Name of the algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Largest difference between the time of a request and the clock, in seconds.
pub const WINDOW_S: u64 = 15 * 60;
/// Longest validity of a presigned request, in seconds.
const PRESIGNED_MAX_S: u64 = 7 * 24 * 3600;

/// Access keys: for each identifier the secret and the account.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<String, AccessKey>);

/// Secret and account of an access key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AccessKey {
    secret: String,
    account: String,
    /// Whether signatures of the key are accepted.
    #[serde(default = "is_active")]
    active: bool,
    /// Time at which the key was drawn, in seconds since 1970; 0: by an earlier build.
    #[serde(default)]
    created: u64,
}

/// Keys of earlier builds are active.
fn is_active() -> bool {
    true
}

/// An access key, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyEntry {
    /// Identifier of the key.
    pub id: String,
    /// Whether signatures of the key are accepted.
    pub is_active: bool,
    /// Time at which the key was drawn, in seconds since 1970; 0: by an earlier build.
    pub created_at: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// Adds an active key of an account.
    pub fn add(&mut self, id: &str, secret: &str, account: &str) {
        self.insert(&DrawnKey { id: id.to_owned(), secret: secret.to_owned() }, account, 0);
    }

    /// Adds an active key of an account, which was drawn at this time.
    pub(crate) fn insert(&mut self, key: &DrawnKey, account: &str, created: u64) {
        let (secret, account) = (key.secret.clone(), account.to_owned());
        self.0.insert(key.id.clone(), AccessKey { secret, account, active: true, created });
    }

    /// Removes a key.
    pub fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Returns the oldest active key of an account.
    pub fn of(&self, account: &str) -> Option<DrawnKey> {
        let own = self.0.iter().filter(|(_, key)| key.active && key.account == account);
        let (id, key) = own.min_by_key(|(id, key)| (key.created, *id))?;
        Some(DrawnKey { id: id.clone(), secret: key.secret.clone() })
    }

    /// Returns all active keys, each with its account.
    pub(crate) fn active(&self) -> impl Iterator<Item = (DrawnKey, &str)> {
        self.0.iter().filter(|(_, key)| key.active).map(|(id, key)| {
            (DrawnKey { id: id.clone(), secret: key.secret.clone() }, key.account.as_str())
        })
    }

    /// Returns the keys of an account, the oldest one first.
    pub(crate) fn entries(&self, account: &str) -> Vec<KeyEntry> {
        let own = self.0.iter().filter(|(_, key)| key.account == account);
        let mut entries: Vec<KeyEntry> = own
            .map(|(id, key)| KeyEntry {
                id: id.clone(),
                is_active: key.active,
                created_at: key.created,
            })
            .collect();
        entries.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        entries
    }

    /// Whether signatures of the key with this identifier are accepted.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(|key| key.active)
    }

    /// Returns the record of a key that is active, or is not.
    pub(crate) fn record_with(&self, id: &str, active: bool) -> Option<String> {
        let key = AccessKey { active, ..self.0.get(id)?.clone() };
        serde_json::to_string(&key).ok()
    }

    /// Identifiers of all keys.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the record of a key for the store.
    pub(crate) fn record(&self, id: &str) -> Option<String> {
        self.0.get(id).and_then(|key| serde_json::to_string(key).ok())
    }

    /// Adds a key from its record in the store.
    pub(crate) fn read(&mut self, id: &str, record: &str) -> Result<(), String> {
        // The text of the parser's error could contain a part of the secret.
        let key = serde_json::from_str(record).map_err(|_| "it is no access key".to_owned())?;
        self.0.insert(id.to_owned(), key);
        Ok(())
    }
}

/// An access key with random digits.
#[derive(Clone)]
pub struct DrawnKey {
    /// Identifier of the access key.
    pub id: String,
    /// Secret, which contains 32 random bytes.
    pub secret: String,
}

impl std::fmt::Debug for DrawnKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrawnKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl DrawnKey {
    /// Draws a key from the random bytes of the kernel.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn draw() -> Result<Self, String> {
        let (id, secret) = (random::bytes::<8>()?, random::bytes::<32>()?);
        Ok(Self { id: format!("SRD{}", hex(&id).to_ascii_uppercase()), secret: hex(&secret) })
    }

    /// Signs a request, as a client does: adds the headers `x-amz-date` and `authorization`. All
    /// headers that the request has are signed. `time` has the form `20150830T123600Z`.
    ///
    /// # Errors
    /// If the query is malformed.
    pub fn authorize(
        &self,
        request: &mut HttpRequest,
        (region, service): (&str, &str),
        time: &str,
    ) -> ApiResult<()> {
        request.headers.push(("x-amz-date".to_owned(), time.to_owned()));
        let mut signed_headers: Vec<String> =
            request.headers.iter().map(|(name, _)| name.clone()).collect();
        signed_headers.sort();
        signed_headers.dedup();
        let scope = Scope {
            key: self.id.clone(),
            day: time.get(..8).unwrap_or_default().to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
        };
        let (signature, time) = (String::new(), time.to_owned());
        let signature = Signature { scope, signed_headers, signature, time, expires: None };
        let digits = signature.sign(request, &self.secret)?;
        let Signature { scope, signed_headers, .. } = signature;
        let (credential, signed) = (scope.text(), signed_headers.join(";"));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{credential}, SignedHeaders={signed}, Signature={digits}",
            self.id
        );
        request.headers.push(("authorization".to_owned(), authorization));
        Ok(())
    }

    /// Returns a set of keys that contains only this key, for an account.
    pub fn only(&self, account: &str) -> Keys {
        let mut keys = Keys::default();
        keys.add(&self.id, &self.secret, account);
        keys
    }
}

/// Scope of a credential: the region and the service that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Identifier of the access key.
    pub key: String,
    /// Day of the signature, as YYYYMMDD.
    pub day: String,
    /// Region, for example `us-east-1`.
    pub region: String,
    /// Service, for example `ec2`.
    pub service: String,
}

impl Scope {
    fn parse(credential: &str) -> ApiResult<Self> {
        let mut parts = credential.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
        let read = (next(), next(), next(), next(), next());
        match (read, parts.next()) {
            ((Some(key), Some(day), Some(region), Some(service), Some(end)), None)
                if end == "aws4_request"
                    && day.len() == 8
                    && day.bytes().all(|b| b.is_ascii_digit())
                    && [&region, &service].iter().all(|text| is_name(text)) =>
            {
                Ok(Self { key, day, region, service })
            }
            _ => Err(incomplete(
                "the credential has not the form KEY/DAY/REGION/SERVICE/aws4_request",
            )),
        }
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }
}

/// Whether a region or a service can have this name.
fn is_name(text: &str) -> bool {
    let is = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= 64 && text.bytes().all(is)
}

/// A signature of a request.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Credential of the signature: access key, day, region and service.
    pub scope: Scope,
    signed_headers: Vec<String>,
    signature: String,
    time: String,
    /// Validity in seconds of a presigned request.
    expires: Option<u64>,
}

fn incomplete(message: &str) -> ApiError {
    ApiError::new("IncompleteSignature", format!("The signature is incomplete: {message}"))
}

impl Signature {
    /// Returns the signature in the headers of a request, or in the query if its method is `GET`.
    ///
    /// # Errors
    /// `MissingAuthenticationToken` if the request is not signed there, and `IncompleteSignature`
    /// if parts of the signature are missing.
    pub fn read(request: &HttpRequest) -> ApiResult<Self> {
        if let Some(authorization) = request.header("authorization") {
            return Self::from_header(request, authorization);
        }
        let query = match request.method.as_str() {
            "GET" => form::parse(&request.query)?,
            _ => Vec::new(),
        };
        let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        if get("X-Amz-Algorithm").is_none() {
            let message = "Request is missing Authentication Token";
            return Err(ApiError::with_status(403, "MissingAuthenticationToken", message));
        }
        let need = |name: &str| get(name).ok_or_else(|| incomplete(name));
        if need("X-Amz-Algorithm")? != ALGORITHM {
            return Err(incomplete("the algorithm is not AWS4-HMAC-SHA256"));
        }
        let expires = need("X-Amz-Expires")?.parse().ok().filter(|s| *s <= PRESIGNED_MAX_S);
        Ok(Self {
            scope: Scope::parse(need("X-Amz-Credential")?)?,
            signed_headers: headers(need("X-Amz-SignedHeaders")?),
            signature: need("X-Amz-Signature")?.to_owned(),
            time: need("X-Amz-Date")?.to_owned(),
            expires: Some(expires.ok_or_else(|| incomplete("X-Amz-Expires"))?),
        })
    }

    fn from_header(request: &HttpRequest, authorization: &str) -> ApiResult<Self> {
        let fields = authorization.strip_prefix(ALGORITHM);
        let fields = fields.ok_or_else(|| incomplete("the algorithm is not AWS4-HMAC-SHA256"))?;
        let (mut credential, mut signed, mut signature) = (None, None, None);
        for field in fields.split(',') {
            match field.trim().split_once('=') {
                Some(("Credential", value)) => credential = Some(value),
                Some(("SignedHeaders", value)) => signed = Some(headers(value)),
                Some(("Signature", value)) => signature = Some(value.to_owned()),
                _ => return Err(incomplete("unknown field of the header Authorization")),
            }
        }
        let time = request.header("x-amz-date").ok_or_else(|| incomplete("X-Amz-Date"))?;
        Ok(Self {
            scope: Scope::parse(credential.ok_or_else(|| incomplete("Credential"))?)?,
            signed_headers: signed.ok_or_else(|| incomplete("SignedHeaders"))?,
            signature: signature.ok_or_else(|| incomplete("Signature"))?,
            time: time.to_owned(),
            expires: None,
        })
    }

    /// Verifies the signature, and returns the account of the key.
    ///
    /// # Errors
    /// `AuthFailure` if the key is unknown or not active, `RequestExpired` if the time is outside
    /// the window, and `SignatureDoesNotMatch` if the signature is not the expected signature.
    pub fn verify(&self, request: &HttpRequest, keys: &Keys, now: u64) -> ApiResult<String> {
        let refused = |code, message| ApiError::with_status(403, code, message);
        let Some(key) = keys.0.get(&self.scope.key).filter(|key| key.active) else {
            let message = "AWS was not able to validate the provided access credentials";
            return Err(refused("AuthFailure", message));
        };
        if !self.signed_headers.iter().any(|name| name == "host") {
            return Err(incomplete("the header Host is not signed"));
        }
        // The form of the time is checked first, as it is a part of the text that is signed.
        let time = parse_time(&self.time).ok_or_else(|| incomplete("X-Amz-Date"))?;
        if self.time.get(..8) != Some(&self.scope.day) {
            return Err(incomplete("the day of the credential is not that of X-Amz-Date"));
        }
        let until = time.saturating_add(self.expires.unwrap_or(WINDOW_S));
        if now > until || now.saturating_add(WINDOW_S) < time {
            let message = format!("Request has expired. Timestamp date is {}", self.time);
            return Err(ApiError::new("RequestExpired", message));
        }
        let expected = self.sign(request, &key.secret)?;
        let signing = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
        // Tags of both texts are compared, in constant time, so that the time reveals no digit.
        let tag = hmac::sign(&signing, expected.as_bytes());
        if hmac::verify(&signing, self.signature.as_bytes(), tag.as_ref()).is_err() {
            let message = "The request signature we calculated does not match the signature you \
                           provided. Check your AWS Secret Access Key and signing method.";
            return Err(refused("SignatureDoesNotMatch", message));
        }
        Ok(key.account.clone())
    }

    /// Returns the signature that the request would have with this secret.
    ///
    /// # Errors
    /// If a signed header is missing, or the query is malformed.
    pub fn sign(&self, request: &HttpRequest, secret: &str) -> ApiResult<String> {
        let canonical = self.canonical(request)?;
        let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("{ALGORITHM}\n{}\n{}\n{hash}", self.time, self.scope.text());
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
        for part in [&self.scope.day, &self.scope.region, &self.scope.service, "aws4_request"] {
            let tag = hmac::sign(&key, part.as_bytes());
            key = hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref());
        }
        Ok(hex(hmac::sign(&key, text.as_bytes()).as_ref()))
    }

    /// The canonical request. The path of this service is `/`; other paths are taken as they are.
    fn canonical(&self, request: &HttpRequest) -> ApiResult<String> {
        let mut query: Vec<(String, String)> = form::parse(&request.query)?
            .into_iter()
            .filter(|(name, _)| name != "X-Amz-Signature")
            .map(|(name, value)| (form::encode(&name), form::encode(&value)))
            .collect();
        query.sort();
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query.join("&"));
        for name in &self.signed_headers {
            let values: Vec<String> = request
                .headers
                .iter()
                .filter(|(header, _)| header == name)
                .map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            if values.is_empty() {
                return Err(incomplete("a signed header is missing"));
            }
            canonical.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        canonical.push_str(&format!("\n{}\n", self.signed_headers.join(";")));
        canonical.push_str(&hex(digest::digest(&digest::SHA256, &request.body).as_ref()));
        Ok(canonical)
    }
}

fn headers(list: &str) -> Vec<String> {
    list.split(';').map(str::to_ascii_lowercase).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the seconds since 1970 of a time such as `20150830T123600Z`.
fn parse_time(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' || !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = &text[range];
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 {
        return None;
    }
    // Days since 1970 in the Gregorian calendar; the year begins in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}
