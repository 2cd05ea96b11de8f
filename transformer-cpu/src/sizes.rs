//! Checks of sizes.

/// The number of elements of a tensor with this shape.
///
/// # Panics
/// When the tensor is larger than memory can hold.
pub fn count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    let product = shape
        .iter()
        .try_fold(1_usize, |all, &size| all.checked_mul(size));
    product.unwrap_or_else(|| panic!("shape {shape:?} has more elements than memory can hold"))
}

/// Panics unless the values fill whole rows; rows of width zero have no values.
pub fn check_rows(numbers: usize, width: usize) {
    assert!(
        numbers.is_multiple_of(width),
        "{numbers} values do not fill rows of width {width}"
    );
}
