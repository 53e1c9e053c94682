use super::*;
use crate::objects::domain::{Kind, tests::domain};

fn queue(size: usize) -> CompletionQueue {
    let slot = Slot::take(&domain(), Kind::CompletionQueue).unwrap();
    CompletionQueue::new(slot, size, Format::Tagged, WaitMode::Calls).unwrap()
}

fn failed(context: usize) -> Completion {
    let failure = Failure { error: 5, provider_error: 1, overflow: 0, text: "why".into() };
    Completion { context, failure: Some(Box::new(failure)), ..Completion::default() }
}

fn contexts(queue: &CompletionQueue, most: usize) -> Outcome<Vec<usize>> {
    let mut found = Vec::new();
    queue.read(most, |_, completion| found.push(completion.context))?;
    Ok(found)
}

#[test]
fn a_failure_waits_in_line_and_is_read_alone() {
    let queue = queue(8);
    for completion in [Completion { context: 1, ..Completion::default() }, failed(2)] {
        queue.queue().push(completion).unwrap();
    }
    queue.queue().push(Completion { context: 3, ..Completion::default() }).unwrap();
    assert_eq!(queue.read_failure().unwrap_err(), Errno(FI_EAGAIN));
    assert_eq!(contexts(&queue, 8), Ok(vec![1]));
    assert_eq!(contexts(&queue, 8), Err(Errno(FI_EAVAIL)));
    let (completion, failure) = queue.read_failure().unwrap();
    assert_eq!((completion.context, failure.text.as_str()), (2, "why"));
    assert_eq!(contexts(&queue, 8), Ok(vec![3]));
    assert_eq!(contexts(&queue, 8), Err(Errno(FI_EAGAIN)));
}

#[test]
fn the_size_is_the_applications_and_has_a_limit() {
    let queue = queue(2);
    for _ in 0..2 {
        queue.queue().push(Completion::default()).unwrap();
    }
    assert!(queue.queue().push(Completion::default()).is_err());
    let slot = Slot::take(&domain(), Kind::CompletionQueue).unwrap();
    let refused = CompletionQueue::new(slot, COMPLETIONS_MAX + 1, Format::Data, WaitMode::None);
    assert_eq!(refused.unwrap_err(), Errno(FI_EINVAL));
}

#[test]
fn nothing_in_time_is_try_again_and_a_signal_is_canceled() {
    let queue = queue(2);
    assert_eq!(queue.wait_read(1, 0, |_, _| ()), Err(Errno(FI_EAGAIN)));
    queue.queue().signal();
    assert_eq!(queue.wait_read(1, -1, |_, _| ()), Err(Errno(FI_ECANCELED)));
}
