//! Steps of a script: operations of applications, and manipulations of the attacker.

use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Message, Peek, Receive, Rma, RmaIov, Selector, Until,
};

use super::Pair;
use super::forge::{Forged, Forger};
use super::man::Rates;
use super::memory::Use;
use super::node::{RKEY, SHARED_BYTES, Sort};
use super::script::Input;

const LENGTHS: [usize; 8] = [0, 1, 300, 700, 5000, 60_000, 70_000, 200_000];

impl Pair {
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        let at = usize::from(what >> 7);
        match what & 31 {
            0..=3 => self.send(at, input),
            4..=6 => self.receive(at, input),
            7 => self.peek(at, input),
            8 => self.claimed(at, input),
            9 => {
                let from = u64::from(input.byte());
                self.nodes[at].cancel(from);
            }
            10 | 11 => self.rma(at, input),
            12 => self.atomic(at, input),
            13 => {
                let which = input.byte() & 1;
                self.nodes[at].unshare(which);
                let rights = input.byte();
                self.nodes[at].share(which, rights & 1 > 0, rights & 2 > 0);
            }
            14 => self.nodes[at].polls = input.byte() & 3 > 0,
            15..=17 => self.run(1 + u32::from(input.byte() & 63)),
            18 => self.be_bad(input),
            19..=25 => self.lie(at, input),
            26 => self.replay(input),
            27 => self.let_go(input),
            28 => {
                let which = usize::from(input.byte() & 1);
                let peer = self.nodes[at].peers[which];
                self.remove(at, peer);
                self.meet(at, if which == 0 { 1 - at } else { at });
            }
            29 if input.byte() & 3 == 0 => self.restart(at),
            30 => self.jump(input),
            _ => self.flood(at, input),
        }
    }

    /// Creates the buffers of an operation at node `at`: two pieces if `two` is set, otherwise one.
    fn iov(&mut self, at: usize, context: u64, of: Use, length: usize, two: bool) -> Vec<Iov> {
        let first = if two { length / 3 } else { length };
        let lengths = if two { vec![first, length - first] } else { vec![first] };
        let place = |length: usize| {
            let addr = self.nodes[at].place(context, of, length);
            Iov { addr, length: length as u64 }
        };
        lengths.into_iter().map(place).collect()
    }

    fn send(&mut self, at: usize, input: &mut Input<'_>) {
        let node = &mut self.nodes[at];
        let to = node.peers[usize::from(input.byte() > 240)];
        let context = node.next_context();
        let until = input.of(&[Until::Transmitted, Until::Delivered, Until::Injected]);
        let (length, flags) = (input.of(&LENGTHS), input.byte());
        let tag = (flags & 3 > 0).then_some(u64::from(flags >> 2 & 3));
        let data = (flags & 16 > 0).then_some(9);
        let iov = &self.iov(at, context, Use::Read, length, flags & 32 > 0);
        let signaled = flags & 64 > 0;
        let sort = if until == Until::Injected { Sort::Injected } else { Sort::Once };
        let message = Message { to, tag, iov, data, context, until, signaled };
        self.nodes[at].post(self.now, context, sort, |rdm, world| rdm.send(world, message));
    }

    fn receive(&mut self, at: usize, input: &mut Input<'_>) {
        let context = self.nodes[at].next_context();
        let (length, flags) = (input.of(&LENGTHS), input.byte());
        let tagged = flags & 3 > 0;
        let source = (flags & 0xc0 == 0xc0).then_some(self.nodes[at].peers[0].0);
        let ignore = if tagged { u64::from(flags >> 4 & 3) } else { u64::MAX };
        let want = Selector { tag: u64::from(flags >> 2 & 3), ignore, source };
        let multi = (input.byte() & 3 == 0).then_some(64);
        let iov = &self.iov(at, context, Use::Write, length, multi.is_none() && flags & 1 > 0);
        let receive = Receive { tagged, want, iov, context, multi, signaled: flags & 32 > 0 };
        let sort = if multi.is_some() { Sort::Many } else { Sort::Once };
        self.nodes[at].post(self.now, context, sort, |rdm, world| rdm.recv(world, receive));
    }

    fn peek(&mut self, at: usize, input: &mut Input<'_>) {
        let what = input.of(&[Peek::Look, Peek::Claim, Peek::Discard]);
        let tagged = input.bit();
        let want = Selector { tag: u64::from(input.byte() & 3), ignore: u64::MAX, source: None };
        let sort = if what == Peek::Claim { Sort::Claim } else { Sort::Once };
        let context = self.nodes[at].next_context();
        self.nodes[at]
            .post(self.now, context, sort, |rdm, _| rdm.peek(tagged, want, what, context));
    }

    /// Receives or discards a message that was claimed before.
    fn claimed(&mut self, at: usize, input: &mut Input<'_>) {
        let length = input.of(&LENGTHS);
        let Some((context, tagged)) = self.nodes[at].claims.pop() else { return };
        let now = self.now;
        if input.bit() {
            self.nodes[at]
                .post(now, context, Sort::Once, |rdm, _| rdm.discard_claimed(context, tagged));
            return;
        }
        let iov = &self.iov(at, context, Use::Write, length, false);
        let want = Selector { tag: 0, ignore: u64::MAX, source: None };
        let receive = Receive { tagged, want, iov, context, multi: None, signaled: true };
        self.nodes[at]
            .post(now, context, Sort::Once, |rdm, world| rdm.recv_claimed(world, receive));
    }

    /// Returns a range of the other node's shared memory, or one that is beyond it.
    fn remote(length: usize, input: &mut Input<'_>) -> RmaIov {
        let near = u64::from(input.byte()) * 16;
        let addr = if input.byte() > 250 { u64::MAX - near } else { near };
        let rkey = u64::from(RKEY) + u64::from(input.byte() % 3);
        RmaIov { addr, length: length as u64, rkey }
    }

    fn rma(&mut self, at: usize, input: &mut Input<'_>) {
        let to = self.nodes[at].peers[usize::from(input.byte() > 240)];
        let context = self.nodes[at].next_context();
        let (read, flags) = (input.bit(), input.byte());
        let length = input.of(&[0, 1, 300, 2000, SHARED_BYTES, 5000]);
        let of = if read { Use::Write } else { Use::Read };
        let local = &self.iov(at, context, of, length, flags & 1 > 0);
        let remote = &[Self::remote(length, input)];
        let data = (!read && flags & 2 > 0).then_some(u64::from(flags) << 28);
        let until = match flags >> 2 & 3 {
            0 if !read => Until::Injected,
            1 => Until::Delivered,
            _ => Until::Transmitted,
        };
        let sort = if until == Until::Injected { Sort::Injected } else { Sort::Once };
        let rma = Rma { to, read, local, remote, data, context, until, signaled: true };
        self.nodes[at].post(self.now, context, sort, |rdm, world| rdm.rma(world, rma));
    }

    fn atomic(&mut self, at: usize, input: &mut Input<'_>) {
        let to = self.nodes[at].peers[usize::from(input.byte() > 240)];
        let context = self.nodes[at].next_context();
        let op = AtomicOp::ALL[input.below(19)];
        let datatype = Datatype::ALL[input.below(14)];
        let length = datatype.bytes() * input.of(&[1, 1, 2, 5]);
        let fetches = op == AtomicOp::Read || op.compares() || input.bit();
        let bytes = |wanted: bool| if wanted { length } else { 0 };
        let mut piece = |of: Use, wanted: bool| match bytes(wanted) {
            0 => Vec::new(),
            length => self.iov(at, context, of, length, false),
        };
        let operand = &piece(Use::Read, op != AtomicOp::Read);
        let compare = &piece(Use::Read, op.compares());
        let result = &piece(Use::Write, fetches);
        let remote = &[Self::remote(length, input)];
        let (until, signaled) = (Until::Delivered, true);
        self.nodes[at].post(self.now, context, Sort::Once, |rdm, world| {
            rdm.atomic(
                world,
                Atomic {
                    to,
                    op,
                    datatype,
                    operand,
                    compare,
                    result,
                    remote,
                    context,
                    until,
                    signaled,
                },
            )
        });
    }

    fn be_bad(&mut self, input: &mut Input<'_>) {
        let mut rate = || [0, 0, 1, 5, 20, 60][input.below(6)];
        let (loss, swallow, refuse) = (rate(), rate(), rate());
        let (twice, hold, change) = (rate(), rate(), rate());
        self.man.rates = Rates { loss, swallow, refuse, twice, hold, change };
    }

    fn lie(&mut self, at: usize, input: &mut Input<'_>) {
        let Forged { imm, payload } = self.forge(at, input);
        self.throw(at, imm, &payload);
    }

    fn forge(&mut self, to: usize, input: &mut Input<'_>) -> Forged {
        let runs = [self.nodes[to].incarnation(), self.nodes[1 - to].incarnation()];
        Forger { input, man: &mut self.man, to, runs }.forge()
    }

    /// Delivers a forged datagram many times, without waiting for answers.
    fn flood(&mut self, at: usize, input: &mut Input<'_>) {
        let Forged { imm, mut payload } = self.forge(at, input);
        let (which, times) = (input.below(16), input.byte());
        for _ in 0..times {
            self.throw(at, imm, &payload);
            // Message ids and similar fields count up from copy to copy.
            if let Some(byte) = payload.get_mut(which) {
                *byte = byte.wrapping_add(1);
            }
        }
    }

    /// Delivers a recorded datagram again, possibly to the other node, possibly changed.
    fn replay(&mut self, input: &mut Input<'_>) {
        if self.man.templates.is_empty() {
            return;
        }
        let known = self.man.templates[input.below(self.man.templates.len())].clone();
        let to = if input.byte() > 200 { 1 - known.to } else { known.to };
        let (mut imm, mut payload) = (known.imm, known.payload);
        let (place, with) = (input.below(48), input.byte());
        if place < 8 {
            imm ^= u64::from(with) << (8 * place);
        } else if let Some(byte) = payload.get_mut(place - 8) {
            *byte ^= with;
        }
        if input.byte() > 220 {
            payload.truncate(input.below(payload.len() + 1));
        }
        self.throw(to, imm, &payload);
    }

    /// Delivers some of the datagrams that the attacker has delayed, in any order.
    fn let_go(&mut self, input: &mut Input<'_>) {
        for _ in 0..=input.below(16) {
            if self.man.held.is_empty() {
                return;
            }
            let known = self.man.held.swap_remove(input.below(self.man.held.len()));
            self.throw(known.to, known.imm, &known.payload);
        }
    }

    /// Advances the time to the next timer, up to 15 times.
    fn jump(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.byte() & 15 {
            let due = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout()).min();
            self.now = due.map_or(self.now, |due| due.max(self.now));
            self.run(1);
        }
    }
}
