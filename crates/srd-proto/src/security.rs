//! Protection of an endpoint: the mode, the keys, and the cost that strangers may cause.
//!
//! Both protected modes open a session with two messages: Noise IK with static keys, or two sealed
//! greetings under a job key that bind the salts of both sides. In both modes no datagram is
//! delivered before a packet under the new session has authenticated. Therefore a replay of a
//! recorded opening creates only a pending session, which an attacker cannot confirm.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::config::{Config, Protection};
use crate::crypto::job::{JobSide, SALT_BYTES, bound_secrets, early_secret};
use crate::crypto::noise::Responder;
use crate::crypto::{
    Admission, CookieJar, Drbg, HandshakeLoad, HelloKey, Initiator, Proof, RotationLimits,
    SessionKeys, SessionSecrets, Space, public_key,
};
use crate::error::DropReason;
use crate::time::Instant;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::{MAC_BYTES, Token};

/// Bytes of a job-key opening before its sealed greeting: salt and epoch.
const JOB_HEAD_BYTES: usize = SALT_BYTES + 8;

/// Type of a function that fills its argument with random bytes which no copy of this process, such
/// as a restored virtual machine, has.
pub(crate) type Fresh = fn(&mut [u8; FRESH_BYTES]);

/// Number of random bytes that are mixed into the generator before each opening and each answer.
pub(crate) const FRESH_BYTES: usize = 16;

/// Keys of the endpoint, and its limits for handshakes.
pub(crate) struct Security {
    mode: Protection,
    public: [u8; 32],
    /// Key that checks the MAC of openings to us; `None` in plain mode.
    hello_key: Option<HelloKey>,
    drbg: Drbg,
    /// Source of random bytes that are mixed into `drbg` before each opening and each answer;
    /// `None` if the application has set no source.
    fresh: Option<Fresh>,
    cookies: CookieJar,
    load: HandshakeLoad,
    limits: RotationLimits,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Security") // no keys in logs
    }
}

/// State of our opening that waits for its answer.
pub(crate) enum Opening {
    Noise(Box<Initiator>),
    Job(JobSide),
}

/// An opening of another node that was read and not answered yet.
pub(crate) struct Request {
    /// Static public key of the sender; `None` with a job key.
    pub public: Option<[u8; 32]>,
    pub greeting: Greeting,
    /// Number of this opening in the sender's run. Each opening of a run has a larger number than
    /// the last.
    pub number: u64,
    reading: Reading,
}

impl Request {
    /// Position of this opening in the order of all openings of its sender.
    pub(crate) fn stamp(&self) -> Stamp {
        (self.greeting.epoch, self.number)
    }
}

/// Epoch of a sender, and number of an opening in the run of that epoch. Newer openings have larger
/// stamps.
pub(crate) type Stamp = (u64, u64);

enum Reading {
    Noise(Box<Responder>),
    Job(JobSide),
}

impl Security {
    pub(crate) fn new(config: &Config, seed: &[u8; 32], now: Instant) -> Self {
        // S1: Source of randomness
        let mut drbg = Drbg::new(seed, "endpoint");
        let public = match &config.protection {
            Protection::Static(private) => public_key(private),
            Protection::Plain | Protection::JobKey(_) => [0; 32],
        };
        let hello_key = match &config.protection {
            Protection::Plain => None,
            Protection::Static(_) => Some(HelloKey::of(&public)),
            Protection::JobKey(key) => Some(HelloKey::of(key)),
        };
        Self {
            hello_key,
            mode: config.protection.clone(),
            public,
            cookies: CookieJar::new(drbg.array(), now),
            drbg,
            fresh: None,
            load: HandshakeLoad::new(config.handshakes_per_second_max),
            limits: RotationLimits {
                packets_max: config.key_packets_max,
                lifetime: config.key_lifetime,
                grace: config.rto_max.times(2),
            },
        }
    }

    /// Mixes a fresh seed into the generator and draws a new key for cookies. A copy of the earlier
    /// state cannot compute the values that are drawn from now on.
    pub(crate) fn reseed(&mut self, seed: &[u8; 32], now: Instant) {
        // S31: Copied state
        self.drbg.mix_in(seed);
        self.cookies = CookieJar::new(self.drbg.array(), now);
    }

    /// Replaces the static key. Returns false if this end uses no static key.
    pub(crate) fn set_static(&mut self, private: &[u8; 32]) -> bool {
        if !matches!(self.mode, Protection::Static(_)) {
            return false;
        }
        self.public = public_key(private);
        self.hello_key = Some(HelloKey::of(&self.public));
        self.mode = Protection::Static(*private);
        true
    }

    /// Draws the seed of another run of this process, which no other process has.
    pub(crate) fn seed(&mut self) -> [u8; 32] {
        self.stir();
        self.drbg.array()
    }

    /// Sets the source of random bytes that are mixed into the generator.
    pub(crate) fn mix_in(&mut self, fresh: Fresh) {
        self.fresh = Some(fresh);
    }

    /// Mixes bytes of the source `fresh`, if there is one, into the generator. It is called before
    /// values are drawn on which a session depends.
    fn stir(&mut self) {
        // S31: Copied state
        if let Some(fresh) = self.fresh {
            let mut bytes = [0; FRESH_BYTES];
            fresh(&mut bytes);
            self.drbg.mix_in(&bytes);
        }
    }

    /// Whether protection is on.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.mode, Protection::Plain)
    }

    /// Our static public key; `None` in the other modes.
    pub(crate) fn public(&self) -> Option<[u8; 32]> {
        matches!(self.mode, Protection::Static(_)).then_some(self.public)
    }

    /// Whether the endpoint uses a job key, so that every node with this key is a member of the
    /// same job.
    pub(crate) fn is_job(&self) -> bool {
        matches!(self.mode, Protection::JobKey(_))
    }

    /// Whether an opening was made for our key. `mac` is its MAC over `rest`, the bytes that
    /// follow.
    pub(crate) fn is_for_us(&self, mac: &[u8; MAC_BYTES], rest: &[u8]) -> bool {
        self.hello_key.as_ref().is_some_and(|key| key.check(rest, mac))
    }

    /// MAC of an opening over `rest`: under the receiver's static public key `to`, or under the job
    /// key.
    pub(crate) fn hello_mac(&self, to: Option<&[u8; 32]>, rest: &[u8]) -> [u8; MAC_BYTES] {
        match (&self.mode, to, &self.hello_key) {
            (Protection::Static(_), Some(public), _) => HelloKey::of(public).mac(rest),
            (_, _, Some(key)) => key.mac(rest),
            _ => [0; MAC_BYTES],
        }
    }

    /// Returns 64 random bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.drbg.next_u64()
    }

    /// Returns a random token.
    pub(crate) fn token(&mut self) -> Token {
        self.drbg.array()
    }

    /// Whether a cookie proves that the address of `source` receives packets that are sent to it.
    pub(crate) fn is_proven(
        &mut self,
        now: Instant,
        source: SocketAddr,
        cookie: &[u8; 16],
    ) -> bool {
        *cookie != [0; 16] && self.cookies.check(now, &address_bytes(source), cookie)
    }

    /// Whether the rate of openings allows an opening to be processed now. `proof`: what its cookie
    /// has shown.
    pub(crate) fn admit(&mut self, now: Instant, proof: Proof) -> Admission {
        self.load.admit(now, proof)
    }

    /// Returns the cookie that an opening from the address of `source` must carry.
    pub(crate) fn cookie_for(&mut self, now: Instant, source: SocketAddr) -> [u8; 16] {
        self.cookies.cookie_for(now, &address_bytes(source))
    }

    /// Creates the keys of a new session.
    pub(crate) fn keys(&self, secrets: SessionSecrets, now: Instant) -> Box<SessionKeys> {
        Box::new(SessionKeys::new(secrets, self.limits, now))
    }

    /// Creates an opening. Returns the state that is needed to read the answer, and the message to
    /// send; `None` in plain mode, or if the remote key is missing or cannot be used.
    pub(crate) fn open(
        &mut self,
        remote_public: Option<&[u8; 32]>,
        preshared: &[u8; 32],
        greeting: &Greeting,
        number: u64,
        now: Instant,
    ) -> Option<(Opening, Vec<u8>)> {
        let mut hello = Vec::new();
        greeting.encode(&mut hello);
        hello.extend_from_slice(&number.to_be_bytes());
        self.stir();
        match &self.mode {
            Protection::Plain => None,
            Protection::Static(private) => {
                let (initiator, message) =
                    Initiator::start(private, remote_public?, preshared, &hello, &mut self.drbg)
                        .ok()?;
                Some((Opening::Noise(Box::new(initiator)), message))
            }
            Protection::JobKey(key) => {
                let side = JobSide { salt: self.drbg.array(), epoch: greeting.epoch };
                let message = seal_job(key, &side, &[], &hello, self.limits, now);
                Some((Opening::Job(side), message))
            }
        }
    }

    /// Reads an opening of another node.
    pub(crate) fn read(&mut self, message: &[u8], now: Instant) -> Result<Request, DropReason> {
        self.stir();
        match &self.mode {
            Protection::Plain => Err(DropReason::WrongProtection),
            Protection::Static(private) => {
                let responder = Responder::read(private, message, &mut self.drbg)
                    .map_err(|_| DropReason::Unauthentic)?;
                let (greeting, number) = numbered(&responder.payload)?;
                let public = Some(responder.remote_public);
                let reading = Reading::Noise(Box::new(responder));
                Ok(Request { public, greeting, number, reading })
            }
            Protection::JobKey(key) => {
                let (side, hello) = open_job(key, message, &[], self.limits, now)?;
                let (greeting, number) = numbered(&hello)?;
                Ok(Request { public: None, greeting, number, reading: Reading::Job(side) })
            }
        }
    }

    /// Answers an opening. Returns the message to send and the session's secrets.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        preshared: &[u8; 32],
        greeting: &Greeting,
        now: Instant,
    ) -> Result<(Vec<u8>, SessionSecrets), DropReason> {
        let mut hello = Vec::new();
        greeting.encode(&mut hello);
        if self.is_job() {
            self.stir();
        }
        match (request.reading, &self.mode) {
            (Reading::Noise(responder), _) => {
                let done =
                    responder.answer(preshared, &hello).map_err(|_| DropReason::Unauthentic)?;
                Ok((done.message2, done.secrets))
            }
            (Reading::Job(theirs), Protection::JobKey(key)) => {
                // S18: Salts of job sessions
                let ours = JobSide { salt: self.drbg.array(), epoch: greeting.epoch };
                let message = seal_job(key, &ours, &theirs.salt, &hello, self.limits, now);
                let secrets = bound_secrets(key, &ours, &theirs, &[]);
                Ok((message, secrets.ok_or(DropReason::Unauthentic)?))
            }
            (Reading::Job(_), _) => Err(DropReason::WrongProtection),
        }
    }

    /// Reads the answer to our opening.
    pub(crate) fn finish(
        &self,
        opening: &mut Opening,
        message: &[u8],
        now: Instant,
    ) -> Result<(Greeting, SessionSecrets), DropReason> {
        match (opening, &self.mode) {
            (Opening::Noise(initiator), _) => {
                let done = initiator.finish(message).map_err(|_| DropReason::Unauthentic)?;
                Ok((Greeting::decode(&done.payload)?.0, done.secrets))
            }
            (Opening::Job(ours), Protection::JobKey(key)) => {
                let (theirs, hello) = open_job(key, message, &ours.salt, self.limits, now)?;
                let secrets = bound_secrets(key, ours, &theirs, &[]);
                Ok((Greeting::decode(&hello)?.0, secrets.ok_or(DropReason::Unauthentic)?))
            }
            (Opening::Job(_), _) => Err(DropReason::WrongProtection),
        }
    }
}

/// Reads the payload of an opening: the greeting, and the number of the opening in its run.
fn numbered(payload: &[u8]) -> Result<(Greeting, u64), DropReason> {
    let (greeting, rest) = Greeting::decode(payload)?;
    let number = rest.try_into().map_err(|_| DropReason::Malformed)?;
    Ok((greeting, u64::from_be_bytes(number)))
}

/// Source address as bytes, in canonical form: an IPv4 address mapped into IPv6 is the IPv4
/// address. The port is not included, because copies of an opening on different paths come from
/// different ports.
fn address_bytes(source: SocketAddr) -> Vec<u8> {
    // S23: Contents of a cookie
    match source.ip().to_canonical() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Keys that seal the greeting of `side` in an opening or an answer under a job key. `context` is
/// the salt of the opening if the message is its answer, and empty otherwise.
fn early_keys(
    key: &[u8; 32],
    side: &JobSide,
    context: &[u8],
    limits: RotationLimits,
    now: Instant,
) -> SessionKeys {
    // S20: Early secrets protect greetings
    let secret = || early_secret(key, side, context);
    SessionKeys::new(SessionSecrets { send: secret(), receive: secret() }, limits, now)
}

/// Creates an opening or an answer under a job key: salt and epoch in clear text, then the sealed
/// greeting. `context` is the salt of the opening if the message is its answer, and empty
/// otherwise.
fn seal_job(
    key: &[u8; 32],
    side: &JobSide,
    context: &[u8],
    greeting: &[u8],
    limits: RotationLimits,
    now: Instant,
) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend_from_slice(&side.salt);
    message.extend_from_slice(&side.epoch.to_be_bytes());
    message.extend_from_slice(greeting);
    let mut keys = early_keys(key, side, context, limits, now);
    keys.seal_packet(Space::Control, 0, &mut message, 0, JOB_HEAD_BYTES)
        .expect("a fresh key seals its first packet");
    message
}

fn open_job(
    key: &[u8; 32],
    message: &[u8],
    context: &[u8],
    limits: RotationLimits,
    now: Instant,
) -> Result<(JobSide, Vec<u8>), DropReason> {
    let (head, sealed) =
        message.split_first_chunk::<JOB_HEAD_BYTES>().ok_or(DropReason::Malformed)?;
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&head[..SALT_BYTES]);
    let side = JobSide { salt, epoch: crate::wire::u64_at(head, SALT_BYTES) };
    let mut body = sealed.to_vec();
    let mut keys = early_keys(key, &side, context, limits, now);
    let greeting = keys
        .open(now, 0, Space::Control, 0, head, &mut body)
        .map_err(|_| DropReason::Unauthentic)?;
    let greeting = greeting.to_vec();
    Ok((side, greeting))
}
