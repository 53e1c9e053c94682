//! The soak of ENA Express: an endurance test of real daemons, under load, with continuous
//! failures.
//!
//! The soak compares no transports. The run fails if a resource of a daemon grows or leaks, if a
//! process fails, or if state is left behind.
//!
//! | module | contents |
//! |---|---|
//! | `load` | connections and datagrams, with every byte checked |
//! | `churn` | failures, and their repair |
//! | `sample` | resources of the daemons and the system |
//! | `verdict` | evaluation of the samples |

mod churn;
mod load;
mod sample;
mod verdict;

use crate::experiment::measure::result::{Figure, Measured};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe, hosts};
use anyhow::{Context, Result, bail};
use churn::{Kind, Trouble};
use load::Tally;
use srd_lab::config::FabricConfig;
use srd_lab::express::Overlay;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use verdict::History;

/// Time between the begins of two troubles (failures or changes), and time between two samples.
const TROUBLE_EVERY: Duration = Duration::from_secs(6);
const SAMPLE_EVERY: Duration = Duration::from_secs(3);
/// Time after a daemon's start in which it may fail to answer.
const GRACE: Duration = Duration::from_secs(10);
/// Longest time until the long connections continue after every trouble was undone: TCP doubles its
/// retransmission timeout while a path is down.
const RECOVER_MAX: Duration = Duration::from_secs(30);
/// Longest time until the last processes have ended after the daemons were stopped.
const END_MAX: Duration = Duration::from_secs(30);
/// Name of the network device that each daemon creates.
const DEVICE: &str = "srd0";
/// Largest number of errors that the message of a failed run lists.
const WRONGS_SHOWN: usize = 10;
const NAP: Duration = Duration::from_millis(50);

/// The experiment `soak`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "soak",
    summary: "Do daemons run for long, under load and trouble, without growing, leaking or \
              losing a connection?",
    about: "Four daemons carry long TCP connections, short ones that come and go by the hundred, \
            and a UDP stream; every byte is checked. Every six seconds something happens: a \
            daemon is killed and started again, a spine dies, a link slows down, packets are \
            lost, a peer or a setting changes by reload, Express is switched off; and is put right \
            within seconds. The first host's daemon is never restarted. Memory, open files, \
            threads and flows of each daemon are sampled every three seconds, and so are \
            processes; routes, rules and devices are compared with those before. A long \
            connection that dies, a wrong byte, growth without flows that explain it, a daemon \
            that ends or does not answer, or anything that is left behind fails the run. \
            --seconds 1800 is a serious one.",
    repetitions: 1,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let fabric = FabricConfig {
        hosts_per_leaf: 2,
        spines: options.spines.unwrap_or(4),
        host_rate_mbps: 250,
        uplink_rate_mbps: 100,
        ..FabricConfig::default()
    };
    let time = Duration::from_secs(options.seconds_or(120, 12));
    let all: Vec<HostId> = hosts(0, 2).chain(hosts(1, 2)).collect();
    vec![Case {
        name: format!("{} s of trouble", time.as_secs()),
        setting: describe(&fabric),
        fabric,
        hosts: all,
        only: Some(Variant::Express),
        measure: Box::new(move |stage| measure(stage, time)),
    }]
}

/// Method that begins or ends a trouble: [`Trouble::begin`] or [`Trouble::end`].
type Step = fn(&Trouble, &Fabric, &mut Overlay<'_>) -> Result<()>;

/// State of a running soak.
struct Soak<'a, 'f> {
    fabric: &'f Fabric,
    overlay: &'a mut Overlay<'f>,
    hosts: &'a [HostId],
    begun: Instant,
    sample_at: Instant,
    /// Time of each daemon's last start.
    started: BTreeMap<HostId, Instant>,
    /// Host whose daemon is stopped by the current trouble; `None` if no daemon is stopped.
    away: Option<HostId>,
    history: History,
    counts: BTreeMap<Kind, u64>,
    wrong: Vec<String>,
}

/// Returns the number of processes of each kind that are left in the hosts of a fabric: processes
/// that end within [`END_MAX`] are not.
fn left_at_end(fabric: &str) -> Result<[usize; 3]> {
    let until = Instant::now() + END_MAX;
    loop {
        let left = sample::processes(fabric)?;
        if left == [0; 3] || Instant::now() >= until {
            return Ok(left);
        }
        thread::sleep(NAP);
    }
}

fn measure(stage: &mut Stage<'_>, time: Duration) -> Result<Measured> {
    let fabric = stage.fabric;
    let overlay = stage.overlay.take().context("the soak needs daemons")?;
    let (hosts, options) = (overlay.hosts().to_vec(), overlay.options().clone());
    // The network configuration without daemons is the expected state at the end.
    overlay.down()?;
    let space = |host| fabric.host_namespace(host);
    let before = sample::networks(&hosts, space)?;
    let mut overlay = Overlay::up(fabric, &hosts, &options)?;
    let with_daemons = sample::networks(&hosts, space)?;
    let pairs = [(0, 2), (3, 0), (1, 3), (2, 1)].map(|(from, to)| (hosts[from], hosts[to]));
    let tally = Tally::new(pairs.len());
    let mut soak = Soak::new(fabric, &mut overlay, &hosts);
    thread::scope(|scope| {
        let stop = StopOnDrop(&tally);
        tally.start(scope, fabric, &hosts, &pairs, stage.seed.into())?;
        soak.run(time, stage.seed)?;
        soak.recover(&tally)?;
        drop(stop);
        anyhow::Ok(())
    })?;
    let after = sample::networks(&hosts, space)?;
    for (host, network) in &after {
        for line in network.beyond(&with_daemons[host]) {
            soak.wrong.push(format!("{host}, beyond what a daemon sets up: {line}"));
        }
    }
    let Soak { history, counts, mut wrong, .. } = soak;
    let counters = overlay.counters()?;
    overlay.down()?;
    let left = sample::networks(&hosts, space)?;
    for (host, network) in &left {
        let lines = network.beyond(&before[host]);
        let ours = [&network.routes, &network.devices].into_iter().flatten();
        let ours = ours.filter(|line| line.contains(DEVICE)).cloned();
        for line in lines.into_iter().chain(ours) {
            wrong.push(format!("{host}, left behind: {line}"));
        }
    }
    let processes = left_at_end(fabric.name())?;
    if processes != [0; 3] {
        wrong.push(format!("{processes:?} daemons, network processes and others are left"));
    }
    if counters.get("ena_srd_tx_pkts").copied().unwrap_or(0.0) < 1.0 {
        wrong.push("nothing went over SRD".into());
    }
    wrong.extend(verdict::kept(&history, hosts[0]));
    wrong.extend(verdict::load(&tally));
    let lines = |networks: &BTreeMap<HostId, sample::HostNetwork>| {
        networks.values().map(|n| n.routes.len() + n.rules.len()).sum::<usize>() as f64
    };
    let mut figures = verdict::load_figures(&tally);
    figures.extend(verdict::figures(&history, hosts[0]));
    figures.push(Figure::new("routes and rules before", "", lines(&before)));
    figures.push(Figure::new("routes and rules after", "", lines(&left)));
    figures.extend(counts.iter().map(|(kind, count)| Figure::new(kind.name(), "", *count as f64)));
    judge(&wrong, &figures)?;
    let measured = Measured { figures, samples: verdict::samples(&history), ..Measured::default() };
    Ok(measured)
}

/// Stops the load when dropped, even if the soak fails: the thread scope waits for the threads of
/// the load, which would otherwise run for ever.
struct StopOnDrop<'a>(&'a Tally);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn judge(wrong: &[String], figures: &[Figure]) -> Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let said = figures.iter().map(|f| format!("{} {:.1} {}", f.name, f.value, f.unit));
    let said: Vec<_> = said.map(|text| text.trim().to_owned()).collect();
    bail!(
        "{} things are wrong:\n  {}\nfigures: {}",
        wrong.len(),
        wrong[..wrong.len().min(WRONGS_SHOWN)].join("\n  "),
        said.join("; ")
    )
}

impl<'a, 'f> Soak<'a, 'f> {
    fn new(fabric: &'f Fabric, overlay: &'a mut Overlay<'f>, hosts: &'a [HostId]) -> Self {
        let now = Instant::now();
        Soak {
            fabric,
            overlay,
            hosts,
            begun: now,
            sample_at: now,
            started: hosts.iter().map(|host| (*host, now)).collect(),
            away: None,
            history: History::new(),
            counts: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    /// Causes one trouble after another for the given time.
    fn run(&mut self, time: Duration, seed: u32) -> Result<()> {
        let (mut random, mut deck) = (Random::new(seed.into()), Vec::new());
        let spines = self.fabric.config().spines;
        let until = self.begun + time;
        let mut next = self.begun + NAP;
        // An interval of at most a seventh lets short runs include all seven kinds of trouble.
        let every = TROUBLE_EVERY.min(time / 7);
        while next < until {
            self.watch_until(next)?;
            let mut trouble = Trouble::any(&mut random, &mut deck, self.hosts, spines);
            trouble.lasts = trouble.lasts.min(every / 2);
            self.away = (trouble.kind == Kind::DaemonKilled).then_some(trouble.host);
            *self.counts.entry(trouble.kind).or_default() += 1;
            let what = trouble.kind.name();
            self.when_ready(&trouble, Trouble::begin)
                .with_context(|| format!("{what}: to begin"))?;
            self.watch_until(Instant::now() + trouble.lasts)?;
            self.when_ready(&trouble, Trouble::end).with_context(|| format!("{what}: to end"))?;
            if self.away.take().is_some() {
                self.started.insert(trouble.host, Instant::now());
            }
            next += every;
        }
        self.watch_until(until)
    }

    /// Begins or ends a trouble. Retries while the daemon of the host has just been started and has
    /// no control socket yet.
    fn when_ready(&mut self, trouble: &Trouble, step: Step) -> Result<()> {
        loop {
            match step(trouble, self.fabric, self.overlay) {
                Err(_) if self.is_young(trouble.host) => thread::sleep(NAP),
                result => return result,
            }
        }
    }

    fn is_young(&self, host: HostId) -> bool {
        self.started.get(&host).is_none_or(|at| at.elapsed() < GRACE)
    }

    fn watch_until(&mut self, moment: Instant) -> Result<()> {
        while Instant::now() < moment {
            if Instant::now() >= self.sample_at {
                self.sample_at += SAMPLE_EVERY;
                self.sample()?;
            }
            let rest = moment.saturating_duration_since(Instant::now());
            thread::sleep(rest.min(NAP));
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        let at_s = self.begun.elapsed().as_secs_f64();
        for host in self.hosts {
            if self.away == Some(*host) {
                continue;
            }
            if let Some(status) = self.overlay.ended(*host)? {
                bail!(
                    "the daemon of {host} ended by itself ({status}); run again with --keep and \
                       read its log"
                );
            }
            match sample::daemon(self.overlay, *host, at_s) {
                Ok(sample) => self.history.entry(*host).or_default().push(sample),
                Err(_) if self.is_young(*host) => {}
                Err(error) => {
                    self.wrong.push(format!("at {at_s:.0} s, the daemon of {host}: {error:#}"));
                }
            }
        }
        let settled = self.away.is_none() && !self.hosts.iter().any(|host| self.is_young(*host));
        let processes = sample::processes(self.fabric.name())?;
        let all = self.hosts.len();
        if settled && processes != [all, all, 0] {
            self.wrong.push(format!(
                "at {at_s:.0} s: {processes:?} daemons, network processes and others in the \
                 hosts, not {all}, {all} and none"
            ));
        }
        Ok(())
    }

    /// Heals the fabric; checks that the daemons reach each other, and that every long connection
    /// continues.
    fn recover(&mut self, tally: &Tally) -> Result<()> {
        self.fabric.heal_all()?;
        self.overlay.wait_until_up()?;
        let bytes = || -> Vec<u64> { tally.long.iter().map(|l| l.bytes.load(Relaxed)).collect() };
        let before = bytes();
        let deadline = Instant::now() + RECOVER_MAX;
        loop {
            self.watch_until(Instant::now() + 2 * NAP)?;
            let still: Vec<usize> =
                (0..before.len()).filter(|n| bytes()[*n] == before[*n]).collect();
            if still.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let s = RECOVER_MAX.as_secs();
                self.wrong.push(format!(
                    "long connections {still:?} bring nothing {s} s after all has healed"
                ));
                return Ok(());
            }
        }
    }
}
