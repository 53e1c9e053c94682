//! The control plane that several threads share.

use std::sync::{Mutex, PoisonError};

use super::Control;
use crate::machines::Unconfirmed;

/// Runs a task with the control plane, and waits afterwards for the hosts that its own changes
/// concern, but not for those of changes of other controllers that it takes over. Other tasks run
/// during the wait, so a slow host delays only the tasks that concern it. A task that starts
/// instances is the exception: it fails if their hosts refuse them, so it waits for these hosts
/// with the control plane.
///
/// The state is whole even after a panic of another task: the next request undoes its changes.
pub fn run<T>(control: &Mutex<Control>, task: impl FnOnce(&mut Control) -> T) -> T {
    let (result, unconfirmed) = {
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        let result = task(&mut control);
        (result, control.machines.unconfirmed())
    };
    if let Some(unconfirmed) = unconfirmed {
        unconfirmed.wait();
    }
    result
}

/// Runs a task of no request, and does not wait for hosts. With `takes_wait`, also returns the wait
/// for the hosts that do not use a state yet for which no request waits. This wait reports hosts
/// that are late, or have refused the state.
pub fn run_apart<T>(
    control: &Mutex<Control>,
    takes_wait: bool,
    task: impl FnOnce(&mut Control) -> T,
) -> (T, Option<Unconfirmed>) {
    let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
    let result = task(&mut control);
    control.machines.set_aside();
    let wait = if takes_wait { control.machines.followed() } else { None };
    (result, wait)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::control::Access;
    use crate::machines::Machines;
    use crate::state::{Instance, Region};
    use crate::store::MemoryStore;

    /// Machines that use the change of the first task as soon as the test permits it.
    struct Late(Option<mpsc::Receiver<()>>);

    impl Machines for Late {
        fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
            Ok(())
        }

        fn stop(&mut self, _: &Region, _: &Instance) {}

        fn unconfirmed(&mut self) -> Option<Unconfirmed> {
            let permitted = self.0.take()?;
            Some(Unconfirmed::new(move || permitted.recv().unwrap()))
        }

        fn run_programs(&self) -> bool {
            false
        }
    }

    /// A request that waited for a host kept all other requests waiting.
    #[test]
    fn regression_a_wait_for_a_host_delays_no_other_task() {
        let (permit, permitted) = mpsc::channel();
        let late = Late(Some(permitted));
        let store = Box::<MemoryStore>::default();
        let control = Control::new(Access::AnyCredentials, 7, store, Box::new(late)).unwrap();
        let control = Mutex::new(control);
        let (inside, is_inside) = mpsc::channel();
        thread::scope(|scope| {
            let first = scope.spawn(|| run(&control, move |_| inside.send(()).unwrap()));
            is_inside.recv().unwrap();
            // If the first task kept the lock, this one would wait for ever.
            run(&control, |_| ());
            assert!(!first.is_finished());
            permit.send(()).unwrap();
        });
    }
}
