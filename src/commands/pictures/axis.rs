//! An axis: its range, and its ticks at round numbers.

/// The range of an axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: f64,
    high: f64,
    /// The distance between two ticks: 1, 2 or 5 times a power of ten.
    step: f64,
}

impl Axis {
    /// The largest value on an axis. Differences and products of such values stay finite.
    pub const MOST: f64 = 1e100;
    /// Values that differ by no more than this are treated as equal, because the step between ticks would be zero.
    const LEAST: f64 = 1e-100;

    /// The axis from `low` to `high`, with about `ticks` ticks. Both ends are at most [`MOST`](Self::MOST) in absolute
    /// value. If they are equal, the axis is widened on both sides.
    pub fn new(low: f64, high: f64, ticks: usize) -> Self {
        let margin = match high - low > Self::LEAST {
            true => 0.0,
            false if low.abs() <= Self::LEAST => 1.0,
            false => low.abs() / 10.0,
        };
        let (low, high) = (low - margin, high + margin);
        let rough = (high - low) / ticks as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
        let step = steps.into_iter().find(|&step| step >= rough);
        Self {
            low,
            high,
            step: step.unwrap_or(10.0 * power),
        }
    }

    /// The position of a number: 0 at the low end, 1 at the high end.
    pub fn share(&self, number: f64) -> f64 {
        (number - self.low) / (self.high - self.low)
    }

    /// The ticks of the axis, each with its label.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        // An end of the axis is a tick, too, if it is a round number up to rounding errors.
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        let number = |index| index as f64 * self.step;
        let numbers = (first..=last).map(number);
        numbers.map(|number| (number, self.label(number))).collect()
    }

    fn label(&self, number: f64) -> String {
        match -(self.step.log10() + 1e-9).floor() {
            decimals if !(-9.0..=4.0).contains(&decimals) && number != 0.0 => {
                format!("{number:.1e}")
            }
            decimals if decimals > 4.0 => "0".into(),
            decimals => format!("{number:.*}", decimals.max(0.0) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        let ticks = Axis::new(low, high, 5).ticks();
        ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(
            labels(0.0, 5000.0),
            ["0", "1000", "2000", "3000", "4000", "5000"]
        );
        assert_eq!(labels(1.93, 4.1), ["2.0", "2.5", "3.0", "3.5", "4.0"]);
        assert_eq!(
            labels(0.0, 0.0007),
            ["0.0000", "0.0002", "0.0004", "0.0006"]
        );
        assert_eq!(labels(0.0, 7e-6), ["0", "2.0e-6", "4.0e-6", "6.0e-6"]);
        assert_eq!(
            labels(0.0, 4e10),
            ["0", "1.0e10", "2.0e10", "3.0e10", "4.0e10"]
        );
        assert_eq!(labels(-3.0, 3.0), ["-2", "0", "2"]);
        assert_eq!(labels(0.0, 0.3), ["0.0", "0.1", "0.2", "0.3"]);
    }

    #[test]
    fn a_single_number_is_in_the_middle() {
        for number in [0.0, -3.0, 1e-7, 1234.5] {
            let axis = Axis::new(number, number, 5);
            assert!((axis.share(number) - 0.5).abs() < 1e-9);
            assert!(!axis.ticks().is_empty());
        }
    }

    #[test]
    fn numbers_at_the_ends_of_their_type_have_few_ticks() {
        let next = f64::from_bits(5000_f64.to_bits() + 1);
        for (low, high) in [
            (0.0, f64::from_bits(1)),
            (-1e-200, 1e-200),
            (5000.0, next),
            (-Axis::MOST, Axis::MOST),
            (0.0, Axis::MOST),
        ] {
            let ticks = Axis::new(low, high, 5).ticks();
            assert!(ticks.len() <= 6, "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|(number, _)| number.is_finite()));
        }
    }
}
