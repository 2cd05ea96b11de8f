//! Memory that calls reuse.

/// The first `count` numbers of a buffer, which grows if it is shorter. They have the values of
/// its last use.
///
/// ```
/// use transformer_kernels::host::sized;
///
/// let mut buffer = vec![7.0];
/// assert_eq!(sized(&mut buffer, 3), [7.0, 0.0, 0.0]);
/// assert_eq!(sized(&mut buffer, 2), [7.0, 0.0]);
/// ```
pub fn sized(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if buffer.len() < count {
        buffer.resize(count, 0.0);
    }
    &mut buffer[..count]
}
