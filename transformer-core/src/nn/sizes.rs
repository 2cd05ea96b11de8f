//! Rules that several configurations share.

use crate::error::ConfigError;

/// The largest size of any dimension: far above any model, far below an overflow.
const SIZE_LIMIT: usize = 1 << 24;

/// Checks that every size is at least one and can be allocated.
pub(crate) fn check_sizes(sizes: &[(&'static str, usize)]) -> Result<(), ConfigError> {
    for &(key, value) in sizes {
        if value == 0 {
            return Err(ConfigError::Zero { key });
        }
        if value > SIZE_LIMIT {
            return Err(ConfigError::TooLarge {
                key,
                value,
                limit: SIZE_LIMIT,
            });
        }
    }
    Ok(())
}

/// Panics where a size of a layer that is being built is zero.
#[track_caller]
pub(crate) fn assert_sizes(sizes: &[(&'static str, usize)]) {
    for &(key, value) in sizes {
        assert!(value > 0, "{}", ConfigError::Zero { key });
    }
}
