//! The elapsed time of a run, and an estimate of the remaining time.

use std::time::{Duration, Instant};

/// The clock of a run.
pub(super) struct RunClock {
    started: Instant,
    /// Number of updates in the run.
    updates: usize,
    deadline: Option<Instant>,
    /// The update from which the rate is measured, and when it was made. Not the first update, which also compiles
    /// kernels or waits for a device.
    since: Option<(usize, Instant)>,
}

impl RunClock {
    pub fn new(started: Instant, updates: usize, deadline: Option<Instant>) -> Self {
        Self {
            started,
            updates,
            deadline,
            since: None,
        }
    }

    /// Time since the run was started or resumed.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Time until all updates are made at the rate so far, validations included, or until the deadline, whichever
    /// comes first. `None` before there is a rate.
    pub fn left(&mut self, update: usize, now: Instant) -> Option<Duration> {
        let (first, since) = *self.since.get_or_insert((update, now));
        let made = update.saturating_sub(first);
        let by_rate = (made > 0).then(|| {
            let rest = self.updates.saturating_sub(update) as f64;
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            Duration::try_from_secs_f64(seconds / made as f64 * rest)
        });
        let by_rate = by_rate.and_then(Result::ok);
        let by_deadline = self.deadline;
        let by_deadline = by_deadline.map(|end| end.saturating_duration_since(now));
        by_rate.into_iter().chain(by_deadline).min()
    }
}

/// Minutes and seconds, and hours if any: `1:02:03`.
pub(super) fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn durations_are_hours_minutes_and_seconds() {
        let cases = [
            (0, "0:00"),
            (59, "0:59"),
            (61, "1:01"),
            (3599, "59:59"),
            (3723, "1:02:03"),
            (360_000, "100:00:00"),
        ];
        for (duration, expected) in cases {
            assert_eq!(shown(seconds(duration)), expected);
        }
    }

    /// The first update takes 60 seconds, and each later one 2.
    #[test]
    fn time_left_follows_the_rate_after_the_first_update() {
        let start = Instant::now();
        let mut clock = RunClock::new(start, 100, None);
        assert_eq!(clock.left(1, start + seconds(60)), None);
        let now = start + seconds(60 + 2 * 9);
        assert_eq!(clock.left(10, now), Some(seconds(180)));
        assert_eq!(clock.elapsed(now), seconds(78));
        let end = start + seconds(60 + 2 * 99);
        assert_eq!(clock.left(100, end), Some(seconds(0)));
    }

    #[test]
    fn a_deadline_ends_the_run_before_its_updates_or_after_them() {
        let start = Instant::now();
        let mut clock = RunClock::new(start, 100, Some(start + seconds(90)));
        let mut left = |update, at| clock.left(update, start + seconds(at));
        assert_eq!(left(1, 10), Some(seconds(80)));
        // 98 updates of 2 seconds would take longer.
        assert_eq!(left(2, 12), Some(seconds(78)));
        // 19 updates of half a second take less.
        assert_eq!(left(81, 50), Some(Duration::from_millis(9_500)));
        assert_eq!(left(82, 95), Some(seconds(0)));
    }
}
