//! Decisions about hosts and tokens. A decision reads the table, and returns the changes of the
//! store that it leads to, or the refusal. It changes nothing itself.

use std::net::SocketAddr;

use ipnet::IpNet;
use srd_enrol::token;
use srd_enrol::{Fingerprint, Host, Identity, Refusal, RefusalKind, Secret, Token, message};

use super::record::{HOST, HostRecord, IDENTITY, IdentityRecord, META, Meta, TOKEN};
use super::record::{TokenRecord, put};
use super::table::Table;
use super::{HOSTS_MAX, TOKENS_MAX, address};
use crate::store::KeyChange;

/// Longest life of a token, in seconds.
pub const LIFETIME_MAX_S: u64 = 366 * 24 * 3600;
/// Largest number of uses of a token.
pub const USES_MAX: u32 = 1024;

/// The changes that a decision leads to, and its result.
pub type Decision<T> = Result<(Vec<KeyChange>, T), Refusal>;

/// A request of a host to enrol.
#[derive(Clone, Debug)]
pub struct Enrolment {
    /// Fingerprint of the host's identity.
    pub identity: Fingerprint,
    /// Identifier of its token.
    pub token: String,
    /// Secret of its token.
    pub secret: Secret,
    /// Name that it requests.
    pub name: String,
    /// Its description.
    pub host: Host,
}

/// A host that is admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// Name of the host.
    pub name: String,
    /// Its overlay address, with the length of the overlay's prefix.
    pub address: IpNet,
}

/// A request of the operator for a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenOptions {
    /// Time until its end, in seconds.
    pub lifetime_s: u64,
    /// Number of hosts that may enrol with it.
    pub uses: u32,
}

pub(super) fn refuse<T>(kind: RefusalKind, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(kind, message))
}

impl Table {
    /// Prepares the store for hosts: draws the identity of the controller, and records the block of
    /// the overlay. `None` keeps the block of the store, which is at first `default`.
    ///
    /// # Errors
    /// If the block is no overlay, or differs from the one from which hosts have addresses.
    pub fn begin(&self, overlay: Option<IpNet>, default: IpNet) -> Decision<()> {
        let mut changes = Vec::new();
        if self.identity.is_none() {
            let identity =
                Identity::draw().map_err(|error| Refusal::new(RefusalKind::Unavailable, error))?;
            changes.push(put(IDENTITY, &IdentityRecord { key: identity.expose(), next: None }));
        }
        let block = overlay.or(self.meta.overlay).unwrap_or(default);
        address::check(block).map_err(|what| Refusal::new(RefusalKind::Invalid, what))?;
        if self.meta.overlay == Some(block) {
            return Ok((changes, ()));
        }
        if let (Some(old), false) = (self.meta.overlay, self.hosts.is_empty()) {
            let what =
                format!("hosts have addresses from {old}: the overlay cannot become {block}");
            return refuse(RefusalKind::Invalid, what);
        }
        // Generation 0 stands for a host without peers.
        let generation = self.meta.generation.max(1);
        changes.push(put(META, &Meta { generation, overlay: Some(block), last: None }));
        Ok((changes, ()))
    }

    /// Decides about a request to enrol. A host whose answer was lost may repeat its
    /// request: it is admitted without a further use of the token.
    ///
    /// # Errors
    /// The refusal.
    pub fn enrol(&self, request: &Enrolment, now: u64) -> Decision<Admitted> {
        let Enrolment { identity, name, host, .. } = request;
        // Before the token is checked, a stranger learns nothing about hosts.
        let token = self.check_token(&request.token, &request.secret);
        if let Some(own) = self.name_of(*identity) {
            if own != name {
                let what = format!("this host has enrolled as `{own}` already");
                return refuse(RefusalKind::NameTaken, what);
            }
            return self.follow(*identity, host);
        }
        let token = token?;
        if token.expires_at <= now {
            let what = "the enrolment token has expired: make another one by `srd control token \
                        create`";
            return refuse(RefusalKind::TokenExpired, what);
        }
        let Some(uses) = token.uses.checked_sub(1) else {
            let what = "the enrolment token has no use left: make another one by `srd control \
                        token create --uses N`";
            return refuse(RefusalKind::TokenUsed, what);
        };
        message::check_name(name)?;
        host.check()?;
        if self.hosts.contains_key(name) {
            let what = format!(
                "a host `{name}` has enrolled already: choose another name, or remove the old host \
                 by `srd control hosts remove {name}`"
            );
            return refuse(RefusalKind::NameTaken, what);
        }
        self.check_unique(name, host)?;
        let address = self.free_address()?;
        let meta = Meta {
            generation: self.meta.generation + 1,
            overlay: self.meta.overlay,
            last: Some(address),
        };
        // The host has the identity that its token names.
        let next = self.next_identity.as_ref().map(Identity::fingerprint);
        let next_controller = token.controller.filter(|named| Some(*named) == next);
        let record = HostRecord {
            identity: *identity,
            host: host.clone(),
            next_key: None,
            must_rotate: false,
            next_controller,
            has_only_next: next_controller.is_some(),
            address,
            generation: meta.generation,
            enrolled_at: now,
        };
        let admitted = Admitted { name: name.clone(), address: self.address_of(&record) };
        let token = TokenRecord { uses, ..token.clone() };
        let changes = vec![
            put(format!("{HOST}{name}"), &record),
            put(META, &meta),
            put(format!("{TOKEN}{}", request.token), &token),
        ];
        Ok((changes, admitted))
    }

    fn check_token(&self, id: &str, secret: &Secret) -> Result<&TokenRecord, Refusal> {
        // The comparison of hashes may take different times: a stranger cannot choose the hash of a
        // secret.
        let found = self.tokens.get(id).filter(|token| token.hash == token::hash(secret));
        found.ok_or_else(|| {
            let what = "the controller has no such enrolment token: it may have been revoked, or \
                        it has expired; make another one by `srd control token create`";
            Refusal::new(RefusalKind::TokenUnknown, what)
        })
    }

    /// Refuses a key or an endpoint of another host.
    fn check_unique(&self, own: &str, host: &Host) -> Result<(), Refusal> {
        let others = || self.hosts.iter().filter(|(name, _)| *name != own);
        if let Some((name, _)) = others().find(|(_, other)| other.has_key(&host.public_key)) {
            let what = format!("the host `{name}` has this public key: each host needs its own");
            return refuse(RefusalKind::KeyTaken, what);
        }
        let shared = |other: &HostRecord| {
            let is_shared = |endpoint: &&SocketAddr| other.host.endpoints.contains(*endpoint);
            host.endpoints.iter().find(is_shared).copied()
        };
        if let Some((name, at)) = others().find_map(|(name, other)| Some((name, shared(other)?))) {
            let what = format!(
                "the host `{name}` has the endpoint {at}: if it is gone, remove it by `srd control \
                 hosts remove {name}`"
            );
            return refuse(RefusalKind::EndpointTaken, what);
        }
        Ok(())
    }

    fn free_address(&self) -> Result<std::net::IpAddr, Refusal> {
        if self.hosts.len() >= HOSTS_MAX {
            let what = format!("there are {HOSTS_MAX} hosts already, and there can be no more");
            return refuse(RefusalKind::Full, what);
        }
        let full = || Refusal::new(RefusalKind::Full, "the overlay has no free address");
        let block = self.meta.overlay.ok_or_else(full)?;
        let is_taken = |ip| self.has_address(ip);
        address::next(block, self.meta.last, self.hosts.len(), is_taken).ok_or_else(full)
    }

    /// Decides about a host that has enrolled and connects again.
    ///
    /// # Errors
    /// The refusal.
    pub fn follow(&self, identity: Fingerprint, host: &Host) -> Decision<Admitted> {
        let (name, record) = self.known(identity)?;
        host.check()?;
        self.check_unique(name, host)?;
        let is_next = record.next_key.as_deref() == Some(host.public_key.as_str());
        if record.host.public_key != host.public_key && !is_next {
            let what = format!(
                "`{name}` has enrolled with another public key: restore its file private.key, or \
                 remove the host, and enrol it again"
            );
            return refuse(RefusalKind::OtherKey, what);
        }
        let admitted = Admitted { name: name.to_owned(), address: self.address_of(record) };
        if record.host == *host {
            return Ok((Vec::new(), admitted));
        }
        let mut new = HostRecord { host: host.clone(), ..record.clone() };
        if is_next {
            new.next_key = None;
        }
        if record.peer(name) == new.peer(name) {
            // Peers do not see processors and memory.
            return Ok((vec![put(format!("{HOST}{name}"), &new)], admitted));
        }
        Ok((self.changed(name, new), admitted))
    }

    /// Records the next key of a host. The host uses it as soon as it connects with it.
    ///
    /// # Errors
    /// The refusal.
    pub fn next_key(&self, identity: Fingerprint, key: &str) -> Decision<()> {
        let (name, record) = self.known(identity)?;
        message::check_key(key)?;
        if !record.must_rotate && record.next_key.as_deref() == Some(key) {
            return Ok((Vec::new(), ()));
        }
        self.check_unique(name, &Host { public_key: key.to_owned(), ..record.host.clone() })?;
        let next_key = Some(key.to_owned()).filter(|key| *key != record.host.public_key);
        let new = HostRecord { next_key, must_rotate: false, ..record.clone() };
        Ok((vec![put(format!("{HOST}{name}"), &new)], ()))
    }

    pub(super) fn known(&self, identity: Fingerprint) -> Result<(&str, &HostRecord), Refusal> {
        let name = self.name_of(identity);
        let found = name.and_then(|name| Some((name, self.hosts.get(name)?)));
        found.ok_or_else(|| {
            let what = "the controller does not have this host: it was removed, or it has never \
                        enrolled";
            Refusal::new(RefusalKind::HostUnknown, what)
        })
    }

    /// The changes for a host that its peers see differently from now on.
    fn changed(&self, name: &str, new: HostRecord) -> Vec<KeyChange> {
        let meta = Meta { generation: self.meta.generation + 1, ..self.meta.clone() };
        let new = HostRecord { generation: meta.generation, ..new };
        vec![put(format!("{HOST}{name}"), &new), put(META, &meta)]
    }

    fn named(&self, name: &str) -> Result<&HostRecord, Refusal> {
        self.hosts.get(name).ok_or_else(|| {
            let what = format!("there is no host `{name}`: `srd control hosts` lists them");
            Refusal::new(RefusalKind::HostUnknown, what)
        })
    }

    /// Removes a host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn remove(&self, name: &str) -> Decision<()> {
        self.named(name)?;
        let meta = Meta { generation: self.meta.generation + 1, ..self.meta.clone() };
        Ok((vec![(format!("{HOST}{name}"), None), put(META, &meta)], ()))
    }

    /// Requests another key of a host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn rotate(&self, name: &str) -> Decision<()> {
        let new = HostRecord { must_rotate: true, ..self.named(name)?.clone() };
        Ok((vec![put(format!("{HOST}{name}"), &new)], ()))
    }

    /// Makes an enrolment token, and removes those that have expired.
    ///
    /// # Errors
    /// If the options are not valid, or there are too many tokens.
    pub fn create_token(&self, options: TokenOptions, now: u64) -> Decision<Token> {
        let TokenOptions { lifetime_s, uses } = options;
        if !(1..=LIFETIME_MAX_S).contains(&lifetime_s) || !(1..=USES_MAX).contains(&uses) {
            let what = format!(
                "a token has a lifetime from 1 second to {} days, and 1 to {USES_MAX} uses",
                LIFETIME_MAX_S / (24 * 3600)
            );
            return refuse(RefusalKind::Invalid, what);
        }
        let unavailable = |what: String| Refusal::new(RefusalKind::Unavailable, what);
        // A host that enrols during a change of the identity also gets in after its end.
        let controller = self.identities().first().map(Identity::fingerprint);
        let controller =
            controller.ok_or_else(|| unavailable("the controller accepts no hosts".to_owned()))?;
        let is_over = |token: &TokenRecord| token.expires_at <= now;
        let over = self.tokens.iter().filter(|(_, token)| is_over(token));
        let mut changes: Vec<KeyChange> =
            over.map(|(id, _)| (format!("{TOKEN}{id}"), None)).collect();
        if self.tokens.len() - changes.len() >= TOKENS_MAX {
            let what = format!(
                "there are {TOKENS_MAX} tokens already: revoke some by `srd control token revoke`"
            );
            return refuse(RefusalKind::Full, what);
        }
        let token = Token::draw(controller).map_err(unavailable)?;
        let hash = token::hash(&token.secret);
        let (expires_at, controller) = (now + lifetime_s, Some(controller));
        let record = TokenRecord { hash, expires_at, uses, controller };
        changes.push(put(format!("{TOKEN}{}", token.id), &record));
        Ok((changes, token))
    }

    /// Revokes an enrolment token.
    ///
    /// # Errors
    /// If there is no such token.
    pub fn revoke_token(&self, id: &str) -> Decision<()> {
        if !self.tokens.contains_key(id) {
            let what = format!("there is no token `{id}`: `srd control token list` lists them");
            return refuse(RefusalKind::TokenUnknown, what);
        }
        Ok((vec![(format!("{TOKEN}{id}"), None)], ()))
    }
}
