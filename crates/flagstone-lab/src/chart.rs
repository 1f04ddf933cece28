//! Charts as SVG text for pages of results: in the colours of the page, with shapes that
//! distinguish series without colours.

use kuva::plot::LegendPosition;
use kuva::prelude::*;

/// Colours of series, which differ in lightness and for readers with red-green blindness.
const COLOURS: [&str; 13] = [
    "#3b82c4", "#e08214", "#2a9d8f", "#8a6fc9", "#b59a00", "#d1495b", "#5fa3c7", "#c77f9e",
    "#8c8c8c", "#6b8e23", "#a0522d", "#0f766e", "#be185d",
];

/// Shapes of points, with their legend symbols. Fewer than colours, so that shape and colour only
/// repeat together after 104 series.
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

/// Placeholders for the page's own colours in unfinished text.
pub const INK: &str = "#010101";
const GRID: &str = "#020202";

/// The colour of series number `series`.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The legend symbol of series number `series`.
pub fn sign(series: usize) -> &'static str {
    MARKERS[series % MARKERS.len()].1
}

/// Escapes text for a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The shape of the points of series number `series`.
pub fn marker(series: usize) -> MarkerShape {
    MARKERS[series % MARKERS.len()].0
}

/// The vertical scale of a chart.
#[derive(Debug, Clone, Copy)]
pub enum Height {
    /// Automatic, from the data.
    AsTheyAre,
    /// From 0 to a little above this value, so that the highest point is fully visible.
    UpTo(f64),
    /// Logarithmic.
    Logarithm,
}

/// Title, axes and legend of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Text above the chart.
    pub title: &'a str,
    /// Label below the horizontal axis.
    pub x: &'a str,
    /// Label next to the vertical axis.
    pub y: &'a str,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// The vertical scale.
    pub height: Height,
}

/// A series as points with a line through them. `above` is the number of series drawn over this
/// one. Its points are larger the more there are, so that they stay visible.
pub fn series(points: Vec<(f64, f64)>, place: usize, above: usize) -> [Plot; 2] {
    let behind = above.min(6) as f64;
    let line = LinePlot::new()
        .with_data(points.clone())
        .with_color(colour(place))
        .with_stroke_width(1.4 + 0.5 * behind);
    let dots = ScatterPlot::new()
        .with_data(points)
        .with_color(colour(place))
        .with_marker(marker(place))
        .with_size(3.4 + 0.7 * behind);
    [line.into(), dots.into()]
}

/// Draws plots in a frame.
pub fn draw(plots: Vec<Plot>, frame: &Frame<'_>) -> Option<String> {
    let mut theme = Theme::light();
    theme.background = "none".into();
    theme.axis_color = INK.into();
    theme.tick_color = INK.into();
    theme.text_color = INK.into();
    theme.grid_color = GRID.into();
    let (width, height) = frame.size;
    let mut layout = Layout::auto_from_plots(&plots)
        .with_x_label(frame.x)
        .with_y_label(frame.y)
        .with_theme(theme)
        .with_width(width.into())
        .with_height(height.into())
        .with_tick_size(13)
        .with_label_size(14)
        .with_legend_position(LegendPosition::OutsideRightTop);
    layout = match frame.height {
        Height::AsTheyAre => layout,
        Height::Logarithm => layout.with_log_y(),
        Height::UpTo(most) => {
            let layout = layout.with_y_axis_min(0.0);
            if most > 0.0 {
                layout.with_y_axis_max(most * 1.04)
            } else {
                layout
            }
        }
    };
    let text = kuva::render_to_svg(plots, layout);
    let start = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\"",
        escape(frame.title)
    );
    // Inside a page an SVG needs no name space, and the page sets its size.
    let head = text.find(" font-family")?;
    let body = text[head..].replace(INK, "currentColor");
    Some(start + &body.replace(GRID, "var(--grid)"))
}

/// A line chart; `x` and `y` name the axes.
pub fn lines(title: &str, x: &str, y: &str, all: &[Vec<(f64, f64)>]) -> Option<String> {
    let most = all.iter().flatten().map(|point| point.1);
    let most = most.fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let told = all
        .iter()
        .enumerate()
        .filter(|(_, points)| !points.is_empty());
    let plots =
        told.flat_map(|(place, points)| series(points.clone(), place, all.len() - 1 - place));
    let frame = Frame {
        title,
        x,
        y,
        size: (760, 420),
        height: Height::UpTo(most),
    };
    draw(plots.collect(), &frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_line_for_each_series_and_its_title() {
        let series = [vec![(0.0, 1.0), (1.0, 2.0)], vec![(0.0, 2.0), (1.0, 1.0)]];
        let svg = lines("a < b", "x", "y", &series).expect("there is something to draw");
        assert!(
            svg.starts_with("<svg viewBox") && svg.contains("a &lt; b"),
            "{svg}"
        );
        assert!(svg.contains(colour(0)) && svg.contains(colour(1)), "{svg}");
        assert!(!svg.contains("xmlns") && !svg.contains(INK), "{svg}");
        assert_eq!(lines("none", "x", "y", &[vec![]]), None);
    }
}
