//! Tables of a comparison, as text, Markdown and CSV: the columns, their meaning, and which of them
//! fit the width.

use super::page;
use crate::commands::plain_table;
use flagstone_lab::chart::escape;
use flagstone_lab::ranking::{Figure, Measured, Row, Standing, millis};
use serde::Serialize;
use serde_json::Value;

/// The width of a table in characters if the output is a file or a pipe.
const WIDTH: usize = 100;

/// A column of the table.
pub(super) struct Column<R> {
    pub heading: &'static str,
    /// A short definition, printed below the table and by --help.
    pub says: &'static str,
    /// Columns fill the width in ascending order of this number.
    pub rank: u8,
    pub cell: Cell<R>,
}

/// The heading and the definition of a column.
pub(super) type Defined = (&'static str, &'static str);

impl<R> Column<R> {
    pub(super) fn defined(&self) -> Defined {
        (self.heading, self.says)
    }
}

/// How the cell of a row is computed.
pub(super) enum Cell<R> {
    /// A word that is the same for all seeds.
    Word(fn(&R) -> String),
    /// The mean of a number over the seeds, and its format.
    Number(fn(&R) -> f64, fn(f64) -> String),
    /// As `Number`, for figures of committed transactions; a dash if there are none.
    Committed(fn(&R) -> f64, fn(f64) -> String),
    /// The figure by which rows are ranked, as a multiple of the first row's.
    Relative,
    /// The range of that figure over the seeds, and its format.
    Range(Figure, fn(f64) -> String),
    /// Whether the row keeps up with the arrivals.
    KeepsUp,
}

/// Formats nanoseconds as milliseconds.
pub(super) fn whole(number: f64) -> String {
    format!("{number:.0}")
}

pub(super) fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

pub(super) fn hundredths(number: f64) -> String {
    format!("{number:.2}")
}

/// The width of the terminal, or [`WIDTH`] if there is none.
pub(super) fn width() -> usize {
    comfy_table::Table::new()
        .width()
        .map_or(WIDTH, |columns| usize::from(columns).max(40))
}

impl<R: Measured> Column<R> {
    fn is_word(&self) -> bool {
        matches!(self.cell, Cell::Word(_))
    }

    /// Whether the column is meaningful for these rows.
    fn applies(&self, standing: &Standing<'_, R>) -> bool {
        match self.cell {
            Cell::Range(by, _) => by == standing.by && standing.seeds() > 1,
            Cell::KeepsUp => standing.by == Figure::Tail,
            _ => true,
        }
    }

    /// The cell of a row; `-` if the row has no commits, and the column depends on them.
    fn text(&self, row: &Row<R>, standing: &Standing<'_, R>) -> String {
        let of_committed = matches!(
            self.cell,
            Cell::Committed(..) | Cell::Relative | Cell::Range(..)
        );
        if of_committed && !row.commits() {
            return "-".into();
        }
        match self.cell {
            Cell::Word(word) => word(&row.runs[0]),
            Cell::Number(of, text) | Cell::Committed(of, text) => text(row.mean(of)),
            Cell::Relative => {
                // Any row with commits can be the reference, and this row has some.
                let reference = standing.reference().expect("this row has committed");
                let figure = |row: &Row<R>| row.mean(|run| standing.by.of(run));
                hundredths(figure(row) / figure(reference))
            }
            Cell::Range(by, text) => {
                let (least, most) = by.range(row);
                format!("{}..{}", text(least), text(most))
            }
            Cell::KeepsUp => (if row.is_saturated() { "no" } else { "yes" }).into(),
        }
    }
}

/// The columns that comparisons of protocols and of databases share.
impl<R: Measured> Column<R> {
    pub(super) const RATE: Column<R> = Column {
        heading: "tx/s",
        says: "transactions committed per second",
        rank: 1,
        cell: Cell::Number(R::rate, whole),
    };

    pub(super) const RATE_RANGE: Column<R> = Column {
        heading: "tx/s range",
        says: "least and most tx/s over the seeds",
        rank: 2,
        cell: Cell::Range(Figure::Rate, tenths),
    };

    pub(super) const KEEPS_UP: Column<R> = Column {
        heading: "keeps up",
        says: "whether as many transactions complete as arrive",
        rank: 2,
        cell: Cell::KeepsUp,
    };

    pub(super) const RELATIVE: Column<R> = Column {
        heading: "relative",
        says: "tx/s relative to the first row; at an arrival rate, p99 relative to the first row",
        rank: 15,
        cell: Cell::Relative,
    };

    pub(super) const MEDIAN: Column<R> = Column {
        heading: "p50",
        says: "median of the response times",
        rank: 14,
        cell: Cell::Committed(|r| r.response().p50 as f64, millis),
    };

    pub(super) const TAIL: Column<R> = Column {
        heading: "p99",
        says: "99th percentile of the response times",
        rank: 1,
        cell: Cell::Committed(|r| r.response().p99 as f64, millis),
    };

    pub(super) const TAIL_RANGE: Column<R> = Column {
        heading: "p99 range",
        says: "least and most p99 over the seeds",
        rank: 2,
        cell: Cell::Range(Figure::Tail, millis),
    };

    pub(super) const FAR_TAIL: Column<R> = Column {
        heading: "p99.9",
        says: "99.9th percentile of the response times",
        rank: 13,
        cell: Cell::Committed(|r| r.response().p999 as f64, millis),
    };
}

/// Columns for how the time of planes and channels was used.
impl<R: Measured> Column<R> {
    pub(super) const PLANES: Column<R> = Column {
        heading: "busy %",
        says: "share of the time in which planes were busy",
        rank: 7,
        cell: Cell::Number(|r| 100.0 * r.occupied().planes, whole),
    };

    pub(super) const CHANNELS: Column<R> = Column {
        heading: "chan %",
        says: "share of the time in which channels were busy",
        rank: 15,
        cell: Cell::Number(|r| 100.0 * r.occupied().channels, whole),
    };

    pub(super) const FOR_HOST: Column<R> = Column {
        heading: "host %",
        says: "share of the planes' time for reads and writes of the host",
        rank: 16,
        cell: Cell::Number(|r| r.occupied().share(|o| o.host_ns), whole),
    };

    pub(super) const FOR_COLLECTION: Column<R> = Column {
        heading: "gc %",
        says: "share of the planes' time for garbage collection",
        rank: 16,
        cell: Cell::Number(|r| r.occupied().share(|o| o.collection_ns), whole),
    };

    pub(super) const FOR_PROTOCOL: Column<R> = Column {
        heading: "own %",
        says: "share of the planes' time for reads and programs of the protocol: to commit, for \
               the mapping and for logs",
        rank: 16,
        cell: Cell::Number(|r| r.occupied().share(|o| o.protocol_ns), whole),
    };
}

/// A table with all columns that are meaningful for its rows.
pub(super) struct Table<R: 'static> {
    columns: Vec<&'static Column<R>>,
    /// The cells by row, then by column.
    cells: Vec<Vec<String>>,
}

impl<R: Measured> Table<R> {
    pub(super) fn new(columns: &'static [Column<R>], standing: &Standing<'_, R>) -> Table<R> {
        let columns: Vec<_> = columns.iter().filter(|c| c.applies(standing)).collect();
        let cells = |row: &&Row<R>| columns.iter().map(|c| c.text(row, standing)).collect();
        Table {
            cells: standing.rows.iter().map(cells).collect(),
            columns,
        }
    }

    /// Keeps the columns that fit `width` characters together, in ascending order of `rank`. A
    /// column that is too wide is left out, and narrower ones after it may still fit.
    #[must_use]
    pub(super) fn fit(mut self, width: usize) -> Table<R> {
        let taken = |at: usize| {
            let cells = self.cells.iter().map(|row| row[at].chars().count());
            // One blank on each side. The last blank of a line is cut off.
            2 + cells.fold(self.columns[at].heading.chars().count(), usize::max)
        };
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|&at| self.columns[at].rank);
        let (mut left, mut kept) = (width + 1, vec![false; order.len()]);
        for at in order {
            if let Some(rest) = left.checked_sub(taken(at)) {
                (left, kept[at]) = (rest, true);
            }
        }
        let keep = |cells: &mut Vec<String>| {
            let mut kept = kept.iter();
            cells.retain(|_| *kept.next().expect("one for each column"));
        };
        self.cells.iter_mut().for_each(keep);
        let mut kept = kept.iter();
        self.columns
            .retain(|_| *kept.next().expect("one for each column"));
        self
    }

    /// The table as lines of text.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut table = plain_table();
        table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|column| column.heading));
        table.add_rows(self.cells.clone());
        for (column, of) in table.column_iter_mut().zip(&self.columns) {
            if !of.is_word() {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
        }
        let text = table.to_string();
        text.lines().map(|line| line.trim_end().into()).collect()
    }

    /// The definitions of those columns whose headings do not explain them.
    pub(super) fn legend(&self) -> String {
        let said = self.columns.iter().filter(|column| !column.is_word());
        let said = said.map(|column| format!("{}: {}", column.heading, column.says));
        said.collect::<Vec<_>>().join("; ")
    }

    /// The table as HTML, with bars in the column by which rows are ranked.
    pub(super) fn html(&self, standing: &Standing<'_, R>) -> String {
        let heads: Vec<&str> = self.columns.iter().map(|column| column.heading).collect();
        let ranked = match standing.by {
            Figure::Rate => "tx/s",
            Figure::Tail => "p99",
        };
        // The ranking column comes second, since a phone shows only two columns.
        let mut order: Vec<usize> = (0..heads.len()).collect();
        order[1..].sort_by_key(|&at| heads[at] != ranked);
        let figure = |row: &&Row<R>| row.mean(|run| standing.by.of(run));
        let most = standing.rows.iter().map(figure).fold(0.0, f64::max);
        let lines = self.cells.iter().zip(&standing.rows).map(|(cells, row)| {
            let cells = order.iter().map(|&at| {
                if heads[at] == ranked && most > 0.0 {
                    page::bar(&cells[at], figure(row) / most)
                } else {
                    escape(&cells[at])
                }
            });
            cells.collect::<Vec<String>>()
        });
        let heads: Vec<String> = order.iter().map(|&at| heads[at].into()).collect();
        page::table(&heads, &lines.collect::<Vec<_>>())
    }

    /// The table in Markdown.
    pub(super) fn markdown(&self) -> Vec<String> {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let heads: Vec<String> = self.columns.iter().map(|c| c.heading.into()).collect();
        let rule = self.columns.iter().map(|column| {
            if column.is_word() {
                "---".to_string()
            } else {
                "---:".to_string()
            }
        });
        let mut lines = vec![line(&heads), line(&rule.collect::<Vec<_>>())];
        lines.extend(self.cells.iter().map(|row| line(row)));
        lines
    }
}

/// Breaks text between words into lines of at most `width` characters.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut taken = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if taken + 1 + length <= width => {
                line.push(' ');
                line.push_str(word);
                taken += 1 + length;
            }
            _ => {
                lines.push(word.into());
                taken = length;
            }
        }
    }
    lines
}

/// Headings and definitions of columns, for --help and the documentation.
pub(super) fn definitions(columns: impl Iterator<Item = Defined>) -> Vec<String> {
    const INDENT: usize = 14;
    let mut lines = Vec::new();
    for (heading, says) in columns {
        for (nth, part) in wrap(says, WIDTH - INDENT).iter().enumerate() {
            let heading = if nth == 0 { heading } else { "" };
            lines.push(format!("  {heading:<width$}{part}", width = INDENT - 2));
        }
    }
    lines
}

/// Comma-separated values with full precision. Nested fields of the records are flattened. The
/// columns do not depend on what was compared: `structures` names all memory columns.
pub(super) fn csv<R: Serialize>(records: &[&R], structures: &[&str]) -> Vec<String> {
    let flat: Vec<Vec<(String, String)>> = records
        .iter()
        .map(|record| {
            let mut value = serde_json::to_value(record).expect("records have plain fields");
            let taken = value["memory_bytes"]
                .as_object_mut()
                .expect("records say what memory they take");
            for name in structures {
                taken.entry(*name).or_insert(Value::Null);
            }
            value["settings"] = joined(&value["settings"]).into();
            let mut fields = Vec::new();
            flatten("", &value, &mut fields);
            fields.sort();
            fields
        })
        .collect();
    let line = |fields: &[(String, String)], part: fn(&(String, String)) -> &str| {
        fields.iter().map(part).collect::<Vec<_>>().join(",")
    };
    let mut lines: Vec<String> = flat
        .first()
        .map(|f| line(f, |(n, _)| n))
        .into_iter()
        .collect();
    lines.extend(flat.iter().map(|fields| line(fields, |(_, value)| value)));
    lines
}

/// All settings joined into one field, so that the number of columns is constant.
fn joined(settings: &Value) -> String {
    let each = settings.as_object().into_iter().flatten();
    let each = each.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    each.collect::<Vec<_>>().join(" ")
}

/// Appends the fields of a value, with names such as `flash.program.gc` below `prefix`.
fn flatten(prefix: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = match prefix {
                    "" => key.clone(),
                    prefix => format!("{prefix}.{key}"),
                };
                flatten(&name, value, fields);
            }
        }
        Value::Array(values) => {
            for (nth, value) in values.iter().enumerate() {
                flatten(&format!("{prefix}.{nth:02}"), value, fields);
            }
        }
        Value::Null => fields.push((prefix.into(), String::new())),
        Value::String(text) if text.contains([',', '"', '\n']) => {
            fields.push((prefix.into(), format!("\"{}\"", text.replace('"', "\"\""))));
        }
        Value::String(text) => fields.push((prefix.into(), text.clone())),
        other => fields.push((prefix.into(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::*;
    use flagstone_lab::replay::ReplayRecord;

    /// Rows whose runs have these rates. All else is that of a small run.
    fn closed<const N: usize>(all: [(&'static str, &[f64]); N]) -> [Row<ReplayRecord>; N] {
        let small = rows("--workload uniform --requests 64 --protocols seal");
        let run = &small[0].runs[0];
        all.map(|(protocol, rates)| {
            let of = |&rate| ReplayRecord {
                protocol,
                throughput_tps: rate,
                transactions_committed: rate as u64,
                ..run.clone()
            };
            Row {
                runs: rates.iter().map(of).collect(),
            }
        })
    }

    const COLUMNS: &[Column<ReplayRecord>] = &[
        Column {
            heading: "name",
            says: "",
            rank: 0,
            cell: Cell::Word(|run| run.name().into()),
        },
        Column {
            heading: "seldom",
            says: "told last",
            rank: 9,
            cell: Cell::Number(ReplayRecord::rate, tenths),
        },
        Column {
            heading: "tx/s",
            says: "the rate",
            rank: 1,
            cell: Cell::Number(ReplayRecord::rate, whole),
        },
        Column {
            heading: "range",
            says: "over the seeds",
            rank: 2,
            cell: Cell::Range(Figure::Rate, whole),
        },
        Column {
            heading: "keeps up",
            says: "of an open loop",
            rank: 0,
            cell: Cell::KeepsUp,
        },
        Column {
            heading: "relative",
            says: "",
            rank: 9,
            cell: Cell::Relative,
        },
    ];

    #[test]
    fn columns_that_fit_are_shown_by_their_rank() {
        let rows = closed([("a", &[400.0]), ("none", &[0.0])]);
        let standing = Standing::of(&rows);
        let all = Table::new(COLUMNS, &standing).lines();
        assert_eq!(
            all,
            [
                " name  seldom  tx/s  relative",
                " a      400.0   400      1.00",
                " none     0.0     0         -"
            ]
        );
        for (width, first) in [
            (29, " name  seldom  tx/s  relative"),
            (28, " name  seldom  tx/s"),
            (19, " name  seldom  tx/s"),
            (18, " name  tx/s"),
            (10, " name"),
        ] {
            let table = Table::new(COLUMNS, &standing).fit(width);
            assert_eq!(table.lines()[0], first, "{width}");
        }
        let table = Table::new(COLUMNS, &standing).fit(18);
        assert_eq!(table.legend(), "tx/s: the rate");
    }

    #[test]
    fn a_range_is_shown_of_several_seeds() {
        let rows = closed([("a", &[400.0, 380.0]), ("b", &[420.0, 410.0])]);
        let standing = Standing::of(&rows);
        let table = Table::new(COLUMNS, &standing).fit(40);
        assert_eq!(
            table.markdown(),
            [
                "| name | seldom | tx/s | range | relative |",
                "| --- | ---: | ---: | ---: | ---: |",
                "| b | 415.0 | 415 | 410..420 | 1.00 |",
                "| a | 390.0 | 390 | 380..400 | 0.94 |",
            ]
        );
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 3), ["one", "two", "three"]);
        assert!(wrap("", 7).is_empty());
    }
}
