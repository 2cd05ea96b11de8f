//! An axis: its range, and round numbers along it.

/// The numbers that an axis covers.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: f64,
    high: f64,
    /// Between two ticks: 1, 2 or 5 times a power of ten.
    step: f64,
}

impl Axis {
    /// From `low` to `high`, with some `ticks` ticks. Around a single number the axis is a little wider.
    pub fn new(low: f64, high: f64, ticks: usize) -> Self {
        let margin = match high > low {
            true => 0.0,
            false if low == 0.0 => 1.0,
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

    /// Where a number stands: 0 at the low end, 1 at the high one.
    pub fn share(&self, number: f64) -> f64 {
        (number - self.low) / (self.high - self.low)
    }

    /// The round numbers of the axis, each with its label.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        // An end of the axis that is round but for rounding is a tick.
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        let number = |index| index as f64 * self.step;
        let numbers = (first..=last).map(number);
        numbers.map(|number| (number, self.label(number))).collect()
    }

    fn label(&self, number: f64) -> String {
        match -(self.step.log10() + 1e-9).floor() {
            decimals if decimals > 4.0 && number != 0.0 => format!("{number:.1e}"),
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
        assert_eq!(labels(-3.0, 3.0), ["-2", "0", "2"]);
        assert_eq!(labels(0.0, 0.3), ["0.0", "0.1", "0.2", "0.3"]);
    }

    #[test]
    fn a_single_number_stands_in_the_middle() {
        for number in [0.0, -3.0, 1e-7, 1234.5] {
            let axis = Axis::new(number, number, 5);
            assert!((axis.share(number) - 0.5).abs() < 1e-9);
            assert!(!axis.ticks().is_empty());
        }
    }
}
