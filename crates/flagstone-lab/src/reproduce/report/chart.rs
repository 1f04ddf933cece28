//! A figure as SVG text, in the colours of the page that it is put into.

use super::super::Measured;
use super::super::figures::Chart;
use kuva::plot::LegendPosition;
use kuva::prelude::*;

/// Colours of the series, in their order: told apart in light and dark, and by those who see red
/// and green alike.
const COLOURS: [&str; 9] = [
    "#3b82c4", "#e08214", "#2a9d8f", "#8a6fc9", "#b59a00", "#d1495b", "#5fa3c7", "#c77f9e",
    "#8c8c8c",
];

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;
/// Characters of a label that an axis has room for.
const LABEL_MAX: usize = 60;

/// From the name of a series to its colour.
pub(super) type Colours<'a> = &'a dyn Fn(&str) -> &'static str;

/// Stand for the page's own colours until the text is done.
const INK: &str = "#010101";
const GRID: &str = "#020202";

/// The colour of the series in this place.
pub(super) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The chart. Nothing if there is nothing to draw.
pub(super) fn svg(figure: &Measured, colour: Colours<'_>) -> Option<String> {
    let measured = |(_, points): &(String, Vec<_>)| points.iter().any(has_value);
    if !figure.data.series.iter().any(measured) {
        return None;
    }
    let plots = match figure.spec.chart {
        Chart::Bars => vec![bars(figure, colour)],
        Chart::Lines => lines(figure, colour),
    };
    let mut theme = Theme::light();
    theme.background = "none".into();
    theme.axis_color = INK.into();
    theme.tick_color = INK.into();
    theme.text_color = INK.into();
    theme.grid_color = GRID.into();
    let mut layout = Layout::auto_from_plots(&plots)
        .with_x_label(fitting(&figure.spec.x.label))
        .with_y_label(figure.spec.y.as_str())
        .with_theme(theme)
        .with_width(WIDTH)
        .with_height(HEIGHT)
        .with_tick_size(13)
        .with_label_size(14)
        .with_legend_position(LegendPosition::OutsideRightTop);
    if figure.spec.log {
        layout = layout.with_log_y();
    } else if figure.spec.chart == Chart::Lines {
        let ys = figure.data.series.iter().flat_map(|(_, points)| points);
        let most = ys.filter_map(|point| point.y).fold(0.0, f64::max);
        layout = layout.with_y_axis_min(0.0);
        // The highest point is a whole point.
        if most > 0.0 {
            layout = layout.with_y_axis_max(most * 1.04);
        }
    }
    let text = kuva::render_to_svg(plots, layout);
    let title = format!("{}: {}", figure.spec.place, figure.spec.title);
    let start = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"",
        super::escape(&title)
    );
    // Inside a page an SVG needs no name space, and its size is the page's matter.
    let head = text.find(" font-family")?;
    let body = text[head..].replace(INK, "currentColor");
    Some(start + &body.replace(GRID, "var(--grid)"))
}

/// As much of a label as an axis has room for; the page has all of it beside the chart.
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

fn lines(figure: &Measured, colour: Colours<'_>) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for (name, points) in &figure.data.series {
        let known = points.iter().filter_map(|point| Some((point.x, point.y?)));
        // A logarithm has no nought.
        let known = known.filter(|(_, y)| !figure.spec.log || *y > 0.0);
        let known: Vec<(f64, f64)> = known.collect();
        if known.is_empty() {
            continue;
        }
        let line = LinePlot::new()
            .with_data(known.clone())
            .with_color(colour(name))
            .with_stroke_width(2.0);
        plots.push(line.into());
        let dots = ScatterPlot::new()
            .with_data(known)
            .with_color(colour(name))
            .with_size(3.0);
        plots.push(dots.into());
    }
    plots
}

fn bars(figure: &Measured, colour: Colours<'_>) -> Plot {
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
            (point.and_then(|p| p.y).unwrap_or(0.0), colour(series))
        });
        plot.with_group(name, group.collect::<Vec<_>>())
    });
    plot.into()
}
