//! The description of a trace as tables for people.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::{Info, Spread};

impl Info {
    /// Tables of all statistics, with the `relations` relations that have the most references.
    pub fn tables(&self, relations: usize) -> String {
        let mut parts = vec![self.head(), self.spreads()];
        if !self.relations.is_empty() {
            parts.push(self.relations_table(relations));
        }
        if !self.provenance.is_empty() {
            parts.push(self.provenance_table());
        }
        parts.join("\n\n")
    }

    /// The table of a trace's size and duration, and of what the importer skipped.
    fn head(&self) -> String {
        let mut table = table(&["trace", ""]);
        let seconds = self.duration_ns as f64 / 1e9;
        let mut duration = format!("{seconds:.3} s");
        if self.duration_ns > 0 {
            duration += &format!(", {:.1} transactions/s", self.transactions as f64 / seconds);
        }
        let mib = self.pages as f64 * f64::from(self.page_bytes) / f64::from(1 << 20);
        for (name, value) in [
            ("transactions", grouped(self.transactions)),
            ("  committed", grouped(self.commits)),
            ("  aborted", grouped(self.aborts)),
            ("  without writes", grouped(self.read_only)),
            ("  open at once, at most", grouped(self.open_at_once_max)),
            ("page reads", grouped(self.reads)),
            ("page writes", grouped(self.writes)),
            ("page trims", grouped(self.trims)),
            (
                "distinct pages",
                format!(
                    "{} of {} bytes, {mib:.1} MiB",
                    grouped(self.pages),
                    self.page_bytes
                ),
            ),
            ("duration", duration),
        ] {
            table.add_row([name.to_string(), value]);
        }
        for (what, count) in &self.skipped {
            table.add_row([format!("skipped: {what}"), grouped(*count)]);
        }
        table.to_string()
    }

    /// The table of the sizes of transactions.
    fn spreads(&self) -> String {
        let mut table = table(&["a transaction", "mean", "p50", "p90", "p99", "max"]);
        align_numbers(&mut table, 1..6);
        for (name, spread) in [
            ("distinct pages", &self.distinct_pages),
            ("distinct pages written", &self.distinct_pages_written),
            ("block references", &self.block_references),
        ] {
            let Spread {
                mean,
                p50,
                p90,
                p99,
                max,
            } = spread;
            let numbers = [p50, p90, p99, max].map(|number| grouped(*number));
            let cells = [name.to_string(), format!("{mean:.1}")]
                .into_iter()
                .chain(numbers);
            table.add_row(cells);
        }
        table.to_string()
    }

    /// The table of relations: the `rows_max` with most references, and the sum of the others.
    fn relations_table(&self, rows_max: usize) -> String {
        let mut table = table(&["relation", "pages", "share", "references", "share"]);
        align_numbers(&mut table, 1..5);
        let mut order: Vec<_> = self.relations.iter().collect();
        order.sort_by_key(|relation| std::cmp::Reverse(relation.references));
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        for relation in order.iter().take(rows_max) {
            table.add_row([
                relation.name.clone(),
                grouped(relation.pages),
                percent(relation.page_share),
                grouped(relation.references),
                percent(relation.reference_share),
            ]);
        }
        let rest = order.get(rows_max..).unwrap_or_default();
        if !rest.is_empty() {
            table.add_row([
                format!("{} more relations", rest.len()),
                grouped(rest.iter().map(|relation| relation.pages).sum()),
                percent(rest.iter().map(|relation| relation.page_share).sum()),
                grouped(rest.iter().map(|relation| relation.references).sum()),
                percent(rest.iter().map(|relation| relation.reference_share).sum()),
            ]);
        }
        table.to_string()
    }

    fn provenance_table(&self) -> String {
        let mut table = table(&["provenance", ""]);
        for (name, value) in &self.provenance {
            if !name.starts_with("skipped: ") {
                table.add_row([name, value]);
            }
        }
        table.to_string()
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    let line = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(line));
    table.set_header(header.iter().copied());
    table
}

fn align_numbers(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_go_in_threes() {
        let numbers = [0, 12, 999, 1000, 79_062, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "12", "999", "1,000", "79,062", "1,234,567"]);
    }
}
