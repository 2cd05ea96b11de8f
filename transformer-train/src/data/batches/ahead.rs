//! Prefetching: items that a background thread prepares before they are needed.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// The items of an iterator in order, prepared by a background thread up to a fixed number of items ahead.
///
/// The thread ends with the iterator, or when this is dropped; dropping waits for the thread.
pub(crate) struct Ahead<T> {
    /// `None` once dropped.
    items: Option<Receiver<T>>,
    /// `None` once it has ended.
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Ahead<T> {
    pub fn new(items: impl Iterator<Item = T> + Send + 'static, ahead: usize) -> Self {
        let (sender, receiver) = sync_channel(ahead);
        let thread = thread::spawn(move || {
            for item in items {
                if sender.send(item).is_err() {
                    break;
                }
            }
        });
        Self {
            items: Some(receiver),
            thread: Some(thread),
        }
    }
}

impl<T> Iterator for Ahead<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let item = self.items.as_ref()?.recv().ok();
        // A panic of the thread is propagated to the thread that waits for its items.
        if item.is_none()
            && let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
        item
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        // The thread ends once the receiver is dropped.
        self.items = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn items_keep_their_order_and_end() {
        let mut items = Ahead::new(0..100, 4);
        assert!(items.by_ref().eq(0..100));
        assert_eq!(items.next(), None);
    }

    #[test]
    fn items_are_prepared_before_they_are_asked_for_but_no_more_than_a_few() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let endless = (0..).inspect(move |_: &usize| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let mut items = Ahead::new(endless, 4);
        // Four wait in the channel, and the thread holds the fifth.
        let deadline = Instant::now() + Duration::from_secs(60);
        while made.load(Ordering::SeqCst) < 5 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(made.load(Ordering::SeqCst), 5);
        assert_eq!(items.next(), Some(0));
        drop(items);
        assert!(made.load(Ordering::SeqCst) <= 6);
        assert_eq!(Arc::strong_count(&made), 1, "the thread has ended");
    }

    #[test]
    fn a_panic_of_the_thread_comes_after_the_items_before_it() {
        let failing = (0..5).map(|number: usize| match number {
            3 => panic!("no such number"),
            number => number,
        });
        let mut items = Ahead::new(failing, 4);
        let before: Vec<_> = items.by_ref().take(3).collect();
        assert_eq!(before, [0, 1, 2]);
        let panic = catch_unwind(AssertUnwindSafe(|| items.next())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"no such number"));
        assert_eq!(items.next(), None);
    }
}
