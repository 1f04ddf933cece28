//! A grid as a page: lines for one setting, a map of winners for two, and all figures below.

use super::super::page::{paragraphs, table, whole};
use super::super::standing::Figure;
use super::{Grid, Point};
use flagstone_lab::chart::{colour, escape, lines, sign};

pub(super) fn page(grid: &Grid<'_>) -> String {
    let mut body = paragraphs(&[format!("{}.", grid.about)]);
    body += &paragraphs(&[grid.verdict()]);
    body += &match grid.axes.len() {
        1 => chart(grid),
        _ => map(grid),
    };
    body += &format!("<p class=\"soft\">{}</p>\n", escape(&grid.legend()));
    body += &figures(grid);
    body += "<p class=\"soft\">Times and rates are virtual, and exact for their seeds.</p>\n";
    whole(&format!("Flagstone: {}", grid.title()), &body)
}

fn place(grid: &Grid<'_>, protocol: &str) -> usize {
    let found = grid.protocols.iter().position(|name| name == protocol);
    found.expect("it was measured")
}

/// Lines over the one axis, and a legend of them.
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
    let Some(svg) = lines(&grid.title(), (x, y), &series) else {
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

/// Who wins at each point: a colour a protocol, stripes where protocols tie.
fn map(grid: &Grid<'_>) -> String {
    let [down, across] = grid.axes else {
        unreachable!("a grid has one axis or two")
    };
    let mut rows = String::new();
    for points in grid.points.chunks(across.values.len()) {
        let cells: String = points.iter().map(|point| cell(grid, point)).collect();
        rows += &format!("<tr><td>{}</td>{cells}</tr>\n", points[0].at[0]);
    }
    let heads: String = across
        .values
        .iter()
        .map(|value| format!("<th>{value}</th>"))
        .collect();
    format!(
        "<div class=\"wide\"><table class=\"map\">\n<thead><tr><th>{} ↓ {} →</th>{heads}</tr></thead>\
         \n<tbody>\n{rows}</tbody>\n</table></div>\n",
        escape(down.setting.name()),
        escape(across.setting.name())
    )
}

fn cell(grid: &Grid<'_>, point: &Point) -> String {
    let winners = point.winners();
    let figures: Vec<String> = grid
        .protocols
        .iter()
        .map(|name| format!("{name} {}", grid.cell(point, name).trim()))
        .collect();
    let hint = escape(&figures.join("\n"));
    let Some(first) = winners.first() else {
        return format!("<td title=\"{hint}\">-</td>");
    };
    let of = |name: &str| colour(place(grid, name));
    let (class, other) = match winners.get(1) {
        Some(second) => ("tie", of(second)),
        None => ("win", of(first)),
    };
    let ties = match winners.len() {
        1 => String::new(),
        2 => format!("<small>= {}</small>", escape(winners[1])),
        more => format!("<small>= {} others</small>", more - 1),
    };
    format!(
        "<td class=\"{class}\" style=\"--c:{};--d:{other}\" title=\"{hint}\">{}{ties}</td>",
        of(first),
        escape(first)
    )
}

/// All figures, folded.
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
    format!(
        "<details{}><summary>All figures: {unit}; * the first, ~ tied with it, ! saturated</summary>\
         \n{}</details>\n",
        if grid.axes.len() == 1 { " open" } else { "" },
        table(&head, &lines)
    )
}
