//! Progress as plain lines.

use std::io::Write;
use std::time::Instant;

use crate::error::ObserverError;
use crate::printable::printable;
use crate::progress::observer::{RunObserver, RunStart, SkippedUpdate, TrainingPoint};
use crate::progress::time_left::{RunClock, shown};
use crate::validation::{SampleOutput, Validation};

/// Writes a line for each point of training, each validation and each skipped update, and three lines for each
/// sample output of a validation.
///
/// A line has the update, the time since the run was started or resumed, an estimate of the remaining time, and
/// the metrics, first those that training and validation share. With label smoothing, the loss is called
/// `smoothed loss`. The perplexity is computed without smoothing, so that it is not the `exp` of that loss.
pub struct PlainLines {
    out: Box<dyn Write>,
    /// Set when the run starts.
    run: Option<Run>,
}

/// What the lines need to know about a run.
struct Run {
    updates: usize,
    /// The name of the loss.
    loss: &'static str,
    clock: RunClock,
}

impl Default for PlainLines {
    /// Writes to standard output.
    fn default() -> Self {
        Self::new(std::io::stdout())
    }
}

impl PlainLines {
    /// Writes to `out`.
    pub fn new(out: impl Write + 'static) -> Self {
        Self {
            out: Box::new(out),
            run: None,
        }
    }

    fn write(&mut self, line: &str) {
        // A closed output must not end the training.
        let _ = writeln!(self.out, "{}", printable(line));
    }
}

impl RunObserver for PlainLines {
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        let updates = start.config.updates;
        self.run = Some(Run {
            updates,
            loss: match start.config.label_smoothing > 0.0 {
                true => "smoothed loss",
                false => "loss",
            },
            clock: RunClock::new(Instant::now(), updates, start.deadline),
        });
        Ok(())
    }

    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        if let Some(run) = &mut self.run {
            let line = run.training(point, Instant::now());
            self.write(&line);
        }
        Ok(())
    }

    fn on_skip(&mut self, skipped: &SkippedUpdate) -> Result<(), ObserverError> {
        self.write(&format!(
            "update {} skipped: loss {:.3}, gradient norm {:.3}",
            skipped.update, skipped.loss, skipped.gradient_norm
        ));
        Ok(())
    }

    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        if let Some(run) = &mut self.run {
            let line = run.validation(validation, Instant::now());
            self.write(&line);
        }
        Ok(())
    }

    fn on_samples(&mut self, samples: &[SampleOutput]) -> Result<(), ObserverError> {
        for sample in samples {
            self.write(&format!("  source      {}", sample.source));
            self.write(&format!("  hypothesis  {}", sample.hypothesis));
            self.write(&format!("  reference   {}", sample.reference));
        }
        Ok(())
    }
}

impl Run {
    fn training(&mut self, point: &TrainingPoint, now: Instant) -> String {
        let title = self.title(point.update);
        let mut line = self.begin(&title, point.update, now);
        self.shared(&mut line, point.loss, point.perplexity, point.accuracy);
        add(&mut line, "tokens/s", point.tokens_per_second, |n| {
            format!("{n:>6.0}")
        });
        let rate = |rate: f64| format!("{rate:.3e}");
        add(&mut line, "learning rate", point.learning_rate, rate);
        add(&mut line, "gradient norm", point.gradient_norm, number);
        line
    }

    fn validation(&mut self, validation: &Validation, now: Instant) -> String {
        let mut line = self.begin("validation", validation.update, now);
        let perplexity = validation.valid_nll.exp();
        let accuracy = validation.valid_accuracy;
        self.shared(&mut line, validation.valid_loss, perplexity, accuracy);
        for (name, &value) in &validation.numbers {
            add(&mut line, name, value, number);
        }
        line
    }

    fn title(&self, update: usize) -> String {
        format!("update {update} of {}", self.updates)
    }

    /// Begins a line with its times, padded to the same length in the whole run.
    fn begin(&mut self, title: &str, update: usize, now: Instant) -> String {
        let width = self.title(self.updates).len();
        let elapsed = shown(self.clock.elapsed(now));
        let left = self.clock.left(update, now).map_or("-".into(), shown);
        format!("{title:<width$}  elapsed {elapsed:>7}  left {left:>7}")
    }

    /// The columns that training and validation share.
    fn shared(&self, line: &mut String, loss: f64, perplexity: f64, accuracy: f64) {
        let padded = |value: f64| format!("{:>6}", number(value));
        add(line, self.loss, loss, padded);
        add(line, "perplexity", perplexity, padded);
        add(line, "accuracy", accuracy, |n| format!("{n:>6.2} %"));
    }
}

/// Appends a metric, unless it is not finite.
fn add(line: &mut String, name: &str, value: f64, shown: impl Fn(f64) -> String) {
    if value.is_finite() {
        *line += &format!("  {name} {}", shown(value));
    }
}

/// About four significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn run(loss: &'static str) -> (Run, Instant) {
        let start = Instant::now();
        let clock = RunClock::new(start, 5000, None);
        let run = Run {
            updates: 5000,
            loss,
            clock,
        };
        (run, start)
    }

    fn point(update: usize) -> TrainingPoint {
        TrainingPoint {
            update,
            updates: 50,
            skipped: 0,
            seconds: 9.0,
            tokens: 12_345,
            loss: 7.1234,
            perplexity: 812.3,
            accuracy: 9.876,
            learning_rate: 0.000_088_388,
            tokens_per_second: 1234.2,
            gradient_norm: 2.236_07,
        }
    }

    fn validation(update: usize) -> Validation {
        let json = r#"{"update": 0, "seconds": 9.0, "train_tokens": 90, "train_loss": 2.5,
            "valid_loss": 2.25, "valid_nll": 2.0, "valid_accuracy": 60.0}"#;
        let numbers = [("BLEU", 4.25), ("chrF2", f64::NAN), ("WER", 0.0)];
        let numbers = numbers.map(|(name, number)| (name.to_owned(), number));
        Validation {
            update,
            numbers: BTreeMap::from(numbers),
            ..serde_json::from_str(json).unwrap()
        }
    }

    #[test]
    fn lines_have_their_times_and_the_same_columns() {
        let (mut run, start) = run("smoothed loss");
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            run.training(&point(50), at(31)),
            "update 50 of 5000    elapsed    0:31  left       -  smoothed loss 7.1234  \
             perplexity 812.30  accuracy   9.88 %  tokens/s   1234  learning rate 8.839e-5  \
             gradient norm 2.2361"
        );
        // 450 updates in 900 seconds; 4500 remain.
        assert_eq!(
            run.validation(&validation(500), at(931)),
            "validation           elapsed   15:31  left 2:30:00  smoothed loss 2.2500  \
             perplexity 7.3891  accuracy  60.00 %  BLEU 4.2500  WER 0"
        );
    }

    #[test]
    fn the_loss_is_called_smoothed_only_where_it_is() {
        let (mut run, start) = run("loss");
        let line = run.training(&point(50), start);
        assert!(line.contains("  loss 7.1234  "), "{line}");
    }

    #[test]
    fn means_of_no_update_are_left_out() {
        let (mut run, start) = run("loss");
        let none = TrainingPoint {
            loss: f64::NAN,
            perplexity: f64::NAN,
            accuracy: f64::NAN,
            gradient_norm: f64::NAN,
            ..point(50)
        };
        let line = run.training(&none, start);
        assert!(
            line.ends_with("-  tokens/s   1234  learning rate 8.839e-5"),
            "{line}"
        );
    }
}
