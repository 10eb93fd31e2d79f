//! `Memintro::Native.diff` and `.trend`: what changed between snapshots, as text or page.

use magnus::{Error, Float, RArray, RModule, RString, Ruby, Symbol, TryConvert, Value, function, prelude::*};
use memintro_analysis::advice::Advice;
use memintro_analysis::changes::{
    Amount, Change, Diff, Doubts, Measure, Number, Options, Section, Series, Trend,
};
use memintro_analysis::text::printable;

use super::ractor_safe::ractor_safe;
use super::report::root;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    // Ractors may read snapshots.
    ractor_safe(|| {
        native.define_singleton_method("diff", function!(diff, 6))?;
        native.define_singleton_method("trend", function!(trend, 6))
    })
}

/// Cells of an Array, one after the other.
struct Cells {
    row: RArray,
    at: isize,
}

impl Cells {
    fn of(row: RArray) -> Self {
        Self { row, at: -1 }
    }

    fn next<T: TryConvert>(&mut self) -> Result<T, Error> {
        self.at += 1;
        self.row.entry(self.at)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        let text: RString = self.next()?;
        // SAFETY: copied at once.
        Ok(unsafe { text.as_slice() }.to_vec())
    }

    fn text(&mut self) -> Result<String, Error> {
        Ok(printable(&self.bytes()?))
    }

    fn texts(&mut self) -> Result<Vec<String>, Error> {
        let texts: RArray = self.next()?;
        let mut cells = Self::of(texts);
        (0..texts.len()).map(|_| cells.text()).collect()
    }

    fn number(&mut self) -> Result<Option<Number>, Error> {
        self.next::<Option<Value>>()?.map(number).transpose()
    }

    fn measure(&mut self) -> Result<Measure, Error> {
        let unit: Symbol = self.next()?;
        Ok(match &*unit.name()? {
            "bytes" => Measure::Bytes,
            "ms" => Measure::Ms,
            _ => Measure::Count,
        })
    }

    fn rows<T>(&mut self, read: impl Fn(RArray) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let rows: RArray = self.next()?;
        (0..rows.len()).map(|at| read(rows.entry(at.cast_signed())?)).collect()
    }
}

fn number(value: Value) -> Result<Number, Error> {
    Ok(Number { value: f64::try_convert(value)?, is_whole: Float::from_value(value).is_none() })
}

/// Name, unit, before and after, of its count before and after, whether it is at least that; and variances and what one
/// sample stands for, of before, after and growth, and of the count's; nil: all is exact.
fn change(row: RArray) -> Result<Change, Error> {
    let mut cells = Cells::of(row);
    let (name, unit) = (cells.bytes()?, cells.measure()?);
    let (before, after) = (cells.number()?, cells.number()?);
    let (count_before, count_after) = (cells.number()?, cells.number()?);
    let at_least = cells.next()?;
    let doubts: Option<([f64; 6], [f64; 6])> = cells.next()?;
    let third = |numbers: [f64; 6], first: usize| std::array::from_fn(|at| numbers[first + at]);
    let doubts_of = |first: usize| {
        doubts.map(|(variances, per_sample)| Doubts {
            variances: third(variances, first),
            per_sample: third(per_sample, first),
        })
    };
    Ok(Change {
        name,
        unit,
        amount: Amount {
            before: before.unwrap_or_default(),
            after: after.unwrap_or_default(),
            doubts: doubts_of(0),
        },
        count: count_before.zip(count_after).map(|(before, after)| Amount {
            before,
            after,
            doubts: doubts_of(3),
        }),
        at_least,
    })
}

/// As text or page, or only the sentences that a text begins with, a line each.
fn diff(
    ruby: &Ruby,
    head: RArray,
    sections: RArray,
    kinds: RArray,
    format: Symbol,
    top: Option<usize>,
    colour: bool,
) -> Result<RString, Error> {
    let mut head = Cells::of(head);
    let section = |row: RArray| {
        let mut cells = Cells::of(row);
        Ok(Section {
            key: cells.text()?,
            title: cells.text()?,
            last: cells.text()?,
            changes: cells.rows(change)?,
        })
    };
    let kind = |row: RArray| {
        let mut cells = Cells::of(row);
        Ok((cells.text()?, change(cells.next()?)?))
    };
    let all = ruby.ary_from_iter([sections, kinds]);
    let mut all = Cells::of(all);
    let diff = Diff {
        header: head.text()?,
        period: head.text()?,
        program: program(&mut head)?,
        advice: Advice::of(head.next()?),
        notes: head.texts()?,
        sections: all.rows(section)?,
        kinds: all.rows(kind)?,
    };
    let options = Options { top, colour, root: root(None) };
    let mut out = Vec::new();
    match &*format.name()? {
        "html" => diff.write_page(&mut out, &options).map_err(|error| failed(ruby, &error))?,
        "verdict" => out = diff.verdict(&options).join("\n").into_bytes(),
        _ => out = diff.text(&options).into_bytes(),
    }
    Ok(ruby.enc_str_new(out, ruby.utf8_encoding()))
}

/// As text or page.
fn trend(
    ruby: &Ruby,
    head: RArray,
    minutes: Vec<f64>,
    series: RArray,
    format: Symbol,
    top: Option<usize>,
    colour: bool,
) -> Result<RString, Error> {
    let mut head = Cells::of(head);
    let one = |row: RArray| {
        let mut cells = Cells::of(row);
        Ok(Series {
            kind: cells.text()?,
            name: cells.bytes()?,
            is_path: cells.next()?,
            unit: cells.measure()?,
            values: cells.next::<RArray>()?.into_iter().map(number).collect::<Result<_, _>>()?,
            slope: cells.next()?,
            confidence: cells.next()?,
            every_step: cells.next()?,
            variances: cells.next()?,
        })
    };
    let trend = Trend {
        header: head.text()?,
        duration: head.text()?,
        program: program(&mut head)?,
        notes: head.texts()?,
        confidence: head.next()?,
        sure: head.next()?,
        minutes,
        series: Cells::of(ruby.ary_from_iter([series])).rows(one)?,
    };
    let options = Options { top, colour, root: root(None) };
    let mut out = Vec::new();
    if &*format.name()? == "html" {
        trend.write_page(&mut out, &options).map_err(|error| failed(ruby, &error))?;
    } else {
        out = trend.text(&options).into_bytes();
    }
    Ok(ruby.enc_str_new(out, ruby.utf8_encoding()))
}

fn program(head: &mut Cells) -> Result<Option<String>, Error> {
    let program: Option<RString> = head.next()?;
    // SAFETY: copied at once.
    Ok(program.map(|text| printable(unsafe { text.as_slice() })))
}

fn failed(ruby: &Ruby, error: &std::io::Error) -> Error {
    Error::new(ruby.exception_runtime_error(), error.to_string())
}
