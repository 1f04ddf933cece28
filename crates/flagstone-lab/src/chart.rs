//! Charts of lines as SVG text, for pages of results: in the colours of the page, and with shapes
//! that tell series apart without them.

use kuva::plot::LegendPosition;
use kuva::prelude::*;

/// Colours of series: told apart in light and dark, and by those who see red and green alike.
const COLOURS: [&str; 13] = [
    "#3b82c4", "#e08214", "#2a9d8f", "#8a6fc9", "#b59a00", "#d1495b", "#5fa3c7", "#c77f9e",
    "#8c8c8c", "#6b8e23", "#a0522d", "#0f766e", "#be185d",
];

/// Shapes of points, with the signs that a legend has. There are fewer than colours, so that two
/// series have the same shape and the same colour after 104.
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

/// Stand for the page's own colours until the text is done.
const INK: &str = "#010101";
const GRID: &str = "#020202";

/// The colour of the series in this place.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The sign of the points of the series in this place.
pub fn sign(series: usize) -> &'static str {
    MARKERS[series % MARKERS.len()].1
}

/// Text in a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A line for each series, in the order of their places; `x` and `y` name the axes.
pub fn lines(title: &str, (x, y): (&str, &str), series: &[Vec<(f64, f64)>]) -> Option<String> {
    let mut plots: Vec<Plot> = Vec::new();
    for (place, points) in series.iter().enumerate() {
        if points.is_empty() {
            continue;
        }
        // Where series lie on each other, the points of the earlier ones look out from behind.
        let behind = (series.len() - 1 - place).min(6) as f64;
        let line = LinePlot::new()
            .with_data(points.clone())
            .with_color(colour(place))
            .with_stroke_width(1.4 + 0.3 * behind);
        plots.push(line.into());
        let dots = ScatterPlot::new()
            .with_data(points.clone())
            .with_color(colour(place))
            .with_marker(MARKERS[place % MARKERS.len()].0)
            .with_size(3.4 + 0.7 * behind);
        plots.push(dots.into());
    }
    let most = series
        .iter()
        .flatten()
        .map(|point| point.1)
        .fold(0.0, f64::max);
    if plots.is_empty() || most <= 0.0 {
        return None;
    }
    let mut theme = Theme::light();
    theme.background = "none".into();
    theme.axis_color = INK.into();
    theme.tick_color = INK.into();
    theme.text_color = INK.into();
    theme.grid_color = GRID.into();
    let layout = Layout::auto_from_plots(&plots)
        .with_x_label(x)
        .with_y_label(y)
        .with_theme(theme)
        .with_width(760.0)
        .with_height(420.0)
        .with_tick_size(13)
        .with_label_size(14)
        .with_legend_position(LegendPosition::OutsideRightTop)
        .with_y_axis_min(0.0)
        .with_y_axis_max(most * 1.04);
    let text = kuva::render_to_svg(plots, layout);
    // Inside a page an SVG needs no name space, and its size is the page's matter.
    let head = text.find(" font-family")?;
    let start = format!(
        "<svg viewBox=\"0 0 760 420\" role=\"img\" aria-label=\"{}\"",
        escape(title)
    );
    let body = text[head..].replace(INK, "currentColor");
    Some(start + &body.replace(GRID, "var(--grid)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_line_for_each_series_and_its_title() {
        let series = [vec![(0.0, 1.0), (1.0, 2.0)], vec![(0.0, 2.0), (1.0, 1.0)]];
        let svg = lines("a < b", ("x", "y"), &series).expect("there is something to draw");
        assert!(
            svg.starts_with("<svg viewBox") && svg.contains("a &lt; b"),
            "{svg}"
        );
        assert!(svg.contains(colour(0)) && svg.contains(colour(1)), "{svg}");
        assert!(!svg.contains("xmlns") && !svg.contains(INK), "{svg}");
        assert_eq!(lines("none", ("x", "y"), &[vec![]]), None);
    }
}
