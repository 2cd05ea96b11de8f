//! Sizes, and whether they agree.

/// How many numbers a tensor of this shape has.
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
    product.unwrap_or_else(|| panic!("{shape:?} are more numbers than memory can hold"))
}

/// Panics unless the numbers fill whole rows; rows of width zero have no numbers.
pub fn check_rows(numbers: usize, width: usize) {
    assert!(
        numbers.is_multiple_of(width),
        "{numbers} numbers are not whole rows of {width}"
    );
}
