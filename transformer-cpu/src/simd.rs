//! Loops over slices that the compiler vectorizes for the running processor.

use std::sync::OnceLock;

use pulp::Arch;

/// The environment variable that selects a level of instructions.
const VARIABLE: &str = "TRANSFORMER_SIMD";

/// The permitted instructions: each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Level {
    /// Instructions that every processor of the architecture has.
    Portable,
    /// On x86: AVX2 and FMA.
    Avx2,
    /// On x86: AVX-VNNI, which multiplies bytes in AVX2's vectors.
    AvxVnni,
    /// On x86: AVX-512, with its extensions.
    Avx512,
    /// All instructions that the kernels use; on x86, AMX in addition.
    Amx,
}

impl Level {
    fn named(name: &str) -> Option<Self> {
        match name {
            "portable" => Some(Self::Portable),
            "avx2" => Some(Self::Avx2),
            "avxvnni" => Some(Self::AvxVnni),
            "avx512" => Some(Self::Avx512),
            "amx" => Some(Self::Amx),
            _ => None,
        }
    }

    /// The processor's best instructions, up to this level.
    fn arch(self) -> Arch {
        match self {
            Self::Portable => Arch::Scalar,
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Self::Avx2 | Self::AvxVnni => pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
            _ => Arch::new(),
        }
    }
}

/// Checks the environment variable `TRANSFORMER_SIMD`, which can be `portable`, `avx2`, `avxvnni`, `avx512` or `amx`:
/// our kernels then use instructions up to that level, as far as the processor has them. Multiplications by the crate
/// `gemm` choose their own instructions.
///
/// # Errors
/// When it has another value, which the kernels ignore: one line with that value and the valid ones.
pub fn check_simd() -> Result<(), String> {
    check_level(std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned()))
}

fn check_level(value: Option<String>) -> Result<(), String> {
    match value {
        Some(name) if !name.is_empty() && Level::named(&name).is_none() => Err(format!(
            "the environment variable {VARIABLE} is `{name}`: expected portable, avx2, avxvnni, avx512 or amx"
        )),
        _ => Ok(()),
    }
}

/// The level that `TRANSFORMER_SIMD` selects, or the highest. The variable is read once.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        Level::named(&name).unwrap_or(Level::Amx)
    })
}

/// The processor's best instructions, up to [`level`], for which loops are compiled.
#[inline]
pub fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(|| level().arch())
}

/// Independent accumulators per sum, so that no addition waits for the previous one.
const LANES: usize = 16;

/// A closure that consumes it can be called only once. Other closures are called through a function that is not
/// inlined, and so is compiled for the oldest processor.
pub struct Once;

/// Computes an expression, compiled for the instructions of [`arch`].
///
/// Functions that it calls must be inlined: all others are compiled for the oldest processor.
macro_rules! vectorised {
    ($expression:expr) => {{
        let once = $crate::simd::Once;
        $crate::simd::arch().dispatch(
            #[inline(always)]
            || {
                let _once = once;
                $expression
            },
        )
    }};
}
pub(crate) use vectorised;

/// `Σ f(x)`
#[inline(always)]
pub fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    fold(
        x,
        0.0,
        #[inline(always)]
        |sum, x| sum + f(x),
        |a, b| a + b,
    )
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

/// The largest value; `-∞` for an empty slice.
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

/// `eˣ` for values up to zero, within two units in the last place; zero where the result would not be a normal
/// number.
///
/// The polynomial is from Cephes (`expf`): `x = n ln 2 + r`, `eˣ = 2ⁿ eʳ`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding it rounds to an integer, which is then in the lowest bits.
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

/// The error function, within two units in the last place.
///
/// Near zero `x + x P(x²)`, elsewhere `±(1 - e^-Q(|x|))`, with the polynomials of N. Juffa's `erff`.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let (size, square) = (x.abs(), x * x);
    let mut near = -5.967_617e-4;
    for c in [
        4.991_194_2e-3,
        -2.676_813_5e-2,
        0.112_819_925,
        -0.376_125_34,
        0.128_379_17,
    ] {
        near = near * square + c;
    }
    let near = near * x + x;
    let mut far = -1.728_534_7e-5;
    for c in [
        3.831_971_3e-4,
        -3.883_964_4e-3,
        2.425_462_2e-2,
        -0.106_777_88,
        -0.634_846_7,
        -0.128_717_51,
    ] {
        far = far * size + c;
    }
    let far = (1.0 - exp(far * size - size)).copysign(x);
    if size > 0.927_734_4 { far } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_a_name_and_any_other_is_refused() {
        assert_eq!(check_level(None), Ok(()));
        for name in ["", "portable", "avx2", "avxvnni", "avx512", "amx"] {
            assert_eq!(check_level(Some(name.into())), Ok(()));
        }
        for name in ["AVX2", "sse", "avx512 "] {
            let error = check_level(Some(name.into())).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "the environment variable TRANSFORMER_SIMD is `{name}`: expected portable, avx2, avxvnni, avx512 or amx"
                )
            );
        }
        assert!(matches!(Level::Portable.arch(), Arch::Scalar));
    }

    #[test]
    fn error_function_is_right_to_two_units() {
        // The Taylor series; its terms stay below 1e4 for arguments up to three.
        let exact = |x: f64| {
            let mut term = x;
            let mut all = x;
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                all += term / f64::from(2 * n + 1);
            }
            all * std::f64::consts::FRAC_2_SQRT_PI
        };
        for step in 1..=30_000 {
            let x = step as f32 * 1e-4;
            let expected = exact(f64::from(x));
            for sign in [1.0, -1.0] {
                let error = (f64::from(erf(sign * x) * sign) - expected).abs() / expected;
                assert!(error < 2.4e-7, "erf({x}) is off by {error:e}");
            }
        }
        assert_eq!(erf(0.0), 0.0);
        for x in [4.5, 10.0, 1e20, f32::MAX, f32::INFINITY] {
            assert_eq!([erf(x), erf(-x)], [1.0, -1.0]);
        }
        assert!(erf(f32::NAN).is_nan());
    }

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
