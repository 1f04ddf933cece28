//! Draws published figures into a measured figure: a dash, connected to its point or bar.
//!
//! Papers publish ratios more often than values. The dash of a ratio is where the first series
//! would be if it had that ratio to the measured second series.

use super::super::figures::Chart;
use super::super::measure::{Data, Expr, Term};
use super::super::verdict::Part;
use super::super::{Judged, Measured};
use super::chart::Places;
use flagstone_lab::chart::{INK, colour};
use kuva::prelude::*;

/// Half the length of a dash, as a fraction of the axis of a figure with lines.
const HALF_DASH: f64 = 0.018;
/// The fraction of a group's width that its bars take.
const BARS: f64 = 0.8;

/// The published position of a series.
struct Dash {
    series: usize,
    /// The index of the point; `None` for the whole series.
    at: Option<usize>,
    /// Ratio of published to measured.
    factor: f64,
}

/// The series or point of a published figure, and its ratio to the measured value.
fn dash(data: &Data, part: &Part) -> Option<Dash> {
    // A value within the published range has no separate position.
    let (value, deviation) = (part.value?, part.deviation.filter(|by| *by != 0.0)?);
    let published = value / (1.0 + deviation);
    let whole = |series: &String| Term {
        series: series.clone(),
        at: None,
    };
    let (of, factor) = match part.expr.as_ref()? {
        Expr::Term(of) | Expr::Over(of, _) => (of.clone(), published / value),
        Expr::MeanOver(of, _) => (whole(of), published / value),
        Expr::Saved(of, _) => (of.clone(), (1.0 - published) / (1.0 - value)),
        Expr::Less(of, less) => {
            let from = data.value(less)? + published;
            (of.clone(), from / data.value(of)?)
        }
        Expr::Peak(_) | Expr::Number(_) => return None,
    };
    let series = data
        .series
        .iter()
        .position(|(name, _)| *name == of.series)?;
    let points = &data.series[series].1;
    let at = match &of.at {
        None if points.len() == 1 => Some(0),
        None => None,
        Some(_) => {
            let y = data.value(&of)?;
            points.iter().position(|point| point.y == Some(y))
        }
    };
    (factor.is_finite() && factor > 0.0).then_some(Dash { series, at, factor })
}

fn dashes(figure: &Measured, claims: &[&Judged]) -> Vec<Dash> {
    let parts = claims.iter().flat_map(|judged| &judged.judgement.parts);
    let own = format!("{}: ", figure.spec.id);
    parts
        .filter(|part| part.what.starts_with(&own))
        .filter_map(|part| dash(&figure.data, part))
        .collect()
}

/// The plots of a figure's published values, and the maximum among them.
pub(super) fn plots(figure: &Measured, claims: &[&Judged], place: Places<'_>) -> (Vec<Plot>, f64) {
    let (mut plots, mut most) = (Vec::new(), 0.0_f64);
    let all = &figure.data.series;
    let xs = all
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.x);
    let (low, high) = xs.fold((f64::MAX, f64::MIN), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    for Dash { series, at, factor } in dashes(figure, claims) {
        let (name, points) = &all[series];
        let of_it = colour(place(name));
        let known = points.iter().enumerate();
        let known = known.filter_map(|(index, point)| Some((index, point.x, point.y?)));
        let known: Vec<(usize, f64, f64)> = known.collect();
        let is_bars = figure.spec.chart == Chart::Bars;
        // In bars, a figure of a whole series stands beside each of them: `usize::MAX` means all.
        let Some(at) = at.or_else(|| is_bars.then_some(usize::MAX)) else {
            // The whole line, shifted by the ratio of the means.
            let line: Vec<(f64, f64)> = known.iter().map(|&(_, x, y)| (x, y * factor)).collect();
            most = line.iter().fold(most, |most, point| most.max(point.1));
            let line = LinePlot::new().with_data(line).with_color(of_it);
            plots.push(line.with_stroke_width(1.2).with_dashed().into());
            continue;
        };
        for &(index, x, y) in known
            .iter()
            .filter(|known| at == usize::MAX || known.0 == at)
        {
            let (from, to) = if is_bars {
                let bar = BARS / all.len() as f64;
                let left = index as f64 + 1.0 - BARS / 2.0 + bar * series as f64;
                (left, left + bar)
            } else {
                let half = ((high - low) * HALF_DASH).max(f64::EPSILON);
                (x - half, x + half)
            };
            let published = y * factor;
            most = most.max(published);
            let middle = (from + to) / 2.0;
            let joint = LinePlot::new().with_data([(middle, y), (middle, published)]);
            plots.push(
                joint
                    .with_color(of_it)
                    .with_stroke_width(1.2)
                    .with_dotted()
                    .into(),
            );
            let dash = LinePlot::new().with_data([(from, published), (to, published)]);
            plots.push(dash.with_color(INK).with_stroke_width(2.2).into());
        }
    }
    (plots, most)
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::tests::data;
    use super::super::super::verdict::Verdict;
    use super::*;

    /// The published position of an expression's first series at its point, or its ratio.
    fn drawn(expr: &str, published: f64) -> (usize, Option<usize>, f64) {
        let data = data(&[1.0, 2.0], &[("a", &[3.0, 6.0]), ("b", &[2.0, 8.0])]);
        let expr = Expr::parse(expr).expect("an expression");
        let value = data.eval(&expr).expect("it is measured");
        let part = Part {
            what: format!("fig1: {expr}"),
            expr: Some(expr),
            published: published.to_string(),
            accepted: String::new(),
            measured: value.to_string(),
            value: Some(value),
            deviation: Some(value / published - 1.0),
            verdict: Verdict::Differs,
        };
        let dash = dash(&data, &part).expect("it is drawn");
        let y = dash
            .at
            .map_or(1.0, |at| data.series[dash.series].1[at].y.expect("known"));
        (dash.series, dash.at, (dash.factor * y * 1e9).round() / 1e9)
    }

    #[test]
    fn a_dash_is_where_what_is_published_would_be_true() {
        assert_eq!(drawn("a@1", 4.0), (0, Some(0), 4.0));
        // The value of b at 2 is 8.
        assert_eq!(drawn("a@2 / b@2", 1.5), (0, Some(1), 12.0));
        assert_eq!(drawn("1 - a@2 / b@2", 0.75), (0, Some(1), 2.0));
        assert_eq!(drawn("b@2 - a@2", 3.0), (1, Some(1), 9.0));
        // The means are 4.5 and 5.
        assert_eq!(drawn("a / b", 1.8), (0, None, 2.0));
        assert_eq!(drawn("mean of b / a", 2.0), (1, None, 2.0));
    }
}
