//! Expressions of claims and rules: `lighttx@strict`, `afc / bpcc`, `4.0`.
//!
//! `series@x` is a point of a figure; a series alone is its mean over the sweep, or its only point.
//! `a / b` divides, `a - b` subtracts, and `1 - a / b` is the fraction that a saves compared with
//! b. `mean of a / b` divides at each point and averages, as in "60 percent less on average". `peak
//! of a` is the position of a's maximum on the axis. A number is itself.

use serde::{Deserialize, Deserializer};
use std::fmt;

/// A point of a figure, or the mean of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The series.
    pub series: String,
    /// The point of the sweep, as written in the figure's file.
    pub at: Option<String>,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A point or a mean.
    Term(Term),
    /// A ratio.
    Over(Term, Term),
    /// The mean ratio over all points of two series.
    MeanOver(String, String),
    /// A difference.
    Less(Term, Term),
    /// The fraction saved: 1 minus the ratio.
    Saved(Term, Term),
    /// The position of a series' maximum.
    Peak(Term),
    /// A number.
    Number(f64),
}

impl Term {
    pub(super) fn parse(text: &str) -> Result<Term, String> {
        let (series, at) = match text.trim().split_once('@') {
            Some((series, at)) => (series.trim(), Some(at.trim().to_string())),
            None => (text.trim(), None),
        };
        if series.is_empty() || series.contains(char::is_whitespace) {
            return Err(format!("`{text}` is not `series` or `series@x`"));
        }
        let series = series.to_string();
        Ok(Term { series, at })
    }
}

impl Term {
    /// A whole series.
    pub(super) fn whole(series: &str) -> Term {
        Term {
            series: series.into(),
            at: None,
        }
    }

    /// Whether the term refers to the point called `name`; a whole series refers to all of its
    /// points.
    pub(super) fn is_at(&self, name: &str) -> bool {
        let Some(at) = &self.at else { return true };
        let wanted: Option<f64> = at.parse().ok();
        name == at || (wanted.is_some() && wanted == name.parse().ok())
    }
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// Names the part that is not a valid expression.
    pub fn parse(text: &str) -> Result<Expr, String> {
        if let Ok(number) = text.trim().parse() {
            return Ok(Expr::Number(number));
        }
        if let Some(series) = text.trim().strip_prefix("peak of ") {
            return Term::parse(series).map(Expr::Peak);
        }
        if let Some(quotient) = text.trim().strip_prefix("mean of ") {
            let wrong = || format!("`{text}` is not `mean of series / series`");
            let (above, below) = quotient.split_once(" / ").ok_or_else(wrong)?;
            let (above, below) = (Term::parse(above)?, Term::parse(below)?);
            if above.at.is_some() || below.at.is_some() {
                return Err(wrong());
            }
            return Ok(Expr::MeanOver(above.series, below.series));
        }
        if let Some((above, below)) = text.split_once(" / ") {
            let below = Term::parse(below)?;
            return match above.trim().strip_prefix("1 - ") {
                Some(above) => Ok(Expr::Saved(Term::parse(above)?, below)),
                None => Ok(Expr::Over(Term::parse(above)?, below)),
            };
        }
        match text.split_once(" - ") {
            Some((from, less)) => Ok(Expr::Less(Term::parse(from)?, Term::parse(less)?)),
            None => Term::parse(text).map(Expr::Term),
        }
    }

    /// The terms of the expression.
    pub fn terms(&self) -> Vec<Term> {
        match self {
            Expr::Term(term) | Expr::Peak(term) => vec![term.clone()],
            Expr::Over(a, b) | Expr::Less(a, b) | Expr::Saved(a, b) => vec![a.clone(), b.clone()],
            Expr::MeanOver(a, b) => vec![Term::whole(a), Term::whole(b)],
            Expr::Number(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{}@{at}", self.series),
            None => f.write_str(&self.series),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Term(term) => term.fmt(f),
            Expr::Over(above, below) => write!(f, "{above} / {below}"),
            Expr::MeanOver(above, below) => write!(f, "mean of {above} / {below}"),
            Expr::Less(from, less) => write!(f, "{from} - {less}"),
            Expr::Saved(above, below) => write!(f, "1 - {above} / {below}"),
            Expr::Peak(series) => write!(f, "peak of {series}"),
            Expr::Number(number) => number.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Expr::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A point of a figure: its name, its numeric position if it has one, and the measured value.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The name, as in the file.
    pub name: String,
    /// Position on the axis; the index in the sweep if the name is not a number.
    pub x: f64,
    /// The measured value; `None` if the protocol does not support the point.
    pub y: Option<f64>,
    /// See [`Reading::events`].
    pub events: Option<f64>,
}

/// A value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: f64,
    /// The number of events that the value counts or averages; `None` if it does neither.
    pub events: Option<f64>,
}

/// The data of a figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Data {
    /// The series in the figure's order, each with the points of the sweep.
    pub series: Vec<(String, Vec<Point>)>,
}

impl Data {
    /// The names of the sweep's points, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for point in self.series.iter().flat_map(|(_, points)| points) {
            if !names.contains(&point.name.as_str()) {
                names.push(&point.name);
            }
        }
        names
    }

    /// The points of a series.
    pub fn points(&self, series: &str) -> Option<&[Point]> {
        let found = self.series.iter().find(|(name, _)| name == series);
        found.map(|(_, points)| points.as_slice())
    }

    /// A point, or the mean of a series.
    pub fn value(&self, term: &Term) -> Option<f64> {
        let points = self.points(&term.series)?;
        match &term.at {
            Some(_) => points.iter().find(|point| term.is_at(&point.name))?.y,
            None => {
                let known: Vec<f64> = points.iter().filter_map(|point| point.y).collect();
                let mean = known.iter().sum::<f64>() / known.len() as f64;
                (!known.is_empty()).then_some(mean)
            }
        }
    }

    /// The smallest number of events that a value of these terms counts or averages.
    pub fn events(&self, terms: &[Term]) -> Option<f64> {
        let of = |term: &Term| {
            let points = self.points(&term.series).unwrap_or_default().iter();
            let own = points.filter(|point| term.is_at(&point.name) && point.y.is_some());
            own.filter_map(|point| point.events).min_by(f64::total_cmp)
        };
        terms.iter().filter_map(of).min_by(f64::total_cmp)
    }

    /// The value of an expression.
    pub fn eval(&self, expr: &Expr) -> Option<f64> {
        match expr {
            Expr::Number(number) => Some(*number),
            Expr::Term(term) => self.value(term),
            Expr::Over(above, below) => Some(self.value(above)? / self.value(below)?),
            Expr::MeanOver(above, below) => {
                let points = self.points(above)?.iter().zip(self.points(below)?);
                let quotients = points.filter_map(|(a, b)| Some(a.y? / b.y?));
                let quotients: Vec<f64> = quotients.collect();
                let mean = quotients.iter().sum::<f64>() / quotients.len() as f64;
                (!quotients.is_empty()).then_some(mean)
            }
            Expr::Peak(term) => {
                let known = self.points(&term.series)?.iter();
                let known = known.filter_map(|point| Some((point.x, point.y?)));
                known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(x, _)| x)
            }
            Expr::Less(from, less) => Some(self.value(from)? - self.value(less)?),
            Expr::Saved(above, below) => Some(1.0 - self.value(above)? / self.value(below)?),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Data from numbers.
    pub(in crate::reproduce) fn data(xs: &[f64], series: &[(&str, &[f64])]) -> Data {
        let points = |ys: &[f64]| {
            let point = |(x, y): (&f64, &f64)| Point {
                name: x.to_string(),
                x: *x,
                y: (!y.is_nan()).then_some(*y),
                events: None,
            };
            xs.iter().zip(ys).map(point).collect()
        };
        Data {
            series: series
                .iter()
                .map(|(name, ys)| (name.to_string(), points(ys)))
                .collect(),
        }
    }

    #[test]
    fn points_means_quotients_and_numbers() {
        let data = data(&[0.05, 2.0], &[("a", &[3.0, 5.0]), ("b", &[2.0, f64::NAN])]);
        let eval = |text: &str| data.eval(&Expr::parse(text).unwrap());
        assert_eq!(eval("a@0.05"), Some(3.0));
        assert_eq!(eval("a@2"), Some(5.0));
        assert_eq!(eval("a"), Some(4.0));
        assert_eq!(eval("a / b"), Some(2.0));
        assert_eq!(eval("peak of a"), Some(2.0));
        assert_eq!(eval("mean of a / b"), Some(1.5), "where both are known");
        assert_eq!(eval("mean of b / a"), Some(2.0 / 3.0));
        assert_eq!(eval("a@2 - b@0.05"), Some(3.0));
        assert_eq!(eval("1 - a@0.05 / a"), Some(0.25));
        assert_eq!(eval("b@2"), None);
        assert_eq!(eval("c"), None);
        assert_eq!(eval("4"), Some(4.0));
        assert!(Expr::parse("a b").is_err());
        assert!(Expr::parse("/ b").is_err());
        assert!(Expr::parse("mean of a").is_err() && Expr::parse("mean of a@1 / b").is_err());
        for text in [
            "a@1 / b",
            "mean of a / b",
            "a - b",
            "1 - a / b@2",
            "peak of a",
        ] {
            assert_eq!(Expr::parse(text).unwrap().to_string(), text);
        }
    }
}
