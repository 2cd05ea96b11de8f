//! Sizes of tensors.

/// How many numbers a tensor of this shape has.
///
/// # Panics
/// When they are more than memory can hold.
pub fn count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    let product = shape
        .iter()
        .try_fold(1_usize, |all, &size| all.checked_mul(size));
    product.unwrap_or_else(|| panic!("{shape:?} are more numbers than memory can hold"))
}
