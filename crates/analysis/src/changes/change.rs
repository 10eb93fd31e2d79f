//! A figure that changed.

use crate::estimates::Estimate;
use crate::text::units::{self, count, uncertain, whole};

/// A figure, which may be a whole number or a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Number {
    /// The figure.
    pub value: f64,
    /// Whether it is a whole number by its nature.
    pub is_whole: bool,
}

/// What a figure is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Ms,
    /// A number of something.
    Count,
}

impl Measure {
    /// Such as `48.8 MiB`, `12 ms`, `1,234`.
    #[must_use]
    pub fn plain(self, number: Number) -> String {
        match self {
            Self::Bytes => units::bytes(number.value as i64),
            Self::Ms => format!("{} ms", count(number.value.round() as i64)),
            Self::Count if number.is_whole => count(number.value as i64),
            Self::Count => format!("{:?}", units::hundredths(number.value)),
        }
    }

    /// The same, with a plus before what grew.
    #[must_use]
    pub fn signed(self, number: Number) -> String {
        format!("{}{}", if number.value > 0.0 { "+" } else { "" }, self.plain(number))
    }

    /// The same of what may be an estimate with this standard error.
    pub(super) fn growth(self, growth: Number, error: Option<f64>) -> String {
        match error {
            Some(error) => {
                let error = Number { value: whole(error) as f64, is_whole: true };
                format!("~{} ±{}", self.signed(growth), self.plain(error))
            }
            None => self.signed(growth),
        }
    }

    /// Of an estimate with its standard error or interval.
    pub(super) fn shown(self, number: Number, estimate: Option<Estimate>) -> String {
        let Some(estimate) = estimate else { return self.plain(number) };
        let (low, high) = estimate.interval();
        let format = match self {
            Self::Bytes => units::bytes,
            Self::Ms | Self::Count => count,
        };
        let interval = Some((low.floor() as i64, high.ceil() as i64));
        uncertain(number.value as i64, estimate.standard_error(), interval, format)
    }
}

/// Variances of what there was, of what there is and of the growth, and how much of each one sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Doubts {
    /// Variances.
    pub variances: [f64; 3],
    /// How much one sample stands for.
    pub per_sample: [f64; 3],
}

/// How much there was and is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// What there was.
    pub before: Number,
    /// What there is.
    pub after: Number,
    /// `None`: it is exact.
    pub doubts: Option<Doubts>,
}

impl Amount {
    pub(super) fn growth(&self) -> Number {
        Number {
            value: self.after.value - self.before.value,
            is_whole: self.before.is_whole && self.after.is_whole,
        }
    }

    fn error_of_growth(&self) -> Option<f64> {
        self.doubts.map(|doubts| {
            Estimate::new(self.growth().value, doubts.variances[2], 0.0, doubts.per_sample[2])
                .standard_error()
        })
    }

    fn of(&self, number: Number, at: usize) -> Option<Estimate> {
        let doubts = self.doubts?;
        Some(Estimate::new(
            number.value,
            doubts.variances.get(at).copied()?,
            0.0,
            doubts.per_sample.get(at).copied()?,
        ))
    }
}

/// A figure that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Of the class, file, counter and so on.
    pub name: Vec<u8>,
    /// What it is in.
    pub unit: Measure,
    /// How much.
    pub amount: Amount,
    /// How many, where the amount is in bytes.
    pub count: Option<Amount>,
    /// Whether it changed by at least so much: a list that was cut does not say how much more.
    pub at_least: bool,
}

impl Change {
    pub(super) fn growth(&self) -> f64 {
        self.amount.growth().value
    }

    pub(super) fn is_estimated(&self) -> bool {
        self.amount.doubts.is_some()
    }

    /// The variance of the growth.
    pub(super) fn variance(&self) -> f64 {
        self.amount.doubts.map_or(0.0, |doubts| doubts.variances[2].max(0.0))
    }

    pub(super) fn growth_text(&self) -> String {
        let growth = self.unit.growth(self.amount.growth(), self.amount.error_of_growth());
        format!("{}{growth}", if self.at_least { "at least " } else { "" })
    }

    pub(super) fn before_text(&self) -> String {
        self.unit.shown(self.amount.before, self.amount.of(self.amount.before, 0))
    }

    pub(super) fn after_text(&self) -> String {
        self.unit.shown(self.amount.after, self.amount.of(self.amount.after, 1))
    }

    pub(super) fn count_growth(&self) -> f64 {
        self.count.map_or(0.0, |count| count.growth().value)
    }

    pub(super) fn count_growth_text(&self) -> String {
        self.count
            .map_or_else(String::new, |count| Measure::Count.growth(count.growth(), count.error_of_growth()))
    }

    pub(super) fn count_after_text(&self) -> String {
        self.count
            .map_or_else(String::new, |count| Measure::Count.shown(count.after, count.of(count.after, 1)))
    }
}
