//! A figure as SVG text, in the colours of the page that contains it.

use super::super::figures::Chart;
use super::super::{Judged, Measured};
use super::published;
use flagstone_lab::chart::{self, Frame, Height, colour, series};
use kuva::prelude::*;

const SIZE: (u32, u32) = (560, 330);
/// Maximum number of characters in an axis label.
const LABEL_MAX: usize = 60;

/// Maps the name of a series to its index among the series of the paper.
pub(super) type Places<'a> = &'a dyn Fn(&str) -> usize;

/// The chart. `None` if there is nothing to draw.
pub(super) fn svg(figure: &Measured, claims: &[&Judged], place: Places<'_>) -> Option<String> {
    let measured = |(_, points): &(String, Vec<_>)| points.iter().any(has_value);
    if !figure.data.series.iter().any(measured) {
        return None;
    }
    let mut plots = match figure.spec.chart {
        Chart::Bars => vec![bars(figure, place)],
        Chart::Lines => lines(figure, place),
    };
    let ys = figure.data.series.iter().flat_map(|(_, points)| points);
    let (published, most) = published::plots(figure, claims, place);
    let most = ys.filter_map(|point| point.y).fold(most, f64::max);
    plots.extend(published);
    let frame = Frame {
        title: &format!("{}: {}", figure.spec.place, figure.spec.title),
        x: &fitting(&figure.spec.x.label),
        y: &figure.spec.y,
        size: SIZE,
        height: match figure.spec.chart {
            _ if figure.spec.log => Height::Logarithm,
            Chart::Lines => Height::UpTo(most),
            Chart::Bars => Height::AsTheyAre,
        },
    };
    chart::draw(plots, &frame)
}

/// The part of a label that fits an axis; the page shows the complete label beside the chart.
pub(super) fn fitting(label: &str) -> String {
    if label.chars().count() <= LABEL_MAX {
        return label.to_string();
    }
    let short: String = label.chars().take(LABEL_MAX - 2).collect();
    let whole_words = short
        .rsplit_once(' ')
        .map_or(short.as_str(), |(words, _)| words);
    format!("{} …", whole_words.trim_end_matches([';', ',']))
}

fn has_value(point: &super::super::measure::Point) -> bool {
    point.y.is_some()
}

/// The lines of the measured series. `place` gives each series its colour and shape.
fn lines(figure: &Measured, place: Places<'_>) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    let count = figure.data.series.len();
    for (index, (name, points)) in figure.data.series.iter().enumerate() {
        let known = points.iter().filter_map(|point| Some((point.x, point.y?)));
        // Zero has no logarithm, so it is not drawn.
        let known = known.filter(|(_, y)| !figure.spec.log || *y > 0.0);
        let known: Vec<(f64, f64)> = known.collect();
        if known.is_empty() {
            continue;
        }
        plots.extend(series(known, place(name), count - 1 - index));
    }
    plots
}

/// The bars of the measured series, a group for each point. A missing value has height 0.
fn bars(figure: &Measured, place: Places<'_>) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for point in figure.data.series.iter().flat_map(|(_, points)| points) {
        if !names.contains(&point.name.as_str()) {
            names.push(&point.name);
        }
    }
    let plot = names.into_iter().fold(BarPlot::new(), |plot, name| {
        let series = figure.data.series.iter();
        let group = series.map(|(series, points)| {
            let point = points.iter().find(|point| point.name == name);
            (
                point.and_then(|p| p.y).unwrap_or(0.0),
                colour(place(series)),
            )
        });
        plot.with_group(name, group.collect::<Vec<_>>())
    });
    plot.into()
}
