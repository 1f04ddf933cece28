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

/// Shapes of the points of the series, in their order, with the sign that a legend has. There are
/// fewer than colours, so that two series have the same shape and the same colour after 72.
const MARKERS: [(MarkerShape, &str); 8] = [
    (MarkerShape::Circle, "●"),
    (MarkerShape::Square, "■"),
    (MarkerShape::Triangle, "▲"),
    (MarkerShape::Diamond, "◆"),
    (MarkerShape::Cross, "✕"),
    (MarkerShape::TriangleDown, "▼"),
    (MarkerShape::Plus, "✚"),
    (MarkerShape::Star, "★"),
];

/// From the name of a series to its place among the series of its paper.
pub(super) type Places<'a> = &'a dyn Fn(&str) -> usize;

/// Stand for the page's own colours until the text is done.
const INK: &str = "#010101";
const GRID: &str = "#020202";

/// The colour of the series in this place.
pub(super) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The sign of the points of the series in this place.
pub(super) fn sign(series: usize) -> &'static str {
    MARKERS[series % MARKERS.len()].1
}

/// The chart. Nothing if there is nothing to draw.
pub(super) fn svg(figure: &Measured, place: Places<'_>) -> Option<String> {
    let measured = |(_, points): &(String, Vec<_>)| points.iter().any(has_value);
    if !figure.data.series.iter().any(measured) {
        return None;
    }
    let plots = match figure.spec.chart {
        Chart::Bars => vec![bars(figure, place)],
        Chart::Lines => lines(figure, place),
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

fn lines(figure: &Measured, place: Places<'_>) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    let count = figure.data.series.len();
    for (index, (name, points)) in figure.data.series.iter().enumerate() {
        let colour = colour(place(name));
        // Where series lie on each other, the points of the earlier ones look out from behind.
        let behind = (count - 1 - index).min(6) as f64;
        let known = points.iter().filter_map(|point| Some((point.x, point.y?)));
        // A logarithm has no nought.
        let known = known.filter(|(_, y)| !figure.spec.log || *y > 0.0);
        let known: Vec<(f64, f64)> = known.collect();
        if known.is_empty() {
            continue;
        }
        let line = LinePlot::new()
            .with_data(known.clone())
            .with_color(colour)
            .with_stroke_width(1.4 + 0.5 * behind);
        plots.push(line.into());
        let dots = ScatterPlot::new()
            .with_data(known)
            .with_color(colour)
            .with_marker(MARKERS[place(name) % MARKERS.len()].0)
            .with_size(3.4 + 0.7 * behind);
        plots.push(dots.into());
    }
    plots
}

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
