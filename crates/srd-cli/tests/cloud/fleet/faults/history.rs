//! Clients that create, describe and delete launch templates at both controllers, and the check
//! that their answers are those of one server without faults: the history of each template is
//! linearizable. Stateright's tester makes the check.
//!
//! An operation whose outcome is uncertain, because its answer was lost, may take effect at any
//! later time, or never. An operation that is refused with the status 503 must never take effect.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

use super::*;

/// Clients of each controller.
const CLIENTS: usize = 2;
/// Number of templates with which the clients work at a time.
const TEMPLATES: usize = 3;
/// Number of operations on a template before another one takes its place. The time of the check
/// grows fast with this number.
const OPERATIONS: usize = 10;
/// Pause between two operations of a client.
const PAUSE: Duration = Duration::from_millis(40);

/// An operation on a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Create,
    Delete,
    Describe,
}

/// The answer to an operation: whether it has found the template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Found,
    Missing,
}

/// A template as one server without faults has it: whether it exists.
#[derive(Clone, Debug, Default)]
struct Template(bool);

impl SequentialSpec for Template {
    type Op = Operation;
    type Ret = Answer;

    fn invoke(&mut self, operation: &Operation) -> Answer {
        let found = self.0;
        self.0 = match operation {
            Operation::Create => true,
            Operation::Delete => false,
            Operation::Describe => found,
        };
        if found { Answer::Found } else { Answer::Missing }
    }
}

/// Outcome of an operation, as its client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Answer(Answer),
    /// The operation has no effect.
    Refused,
    /// The answer was lost.
    Unknown,
}

/// Beginning or end of an operation with a number of its own.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin { number: usize, template: usize, operation: Operation },
    End { number: usize, outcome: Outcome },
}

/// Events in the order of their times.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    begun: usize,
    /// The templates of the present, each with the number of operations on it.
    present: Vec<(usize, usize)>,
    templates: usize,
}

impl Log {
    /// Begins an operation on one of the present templates. Returns its number and the template.
    fn begin(&mut self, slot: usize, operation: Operation) -> (usize, usize) {
        if self.present[slot].1 >= OPERATIONS {
            self.present[slot] = (self.templates, 0);
            self.templates += 1;
        }
        self.present[slot].1 += 1;
        let template = self.present[slot].0;
        (self.record(template, operation), template)
    }

    fn record(&mut self, template: usize, operation: Operation) -> usize {
        let number = self.begun;
        self.begun += 1;
        self.events.push(Event::Begin { number, template, operation });
        number
    }
}

/// Clients that run.
pub(super) struct History {
    log: Arc<Mutex<Log>>,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    endpoints: Vec<(String, Endpoint)>,
}

fn name(template: usize) -> String {
    format!("template-{template}")
}

/// Sends an operation from the present network namespace.
fn send(endpoint: &Endpoint, template: usize, operation: Operation) -> Outcome {
    let name = name(template);
    let (action, parameters, missing) = match operation {
        Operation::Create => (
            "CreateLaunchTemplate",
            format!("LaunchTemplateName={name}&LaunchTemplateData.InstanceType=c7i.large"),
            "",
        ),
        Operation::Delete => {
            ("DeleteLaunchTemplate", format!("LaunchTemplateName={name}"), ".NotFoundException")
        }
        Operation::Describe => {
            let of = format!("LaunchTemplateName.1={name}");
            ("DescribeLaunchTemplates", of, ".NotFoundException")
        }
    };
    match endpoint.send(action, &parameters) {
        Ok((200, _)) if operation == Operation::Create => Outcome::Answer(Answer::Missing),
        Ok((200, _)) => Outcome::Answer(Answer::Found),
        Ok((503, _)) => Outcome::Refused,
        Ok((400, answer)) if answer.contains("AlreadyExists") => Outcome::Answer(Answer::Found),
        Ok((400, answer)) if !missing.is_empty() && answer.contains(missing) => {
            Outcome::Answer(Answer::Missing)
        }
        Ok((500, _)) => Outcome::Unknown,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Outcome::Refused,
        Err(_) => Outcome::Unknown,
        Ok((status, answer)) => panic!("{action}: {status} {answer}"),
    }
}

fn work(log: &Mutex<Log>, endpoint: &Endpoint, ends: &AtomicBool, seed: u64) {
    let mut dice = Dice::new(seed);
    while !ends.load(Ordering::Relaxed) {
        let operations = [Operation::Create, Operation::Delete, Operation::Describe];
        let operation = operations[dice.below(operations.len())];
        let (number, template) = log.lock().unwrap().begin(dice.below(TEMPLATES), operation);
        let outcome = send(endpoint, template, operation);
        log.lock().unwrap().events.push(Event::End { number, outcome });
        std::thread::sleep(PAUSE);
    }
}

impl History {
    /// Starts clients on the machine of each controller.
    pub(super) fn start(endpoints: Vec<(String, Endpoint)>) -> Self {
        let present = (0..TEMPLATES).map(|template| (template, 0)).collect();
        let log = Log { present, templates: TEMPLATES, ..Log::default() };
        let (log, ends) = (Arc::new(Mutex::new(log)), Arc::<AtomicBool>::default());
        let mut clients = Vec::new();
        for (namespace, endpoint) in &endpoints {
            for _ in 0..CLIENTS {
                let (log, ends) = (Arc::clone(&log), Arc::clone(&ends));
                let (namespace, endpoint) = (namespace.clone(), endpoint.clone());
                let seed = clients.len() as u64;
                clients.push(std::thread::spawn(move || {
                    within(&namespace, || work(&log, &endpoint, &ends, seed));
                }));
            }
        }
        Self { log, ends, clients, endpoints }
    }

    /// Ends the clients, reads each template at each controller, and checks the history. Returns a
    /// summary.
    pub(super) fn end(self) -> String {
        self.ends.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        let mut log = std::mem::take(&mut *self.log.lock().unwrap());
        for (namespace, endpoint) in &self.endpoints {
            let numbers: Vec<usize> =
                (0..log.templates).map(|of| log.record(of, Operation::Describe)).collect();
            let (status, all) =
                within(namespace, || endpoint.send("DescribeLaunchTemplates", "").unwrap());
            assert_eq!(status, 200, "{all}");
            for (template, number) in numbers.into_iter().enumerate() {
                let is_there = all.contains(&format!(">{}<", name(template)));
                let answer = if is_there { Answer::Found } else { Answer::Missing };
                log.events.push(Event::End { number, outcome: Outcome::Answer(answer) });
            }
        }
        check(&log.events).unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Checks that the history of each template is linearizable, and returns a summary.
fn check(events: &[Event]) -> Result<String, String> {
    let mut outcomes = BTreeMap::new();
    for event in events {
        if let Event::End { number, outcome } = event {
            outcomes.insert(*number, *outcome);
        }
    }
    let count = |of: fn(&Outcome) -> bool| outcomes.values().filter(|outcome| of(outcome)).count();
    let unknown = count(|outcome| *outcome == Outcome::Unknown);
    let refused = count(|outcome| *outcome == Outcome::Refused);
    let mut testers: BTreeMap<usize, LinearizabilityTester<usize, Template>> = BTreeMap::new();
    let mut template_of = BTreeMap::new();
    for event in events {
        match *event {
            Event::Begin { number, template, operation } => {
                if outcomes.get(&number) == Some(&Outcome::Refused) {
                    continue;
                }
                template_of.insert(number, template);
                testers.entry(template).or_default().on_invoke(number, operation)?;
            }
            Event::End { number, outcome: Outcome::Answer(answer) } => {
                let tester = template_of.get(&number).and_then(|of| testers.get_mut(of));
                tester.ok_or("an answer without an operation")?.on_return(number, answer)?;
            }
            Event::End { .. } => {}
        }
    }
    for (template, tester) in &testers {
        if !tester.is_consistent() {
            let of = |event: &&Event| match event {
                Event::Begin { template: of, .. } => of == template,
                Event::End { number, .. } => template_of.get(number) == Some(template),
            };
            let all: Vec<&Event> = events.iter().filter(of).collect();
            return Err(format!("{} is not linearizable: {all:#?}", name(*template)));
        }
    }
    Ok(format!(
        "{} operations on {} templates are linearizable; {unknown} of them have an unknown \
         outcome, {refused} were refused",
        outcomes.len(),
        testers.len()
    ))
}

/// The check finds a change that is lost, and one of an operation that was refused. A change with
/// an unknown outcome may take effect or not.
#[test]
fn the_check_of_histories_finds_changes_that_are_lost_or_made_up() {
    let begin = |number, operation| Event::Begin { number, template: 0, operation };
    let end = |number, outcome| Event::End { number, outcome };
    let found = Outcome::Answer(Answer::Found);
    let missing = Outcome::Answer(Answer::Missing);
    let history = |created: Outcome, described: Outcome| {
        check(&[
            begin(0, Operation::Create),
            end(0, created),
            begin(1, Operation::Describe),
            end(1, described),
        ])
    };
    history(missing, found).unwrap();
    assert!(history(missing, missing).unwrap_err().contains("template-0 is not linearizable"));
    history(Outcome::Refused, missing).unwrap();
    history(Outcome::Refused, found).unwrap_err();
    history(Outcome::Unknown, missing).unwrap();
    history(Outcome::Unknown, found).unwrap();
    // Two deletions of one template cannot both have found it.
    let deletions = |second: Outcome| {
        check(&[
            begin(0, Operation::Create),
            end(0, missing),
            begin(1, Operation::Delete),
            begin(2, Operation::Delete),
            end(1, found),
            end(2, second),
        ])
    };
    deletions(missing).unwrap();
    deletions(found).unwrap_err();
    deletions(Outcome::Unknown).unwrap();
}
