//! Two machines of one cloud: a wire between them, and a card in each. Each card has the public
//! key of the card in the other machine.

use std::fs;
use std::io::{Read, Write};
use std::thread;

use serde_json::Value;

use crate::cable::{End, plug};

use super::machine::{Machine, PATIENCE, Running, connect, listen, wait_until, workers};
use super::pair::make_key;

/// Names of the hosts in the cloud's file.
pub(crate) const NAMES: [&str; 2] = ["alpha", "beta"];
/// The first UDP port of each card.
pub(crate) const PORT: u16 = 7535;

/// Two machines with a wire between them, and the configurations of their cards.
pub(crate) struct Hosts {
    pub(crate) machines: [Machine; 2],
    /// The address of each machine, as it is written in an endpoint: IPv6 addresses have brackets.
    pub(crate) addresses: [String; 2],
}

impl Hosts {
    /// Creates two machines with IPv4 addresses and a wire of this MTU between them.
    pub(crate) fn new(tag: &str, mtu: u16) -> Self {
        Self::between(tag, mtu, ["198.18.0.1", "198.18.0.2"], 24)
    }

    /// Creates two machines with these IP addresses, whose prefix length is `bits`, and a wire of
    /// this MTU between them.
    pub(crate) fn between(tag: &str, mtu: u16, addresses: [&str; 2], bits: u8) -> Self {
        let machines = ["a", "b"].map(|end| Machine::new(&format!("{tag}{end}")));
        let [a, b] = machines.each_ref().map(|machine| machine.namespace.as_str());
        let [first, second] = addresses.map(|address| format!("{address}/{bits}"));
        let end = |namespace, addresses| End { namespace, interface: "v0", addresses };
        plug(&[end(a, &[&first]), end(b, &[&second])], &format!("mtu {mtu}"));
        let bracketed = |address: &str| match address.contains(':') {
            true => format!("[{address}]"),
            false => address.to_owned(),
        };
        Self { machines, addresses: addresses.map(bracketed) }
    }

    /// Writes a key and the settings of each machine. `cloud` is the path of the cloud's file.
    /// `lines` are added to the table `[cloud]`.
    pub(crate) fn configure(&self, cloud: &str, lines: &str) {
        let public = self.machines.each_ref().map(|machine| make_key(&machine.path("key")));
        let workers = workers().map_or_else(String::new, |number| format!("workers = {number}\n"));
        for end in [0, 1] {
            let other = 1 - end;
            let text = format!(
                "[interface]\nmode = \"cloud\"\n{workers}listen = \"{}:{PORT}\"\n\
                 private_key_file = \"key\"\n[cloud]\nvpc = \"{cloud}\"\nhost = \"{}\"\n{lines}\n\
                 [[peer]]\nhost = \"{}\"\nendpoint = \"{}:{PORT}\"\npublic_key = \"{}\"\n",
                self.addresses[end], NAMES[end], NAMES[other], self.addresses[other], public[other],
            );
            fs::write(self.config(end), text).unwrap();
        }
    }

    /// Returns the path of the settings of a machine.
    pub(crate) fn config(&self, end: usize) -> String {
        self.machines[end].path("srd0.toml").to_str().unwrap().to_owned()
    }

    /// Replaces the text of a machine's settings by the result of `change`.
    pub(crate) fn edit(&self, end: usize, change: impl Fn(String) -> String) {
        let text = fs::read_to_string(self.config(end)).unwrap();
        fs::write(self.config(end), change(text)).unwrap();
    }

    /// Makes the settings of a machine those of a network without keys.
    pub(crate) fn remove_keys(&self, end: usize) {
        self.edit(end, |text| {
            let lines = text.lines().map(|line| match line {
                line if line.starts_with("private_key_file") => "protection = \"plain\"",
                line if line.starts_with("public_key") => "",
                line => line,
            });
            lines.collect::<Vec<_>>().join("\n") + "\n"
        });
    }

    /// Starts the card of a machine.
    pub(crate) fn up(&self, end: usize) -> Running {
        self.machines[end].up(&["-c", &self.config(end)])
    }

    /// Starts both cards, and waits until each card has a session with the other card.
    pub(crate) fn both_up(&self) -> [Running; 2] {
        let cards = [self.up(0), self.up(1)];
        for end in [0, 1] {
            self.wait_for_session(end);
        }
        cards
    }

    /// Starts a process that takes over the running card of a machine.
    pub(crate) fn take_over(&self, end: usize, card: &mut Running) -> Running {
        self.machines[end].take_over(card, &["-c", &self.config(end)])
    }

    /// Returns the status of the other host, as the card of a machine reports it.
    pub(crate) fn other(&self, end: usize) -> Value {
        self.machines[end].json(&["card", "status"])["hosts"][0].clone()
    }

    /// Waits until the card of a machine has a session with the card of the other machine.
    pub(crate) fn wait_for_session(&self, end: usize) {
        wait_until("a session", || self.other(end)["up"] == true);
    }

    /// Returns the namespace of an instance. All instances have the name prefix of the first
    /// machine.
    pub(crate) fn instance(&self, name: &str) -> String {
        self.machines[0].instance(name)
    }

    /// Returns the counter `name` of an instance, as the card of a machine reports it.
    pub(crate) fn counter(&self, end: usize, instance: &str, name: &str) -> u64 {
        let whole = format!("{}{instance}", self.machines[0].prefix);
        self.machines[end].json(&["card", "stats", &whole])[name].as_u64().unwrap()
    }

    /// Makes both cards apply a file of the cloud.
    pub(crate) fn apply(&self, file: &str) {
        for machine in &self.machines {
            let applied = machine.srd(&["card", "apply", file]);
            assert!(applied.status.success(), "{applied:#?}");
        }
    }
}

/// Checks that a megabyte of data arrives unchanged over TCP from one instance at another.
pub(crate) fn carries_a_megabyte(from: &str, to: &str, address: [u8; 4]) {
    let listener = listen(to, 5000);
    let mut client = connect(from, address, 5000).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> =
        (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let copy = sent.clone();
    let writer = thread::spawn(move || client.write_all(&copy));
    let mut received = Vec::new();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}
