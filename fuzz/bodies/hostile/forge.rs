//! Forged frames of the messaging layer. They look like those of a peer, but contain numbers that
//! the attacker chooses. `docs/spec/rdm.md` defines the frames.

use super::man::Man;
use super::node;
use super::script::Input;

/// A forged datagram: its immediate data, and its bytes.
pub(crate) struct Forged {
    pub(crate) imm: u64,
    pub(crate) payload: Vec<u8>,
}

/// Returns the 24 check bits of a Q key, which packets carry.
fn check_of(qkey: u32) -> u32 {
    qkey.wrapping_mul(0x9e37_79b1) >> 8
}

/// Returns the Q key of the run of a node.
fn qkey_of(run: u64) -> u32 {
    (run.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Creates forged datagrams for one receiver from the script and the attacker's records.
pub(crate) struct Forger<'a, 'b> {
    pub(crate) input: &'a mut Input<'b>,
    pub(crate) man: &'a mut Man,
    pub(crate) to: usize,
    /// Run of the receiver, and run of the node in whose name the datagram is sent.
    pub(crate) runs: [u64; 2],
}

impl Forger<'_, '_> {
    /// Returns a number that was observed, a number near it, or one with a special meaning.
    fn word(&mut self) -> u64 {
        let word = self.input.of(&self.man.words);
        match self.input.byte() {
            near @ 0..=15 => word.wrapping_add(u64::from(near)),
            key @ 16..=31 => u64::from(node::RKEY) + u64::from(key & 3),
            small @ 32..=95 => u64::from(small & 63),
            _ => word,
        }
    }

    fn id(&mut self) -> u32 {
        let next = self.man.id[self.to];
        match self.input.byte() {
            0..=99 => {
                self.man.id[self.to] = next.wrapping_add(1);
                next
            }
            back @ 100..=119 => next.wrapping_sub(u32::from(back - 100)),
            ahead @ 120..=179 => next.wrapping_add(u32::from(ahead - 119)),
            _ => self.word() as u32,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.input.of(&[0, 1, 7, 8, 16, 100, 500, 1100]);
        vec![self.input.byte(); length]
    }

    /// Returns the check values for the receiver's run, and for the present session towards the
    /// receiver.
    fn checks(&self) -> (u32, u32) {
        let qkey = qkey_of(self.runs[0]);
        let session = self.man.session[self.to];
        (check_of(qkey), check_of(qkey ^ session.wrapping_mul(0x85eb_ca6b)))
    }

    /// Forges one datagram.
    pub(crate) fn forge(&mut self) -> Forged {
        let (run, session) = self.checks();
        match self.input.below(20) {
            n @ 0..=10 => {
                let payload = self.frame(n as u8);
                let check = if matches!(n, 3 | 4 | 6) { session } else { run };
                let check = if n == 0 && self.input.bit() { 0 } else { check };
                Forged { imm: send(check, None), payload }
            }
            11 | 12 => {
                let part = self.id() << 16 | self.word() as u32 & 0xffff;
                Forged { imm: send(session, Some(part)), payload: self.bytes() }
            }
            13 | 14 => self.write(run),
            15 => self.read(run),
            16 => Forged { imm: self.transfer(3), payload: self.bytes() },
            17 => Forged { imm: self.transfer(6), payload: self.bytes() },
            18 => {
                let kind = self.input.of(&[4, 7]);
                Forged { imm: self.transfer(kind), payload: Vec::new() }
            }
            _ => Forged { imm: self.word() << 32 | self.word(), payload: self.bytes() },
        }
    }

    /// Returns the immediate data of a later datagram of a transfer.
    fn transfer(&mut self, kind: u64) -> u64 {
        let number = self.word() & 0xff_ffff;
        let low = if kind == 4 { 0 } else { self.word() & 0xffff_ffff };
        kind << 60 | number << 32 | low
    }

    fn header(&mut self, length: u32) -> Vec<u8> {
        let (addr, rkey) = (self.word(), self.word());
        let mut b = [addr.to_be_bytes(), rkey.to_be_bytes()].concat();
        b.extend_from_slice(&length.to_be_bytes());
        b.extend_from_slice(&(self.word() as u32 & 0xff_ffff).to_be_bytes());
        b
    }

    fn write(&mut self, check: u32) -> Forged {
        let bytes = self.bytes();
        let more = self.input.of(&[0, 0, 1, 1000]);
        let mut payload = self.header(bytes.len() as u32 + more);
        payload.extend_from_slice(&bytes);
        let data = self.input.bit().then(|| self.word() as u32);
        let (flag, low) = (u64::from(data.is_some()), u64::from(data.unwrap_or(0)));
        Forged { imm: 2 << 60 | flag << 56 | u64::from(check) << 32 | low, payload }
    }

    fn read(&mut self, check: u32) -> Forged {
        let length = self.word() as u32;
        Forged { imm: 5 << 60 | u64::from(check) << 32, payload: self.header(length) }
    }

    /// Returns a frame of the messaging layer. `n` is its kind minus one. Values beyond the last
    /// kind give random frames.
    fn frame(&mut self, n: u8) -> Vec<u8> {
        let kind = n + 1;
        let flags = self.input.byte();
        match kind {
            1 | 2 => {
                let run = if self.input.byte() < 200 { self.runs[1] } else { self.word() };
                let number = if self.input.bit() { self.input.byte().into() } else { self.id() };
                if kind == 1 {
                    (self.man.session[self.to], self.man.id[self.to]) = (number, 0);
                }
                let version = if flags < 240 { 1 } else { flags };
                let limit = if kind == 2 { vec![self.word()] } else { vec![] };
                frame([kind, version, 0, 0], number, &[&[0, run][..], &limit].concat(), &[])
            }
            3 => frame([3, 0, 0, 0], self.man.session[1 - self.to], &[self.word()], &[]),
            4 => {
                let (flags, id) = (flags & 15, self.id());
                let words: Vec<u64> = (0..(flags & 7).count_ones()).map(|_| self.word()).collect();
                let bytes = self.bytes();
                let mut b = frame([4, flags, 0, 0], id, &words, &[]);
                if flags & 8 != 0 {
                    let length = bytes.len() as u32 + self.input.of(&[1, 100, 1000, 65_535]);
                    b.extend_from_slice(&length.to_be_bytes());
                }
                b.extend_from_slice(&bytes);
                b
            }
            5 => {
                let (flags, id) = (flags & 3, self.id());
                let iov = self.input.below(6) as u8;
                let count = flags.count_ones() + 1 + 2 * u32::from(iov);
                let words: Vec<u64> = (0..count).map(|_| self.word()).collect();
                frame([5, flags, 0, iov], id, &words, &[])
            }
            6 => frame([6, flags & 3, 0, 0], 0, &[self.word()], &[]),
            7 => self.atomic(),
            8 => {
                let (word, bytes) = (self.word(), self.bytes());
                frame([8, flags & 3, 0, 0], 0, &[word], &bytes)
            }
            9 => {
                let data = if flags & 2 != 0 { vec![self.word()] } else { vec![] };
                let words = [&data[..], &[self.word(), self.word()]].concat();
                let bytes = self.bytes();
                frame([9, flags & 10, 0, 0], 0, &words, &bytes)
            }
            10 => frame([10, 0, 0, 0], 0, &[self.word(), self.word()], &[]),
            _ => {
                let (kind, second, third) = (flags, self.input.byte(), self.input.byte());
                let (number, word) = (self.word() as u32, self.word());
                frame([kind, second, third, 1], number, &[word], &self.bytes())
            }
        }
    }

    fn atomic(&mut self) -> Vec<u8> {
        let (op, datatype) = (self.input.byte() % 20, self.input.byte() % 15);
        let (form, count) = (self.input.byte() % 3, self.input.byte() % 5);
        let (id, token) = (self.id(), self.word());
        let mut b = frame([7, op, datatype, form << 4 | count], id, &[token], &[]);
        for _ in 0..count {
            let (addr, rkey) = (self.word() & !15, self.word());
            let bytes = self.input.of(&[0u32, 1, 8, 16, 64, u32::MAX]);
            b.extend_from_slice(&addr.to_be_bytes());
            b.extend_from_slice(&rkey.to_be_bytes());
            b.extend_from_slice(&bytes.to_be_bytes());
        }
        b.extend_from_slice(&self.bytes());
        b
    }
}

/// Returns the immediate data of a SEND.
fn send(check: u32, part: Option<u32>) -> u64 {
    let (flag, low) = (u64::from(part.is_some()), u64::from(part.unwrap_or(0)));
    1 << 60 | flag << 56 | u64::from(check) << 32 | low
}

fn frame(base: [u8; 4], number: u32, words: &[u64], bytes: &[u8]) -> Vec<u8> {
    let mut b = [base, number.to_be_bytes()].concat();
    for word in words {
        b.extend_from_slice(&word.to_be_bytes());
    }
    b.extend_from_slice(bytes);
    b
}
