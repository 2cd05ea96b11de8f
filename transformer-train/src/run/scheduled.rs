//! Which checkpoints are a run's last ones.

use serde::{Deserialize, Serialize};

/// The updates of a run's newest *scheduled* checkpoints, in order.
///
/// A checkpoint is scheduled if the settings alone determine it: after a multiple of `validate_every` or
/// `checkpoint_every` updates. Others are written after some minutes, or when a run ends or is interrupted. They
/// serve to resume the run, and only while they are the newest. Otherwise the last checkpoints of a run, which are
/// averaged, would depend on the clock and on when the run was stopped.
///
/// Records of older versions lack them: there, every checkpoint counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Scheduled(Option<Vec<usize>>);

impl Scheduled {
    /// None yet.
    pub fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// These, or `all` if they were not recorded.
    pub fn or(self, all: impl IntoIterator<Item = usize>) -> Self {
        Self(Some(self.0.unwrap_or_else(|| all.into_iter().collect())))
    }

    /// Adds the checkpoint of an update, unless it is already the last, and drops all but the newest `keep`.
    pub fn add(&mut self, update: usize, keep: usize) {
        let updates = self.0.get_or_insert_default();
        if updates.last() != Some(&update) {
            updates.push(update);
        }
        let old = updates.len().saturating_sub(keep);
        updates.drain(..old);
    }

    /// The newest `count` of the last checkpoints among `there`, in order: scheduled ones, and the checkpoint of
    /// update `newest`.
    pub fn last(&self, newest: usize, there: &[usize], count: usize) -> Vec<usize> {
        let scheduled = |update: usize| {
            let updates = self.0.as_ref();
            updates.is_none_or(|updates| updates.contains(&update))
        };
        let mut last: Vec<usize> = there.to_vec();
        last.retain(|&update| update == newest || scheduled(update));
        last.split_off(last.len().saturating_sub(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduled(updates: &[usize]) -> Scheduled {
        Scheduled(Some(updates.to_vec()))
    }

    #[test]
    fn the_newest_ones_are_remembered_each_once() {
        let mut all = Scheduled::none();
        for update in [4, 8, 8, 12] {
            all.add(update, 2);
        }
        assert_eq!(all, scheduled(&[8, 12]));
        all.add(16, 5);
        assert_eq!(all, scheduled(&[8, 12, 16]));
    }

    #[test]
    fn the_last_ones_are_scheduled_or_the_newest() {
        // 2 was kept for its validation, 13 was written by the clock, 14 by an interruption.
        let there = [2, 8, 12, 13, 14];
        let all = scheduled(&[8, 12]);
        assert_eq!(all.last(14, &there, 9), [8, 12, 14]);
        assert_eq!(all.last(14, &there, 2), [12, 14]);
        assert_eq!(all.last(12, &there[..3], 9), [8, 12]);
        assert!(all.last(14, &[], 2).is_empty());
    }

    #[test]
    fn without_a_record_all_are_scheduled() {
        let older: Scheduled = serde_json::from_str("null").unwrap();
        assert_eq!(older, Scheduled::default());
        assert_eq!(older.last(14, &[8, 12, 13, 14], 3), [12, 13, 14]);
        assert_eq!(older.or([8, 12]), scheduled(&[8, 12]));
        assert_eq!(scheduled(&[12]).or([8, 12]), scheduled(&[12]));
    }
}
