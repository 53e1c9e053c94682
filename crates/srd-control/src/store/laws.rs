//! Properties that every kind of store must have, as tests that run on each kind.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use super::{CommitError, KeyChange, News, Store};

type State = BTreeMap<String, String>;

/// A step of a test, which one of the controllers takes.
#[derive(Clone, Debug)]
enum Step {
    Commit(usize, Vec<KeyChange>),
    Refresh(usize),
    /// The controller ends, and another one starts in its place.
    Restart(usize),
}

fn changes() -> impl Strategy<Value = Vec<KeyChange>> {
    let change = (0..12_u8, proptest::option::of((0..3_u8, 0..9_u8)));
    let small = proptest::collection::vec(change, 1..6);
    (small, 0..20_u8).prop_map(|(small, kind)| {
        let change = |(key, value): (u8, Option<(u8, u8)>)| {
            let text = |(size, c): (u8, u8)| c.to_string().repeat([0, 20, 5000][usize::from(size)]);
            (format!("object/{key}"), value.map(text))
        };
        let mut changes: Vec<KeyChange> = small.into_iter().map(change).collect();
        // A transaction with more changes than etcd accepts at once.
        if kind == 0 {
            changes.extend((0..150).map(|n| (format!("many/{n}"), Some(n.to_string()))));
        }
        if kind == 1 {
            changes.extend((0..150).map(|n| (format!("many/{n}"), None)));
        }
        // Of several changes of a key, only the last is kept.
        let last: BTreeMap<String, Option<String>> = changes.into_iter().collect();
        last.into_iter().collect()
    })
}

fn steps(controllers: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..controllers, changes()).prop_map(|(of, changes)| Step::Commit(of, changes)),
        3 => (0..controllers).prop_map(Step::Refresh),
        1 => (0..controllers).prop_map(Step::Restart),
    ];
    proptest::collection::vec(step, 1..16)
}

fn apply(state: &mut State, changes: Vec<KeyChange>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(state.insert(key, value)),
            None => drop(state.remove(&key)),
        }
    }
}

/// A controller: its store, and the state and the number of transactions that it has read.
struct Controller {
    store: Option<Box<dyn Store>>,
    known: State,
    number: usize,
}

impl Controller {
    fn start(&mut self, store: Box<dyn Store>, state: &State, number: usize) -> TestCaseResult {
        let store = self.store.insert(store);
        self.known = store.load().map_err(TestCaseError::fail)?.into_iter().collect();
        self.number = number;
        prop_assert_eq!(&self.known, state);
        Ok(())
    }
}

/// Runs random steps of several controllers that use one store. `make` returns a function that
/// opens the same new store each time.
pub(crate) fn check<F>(cases: u32, controllers: usize, mut make: impl FnMut() -> F)
where
    F: Fn() -> Box<dyn Store>,
{
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let opens = std::cell::RefCell::new(&mut make);
    let checked = runner.run(&steps(controllers), |steps| {
        let open = (opens.borrow_mut())();
        run(&open, controllers, steps)
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

fn run(open: &dyn Fn() -> Box<dyn Store>, controllers: usize, steps: Vec<Step>) -> TestCaseResult {
    let (mut state, mut number) = (State::new(), 0);
    let mut all = Vec::new();
    for _ in 0..controllers {
        let mut controller = Controller { store: None, known: State::new(), number };
        controller.start(open(), &state, number)?;
        all.push(controller);
    }
    for step in steps {
        match step {
            Step::Commit(of, changes) => {
                let of = &mut all[of];
                let made = of.store.as_mut().map(|store| store.commit(changes.clone()));
                if of.number == number {
                    prop_assert_eq!(made, Some(Ok(())));
                    number += 1;
                    of.number = number;
                    apply(&mut state, changes.clone());
                    apply(&mut of.known, changes);
                } else {
                    prop_assert_eq!(made, Some(Err(CommitError::Conflict)));
                }
            }
            Step::Refresh(of) => {
                let of = &mut all[of];
                match of.store.as_mut().map(|store| store.refresh()) {
                    Some(Ok(News::Changes(changes))) => apply(&mut of.known, changes),
                    Some(Ok(News::All(all))) => of.known = all.into_iter().collect(),
                    Some(Err(error)) => return Err(TestCaseError::fail(error)),
                    None => return Err(TestCaseError::fail("the controller has no store")),
                }
                of.number = number;
                prop_assert_eq!(&of.known, &state);
            }
            Step::Restart(of) => {
                all[of].store = None;
                all[of].start(open(), &state, number)?;
            }
        }
    }
    Ok(())
}
