//! A grid as an HTML page: a chart for one axis, a map of winners for two, and all figures.

use super::super::page::{paragraphs, whole};
use super::{Grid, Point};
use crate::commands::winners;
use flagstone_lab::chart::{colour, escape, lines, sign};
use flagstone_lab::ranking::Figure;

pub(super) fn page(grid: &Grid<'_>) -> String {
    let mut body = paragraphs(&[format!("{}.", grid.about)]);
    body += &paragraphs(&[grid.verdict()]);
    body += &match grid.axes.len() {
        1 => chart(grid),
        _ => grid.map().html(),
    };
    body += &format!("<p class=\"soft\">{}</p>\n", escape(&grid.legend()));
    body += &figures(grid);
    body += "<p class=\"soft\">Times and rates are virtual, and exact for their seeds.</p>\n";
    whole(&format!("Flagstone: {}", grid.title()), &body)
}

/// A line chart over the axis, with a legend.
fn chart(grid: &Grid<'_>) -> String {
    let of = |protocol: &String| {
        let points = grid.points.iter().filter_map(|point| {
            let row = point.row(protocol).filter(|row| row.commits())?;
            let figure = grid.figure(row);
            let in_its_unit = match grid.by {
                Figure::Rate => figure,
                Figure::Tail => figure / 1e6,
            };
            Some((point.at[0], in_its_unit))
        });
        points.collect::<Vec<_>>()
    };
    let series: Vec<Vec<(f64, f64)>> = grid.protocols.iter().map(of).collect();
    let y = match grid.by {
        Figure::Rate => "tx/s",
        Figure::Tail => "p99 response time, ms",
    };
    let x = grid.axes[0].setting.name();
    let Some(svg) = lines(&grid.title(), x, y, &series) else {
        return String::new();
    };
    let key = |(at, name): (usize, &String)| {
        format!(
            "<li><span style=\"color:{}\">{}</span> {}</li>",
            colour(at),
            sign(at),
            escape(name)
        )
    };
    let keys: String = grid.protocols.iter().enumerate().map(key).collect();
    format!("{svg}\n<ul class=\"legend\">{keys}</ul>\n")
}

/// All figures, in a section that can be unfolded.
fn figures(grid: &Grid<'_>) -> String {
    let mut head: Vec<String> = Vec::new();
    head.extend(grid.axes.iter().map(|axis| axis.setting.name().to_string()));
    head.extend(grid.protocols.iter().cloned());
    let line = |point: &Point| {
        let mut cells: Vec<String> = point.at.iter().map(f64::to_string).collect();
        let of = |name: &String| escape(grid.cell(point, name).trim());
        cells.extend(grid.protocols.iter().map(of));
        cells
    };
    let lines: Vec<Vec<String>> = grid.points.iter().map(line).collect();
    let unit = match grid.by {
        Figure::Rate => "tx/s",
        Figure::Tail => "p99 response time in ms",
    };
    let of = format!("{unit}; * the first, ~ tied with it, ! saturated");
    winners::figures(&head, &lines, &of, grid.axes.len() == 1)
}
