//! Maps of winners as text and as HTML, for `compare --over` and `sweep`. Ties are shown as ties.

use super::compare::page::table as html_table;
use super::plain_table;
use flagstone_lab::chart::{colour, escape};
use flagstone_papers::sweep::Side;

/// A map of winners over two settings.
pub(crate) struct Winners<'a> {
    pub down: Side,
    pub across: Side,
    /// The names of all contenders. The place of a name determines its colour.
    pub names: &'a [String],
    /// The cells of the map, row by row.
    pub cells: Vec<Cell<'a>>,
}

/// One cell of the map.
pub(crate) struct Cell<'a> {
    /// The winner and those that tie with it; empty if nothing was measured.
    pub winners: &'a [String],
    /// All figures of the cell, one per line.
    pub hint: String,
}

impl Winners<'_> {
    /// The map as a text table.
    pub(crate) fn text(&self, markdown: bool) -> Vec<String> {
        let mut head = vec![format!("{} \\ {}", self.down.name, self.across.name)];
        head.extend(self.across.values.iter().cloned());
        let rows = self.down.values.iter().zip(self.rows());
        let lines = rows.map(|(value, cells)| {
            let mut line = vec![value.clone()];
            line.extend(cells.iter().map(|cell| match cell.winners {
                [] => "-".to_string(),
                [one] => one.clone(),
                [one, other] => format!("{one} = {other}"),
                [one, others @ ..] => format!("{one} = {} others", others.len()),
            }));
            line
        });
        let lines: Vec<Vec<String>> = lines.collect();
        table(head, &lines, markdown)
    }

    /// The map as an HTML table. Cells with a tie are striped.
    pub(crate) fn html(&self) -> String {
        let mut rows = String::new();
        for (value, cells) in self.down.values.iter().zip(self.rows()) {
            let cells: String = cells.iter().map(|cell| self.cell(cell)).collect();
            rows += &format!("<tr><td>{}</td>{cells}</tr>\n", escape(value));
        }
        let heads: String = self
            .across
            .values
            .iter()
            .map(|value| format!("<th>{}</th>", escape(value)))
            .collect();
        format!(
            "<div class=\"wide\"><table class=\"map\">\n<thead><tr><th>{} ↓ {} →</th>{heads}</tr></thead>\
             \n<tbody>\n{rows}</tbody>\n</table></div>\n",
            escape(&self.down.name),
            escape(&self.across.name)
        )
    }

    fn rows(&self) -> impl Iterator<Item = &[Cell<'_>]> {
        self.cells.chunks(self.across.values.len().max(1))
    }

    /// A cell: its first winner in its colour, and those that tie with it. A stripe has the colour
    /// of the second.
    fn cell(&self, cell: &Cell<'_>) -> String {
        let hint = escape(&cell.hint);
        let Some(first) = cell.winners.first() else {
            return format!("<td title=\"{hint}\">-</td>");
        };
        let of = |name: &String| {
            let place = self.names.iter().position(|known| known == name);
            colour(place.expect("it was measured"))
        };
        let (class, other) = match cell.winners.get(1) {
            Some(second) => ("tie", of(second)),
            None => ("win", of(first)),
        };
        let ties = match cell.winners {
            [_] => String::new(),
            [_, second] => format!("<small>= {}</small>", escape(second)),
            [_, others @ ..] => format!("<small>= {} others</small>", others.len()),
            [] => unreachable!("there is a first"),
        };
        format!(
            "<td class=\"{class}\" style=\"--c:{};--d:{other}\" title=\"{hint}\">{}{ties}</td>",
            of(first),
            escape(first)
        )
    }
}

/// Says at how many points each contender wins.
pub(crate) fn verdict(names: &[String], points: &[&[String]]) -> String {
    let mut counts: Vec<(&String, usize, usize)> = Vec::new();
    for name in names {
        let wins = points.iter().filter(|winners| winners.contains(name));
        let alone = wins.clone().filter(|winners| winners.len() == 1).count();
        if wins.clone().next().is_some() {
            counts.push((name, wins.count(), alone));
        }
    }
    counts.sort_by_key(|&(_, wins, alone)| std::cmp::Reverse((wins, alone)));
    let each = counts.into_iter().map(|(name, wins, alone)| match alone {
        0 => format!("{name} at {wins}"),
        _ => format!("{name} at {wins} (alone at {alone})"),
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        "No protocol is first at any point.".into()
    } else {
        format!(
            "First or tied, of {} points: {}.",
            points.len(),
            each.join(", ")
        )
    }
}

/// A text table, in which all columns but the first are right-aligned.
pub(crate) fn table(head: Vec<String>, lines: &[Vec<String>], markdown: bool) -> Vec<String> {
    if markdown {
        let line = |cells: &[String]| {
            let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule: Vec<String> = head.iter().map(|_| "---:".to_string()).collect();
        let mut all = vec![line(&head), line(&rule)];
        all.extend(lines.iter().map(|cells| line(cells)));
        return all;
    }
    let mut table = plain_table();
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(head);
    table.add_rows(lines.iter().cloned());
    for column in table.column_iter_mut() {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().into()).collect()
}

/// All figures as HTML, in a section that can be unfolded.
pub(crate) fn figures(head: &[String], lines: &[Vec<String>], of: &str, open: bool) -> String {
    format!(
        "<details{}><summary>All figures: {of}</summary>\n{}</details>\n",
        if open { " open" } else { "" },
        html_table(head, lines)
    )
}
