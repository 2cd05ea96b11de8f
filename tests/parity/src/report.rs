//! A model's errors, measured against another system.

use std::fmt;

/// How many times as large as in f32 an error may be where matrix multiplications are in TF32.
pub(super) const TF32_ERROR: f64 = 1000.0;

/// A model's errors, measured against another system, quantity by quantity.
pub struct Report {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
    /// Lines about single differences.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Whether every error is within its bound.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(Row::passed)
    }

    /// With bounds for matrix multiplications in TF32, which keeps 11 bits of each factor instead of 24.
    ///
    /// Gradients, and losses after several updates, must only be finite: an error in an activation near zero turns
    /// ReLU's derivative from 0 to 1.
    pub fn in_tf32(mut self) -> Self {
        for row in &mut self.rows {
            let is_amplified = ["worst of", "all"]
                .iter()
                .any(|name| row.quantity.starts_with(name));
            row.bound = match row.bound {
                _ if is_amplified => f64::INFINITY,
                // Counts of tokens and sentences.
                bound if bound >= 0.1 => bound,
                bound => TF32_ERROR * bound,
            };
        }
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "  {:<20} {:>9} {:>9} {:>9}",
            "", "absolute", "relative", "bound"
        )?;
        for row in &self.rows {
            writeln!(f, "  {row}")?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

/// The largest error of a quantity.
pub(super) struct Row {
    pub quantity: String,
    pub error: Difference,
    pub bound: f64,
    pub note: String,
}

/// The difference between two tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Difference {
    pub absolute: f64,
    /// The largest expected entry.
    pub largest: f64,
}

impl Row {
    pub fn new(quantity: &str, error: Difference, bound: f64) -> Self {
        Self {
            quantity: quantity.to_owned(),
            error,
            bound,
            note: String::new(),
        }
    }

    /// The error as a fraction of its bound; infinite where the error is NaN.
    pub fn share(&self) -> f64 {
        let share = self.error.absolute / self.bound;
        if share.is_nan() { f64::INFINITY } else { share }
    }

    fn passed(&self) -> bool {
        self.share() <= 1.0
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { absolute, largest } = self.error;
        // No error is relative to an entry that is zero up to rounding.
        let relative = match absolute / largest {
            relative if largest > f64::from(f32::EPSILON) => format!("{relative:.1e}"),
            _ => "-".to_owned(),
        };
        write!(
            f,
            "{:<20} {absolute:>9.1e} {relative:>9} {:>9.1e}  {}{}",
            self.quantity,
            self.bound,
            if self.passed() { "ok" } else { "FAILED" },
            self.note,
        )
    }
}

/// The largest difference; NaN where any of them is.
pub(super) fn difference(
    found: impl Iterator<Item = f64>,
    expected: impl Iterator<Item = f64>,
) -> Difference {
    let mut difference = Difference {
        absolute: 0.0,
        largest: 0.0,
    };
    for (found, expected) in found.zip(expected) {
        let error = (found - expected).abs();
        // In this order, NaN is the largest.
        if error.total_cmp(&difference.absolute).is_gt() {
            difference.absolute = error;
        }
        difference.largest = difference.largest.max(expected.abs());
    }
    difference
}
