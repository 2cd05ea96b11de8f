//! Loops over slices that the compiler vectorises for the processor that runs them.

use pulp::Arch;

/// Independent accumulators of a sum, so that no addition waits for the one before.
const LANES: usize = 16;

/// Runs `f` compiled for the best instructions of this processor.
///
/// Functions that `f` calls must be inlined: all others are compiled for the oldest processor.
#[inline(always)]
pub fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(f)
}

/// `Σ f(x)`
#[inline(always)]
pub fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    fold(x, 0.0, |sum, x| sum + f(x), |a, b| a + b)
}

/// `Σ f(x, y)`
#[inline(always)]
pub fn sum2(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest = xs.remainder().iter().zip(ys.remainder());
    for (x, y) in xs.zip(ys) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += f(x, y);
        }
    }
    let rest: f32 = rest.map(|(&x, &y)| f(x, y)).sum();
    lanes.iter().sum::<f32>() + rest
}

/// The largest number; `-∞` of an empty slice.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    fold(x, f32::NEG_INFINITY, larger, larger)
}

#[inline(always)]
fn fold(x: &[f32], start: f32, f: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, x);
        }
    }
    let rest = rest.iter().fold(start, |all, &x| f(all, x));
    lanes.iter().fold(rest, |all, &lane| join(all, lane))
}

/// `eˣ` of numbers up to zero, within two units in the last place; zero where it would leave the normal
/// numbers.
///
/// The polynomial is Cephes' (`expf`): `x = n ln 2 + r`, `eˣ = 2ⁿ eʳ`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: n times the first is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let mut y = 1.987_569_1e-4;
    for c in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_65,
        0.5,
    ] {
        y = y * r + c;
    }
    let y = y * r * r + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x < -87.3 { 0.0 } else { y * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_right_to_two_units() {
        for step in 0..=870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "exp({x}) is off by {error:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        for x in [-87.4, -1e4, f32::MIN / 2.0, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp(x), 0.0);
        }
    }

    #[test]
    fn sums_and_largest_see_every_number() {
        for len in 0..70 {
            let x: Vec<f32> = (0..len).map(|i| (i * 37 % 101) as f32).collect();
            let squares: f32 = x.iter().map(|x| x * x).sum();
            assert_eq!(sum(&x, |x| x * x), squares);
            assert_eq!(sum2(&x, &x, |x, y| x * y), squares);
            let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max(&x), largest);
        }
    }
}
