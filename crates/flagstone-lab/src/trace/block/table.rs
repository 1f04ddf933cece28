//! Tables of requests: one line per request, in columns defined by a description or a preset.
//!
//! Empty lines, lines that begin with `#` and a first line of column names are skipped. Values are
//! checked for plausibility: times that fall as often as they rise, or sizes of 0, indicate a wrong
//! description.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::columns::{COLUMNS_MAX, Column, Columns, Delimiter, OpCode, Preset, SECTOR_BYTES, Unit};
use super::time::TimeUnit;
use super::{BlockOptions, Requests};
use crate::trace::Op;
use crate::trace::csv;
use crate::trace::input::{ImportError, Lines, number, words};

/// Windows file times of the years 1990 to 2100, in nanoseconds.
const FILETIMES_NS: std::ops::Range<u64> = 12_275_625_600_000_000_000..15_746_918_400_000_000_000;

/// Minimum number of lines for these checks.
const LINES_NEEDED: u64 = 100;

/// A table and its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The name of the preset, or `csv`.
    pub name: &'static str,
    /// The columns.
    pub columns: Columns,
    /// The column separator.
    pub delimiter: Delimiter,
    /// Lines to skip before the first request, in addition to one with column names.
    pub skip_lines: u64,
    /// The time unit, if different from the description.
    pub time_unit: Option<TimeUnit>,
    /// Bytes per sector, if not 512.
    pub sector_bytes: Option<u32>,
}

impl Table {
    /// A comma-separated table with these columns.
    pub fn new(columns: Columns) -> Table {
        Table {
            name: "csv",
            columns,
            delimiter: Delimiter::Char(','),
            skip_lines: 0,
            time_unit: None,
            sector_bytes: None,
        }
    }

    /// The table of a preset.
    pub fn of(preset: &Preset) -> Table {
        let columns = Columns::parse(preset.columns).expect("a preset describes a table");
        Table {
            name: preset.name,
            delimiter: preset.delimiter,
            ..Table::new(columns)
        }
    }

    /// What is known of the unit of time: stated by the user, known from the format, or no times.
    fn times(&self) -> Result<Times, ImportError> {
        let written = self.columns.columns.iter().find_map(|column| match column {
            Column::Time(unit) => Some(*unit),
            Column::FileTime => Some(Some(TimeUnit::Filetime)),
            _ => None,
        });
        match (written, self.time_unit) {
            (None, None) => Ok(Times::None),
            (None, Some(_)) => Err(ImportError::Whole(
                "--time-unit is given, but no column is the time".to_string(),
            )),
            (Some(_), Some(stated)) => Ok(Times::Stated(stated)),
            (Some(Some(unit)), None) if self.name == "csv" => Ok(Times::Stated(unit)),
            (Some(Some(unit)), None) => Ok(Times::Known(unit)),
            (Some(None), None) => Err(ImportError::Whole(format!(
                "a file of format {} does not state its unit of time: give --time-unit (DiskSim \
                 uses ms, MQSim ns)",
                self.name
            ))),
        }
    }

    /// The size of a unit of offsets or sizes, and its name.
    fn bytes(&self, unit: Unit, page_bytes: u32) -> (u64, &'static str) {
        match unit {
            Unit::Bytes(1) => (1, "bytes"),
            Unit::Bytes(bytes) => (bytes, "that unit, or too large"),
            Unit::Sectors => {
                let bytes = self.sector_bytes.unwrap_or(SECTOR_BYTES);
                (u64::from(bytes), "sectors, or too large")
            }
            Unit::Pages => (u64::from(page_bytes), "pages, or too large"),
        }
    }

    /// Advice for a line that contradicts the columns.
    fn advice(&self) -> String {
        let delimiter = match self.delimiter {
            Delimiter::Char(',') => "",
            Delimiter::Char('\t') => " --delimiter tab",
            Delimiter::Char(_) => " --delimiter C",
            Delimiter::Space => " --delimiter space",
        };
        format!(
            "columns were taken as {}; if they mean something else: trace import csv{delimiter} \
             --columns …",
            self.columns.text
        )
    }
}

/// Imports a table of requests.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(
    reader: impl BufRead,
    options: &BlockOptions,
    table: &Table,
) -> Result<Requests, ImportError> {
    let times = table.times()?;
    let wants_sectors = |column: &Column| {
        matches!(
            column,
            Column::Offset(Unit::Sectors) | Column::Size(Unit::Sectors)
        )
    };
    if table.sector_bytes.is_some() && !table.columns.columns.iter().any(wants_sectors) {
        return Err(ImportError::Whole(
            "--sector-bytes is given, but no column counts sectors".to_string(),
        ));
    }
    let mut collector = Collector::new(options)?;
    let mut row = Row::new(table, options);
    let mut lines = Lines::new(reader);
    let mut kept = Kept::default();
    let mut first = true;
    while let Some(line) = lines.next()? {
        let text = line.text.trim_ascii();
        if line.number <= table.skip_lines || text.is_empty() || text.starts_with('#') {
            continue;
        }
        let names = std::mem::take(&mut first) && row.is_names(text);
        if names {
            continue;
        }
        let read = if text.contains('"') {
            let owned = csv::split(text, table.delimiter);
            let mut fields = Fields::default();
            owned.iter().for_each(|field| fields.push(field));
            row.read(&fields)
        } else {
            row.read(&split(text, table.delimiter))
        };
        let (time_ns, op, offset, bytes) = match read {
            Ok(read) => read,
            Err(Wrong::Count(problem)) => {
                collector.wrong(&line, problem)?;
                continue;
            }
            Err(Wrong::Field(problem)) => return Err(line.wrong(problem)),
        };
        kept.see(time_ns, bytes);
        if op == Op::Commit {
            collector.flush(time_ns, &row.volume)?;
            continue;
        }
        let request = Request {
            time_ns,
            volume: &row.volume,
            op,
            offset,
            bytes,
        };
        collector.push(&line, request)?;
    }
    kept.check(table)?;
    collector.finish(table.name, times)
}

/// Statistics to check the columns.
#[derive(Default)]
struct Kept {
    lines: u64,
    first_ns: u64,
    last_ns: u64,
    most_ns: u64,
    /// Sum of all decreases of the time from one line to the next.
    falls_ns: u128,
    /// Number of lines with size 0.
    empty: u64,
}

impl Kept {
    fn see(&mut self, time_ns: u64, bytes: u64) {
        if self.lines == 0 {
            (self.first_ns, self.last_ns) = (time_ns, time_ns);
        }
        self.lines += 1;
        self.falls_ns += u128::from(self.last_ns.saturating_sub(time_ns));
        self.empty += u64::from(bytes == 0);
        self.last_ns = time_ns;
        self.first_ns = self.first_ns.min(time_ns);
        self.most_ns = self.most_ns.max(time_ns);
    }

    /// Refuses a table whose times or sizes show that its columns are described wrongly.
    fn check(&self, table: &Table) -> Result<(), ImportError> {
        let lines = self.lines;
        let span_ns = u128::from(self.most_ns - self.first_ns);
        let problem = match self {
            _ if lines < LINES_NEEDED => return Ok(()),
            // Numbers in random order fall by a sixth of their range on average. Out-of-order
            // completions fall by little, and each further volume in a file by the range once.
            _ if self.falls_ns > span_ns * u128::from(lines / 10) => {
                format!("the times of {lines} lines are not in order")
            }
            _ if self.empty > lines / 2 => {
                format!("the size is 0 in {} of {lines} lines", self.empty)
            }
            _ => return Ok(()),
        };
        Err(ImportError::Whole(format!("{problem}: {}", table.advice())))
    }
}

/// The fields of a line, trimmed.
struct Fields<'t> {
    fields: [&'t str; COLUMNS_MAX],
    /// Number of fields; those beyond [`COLUMNS_MAX`] are only counted.
    count: usize,
}

impl Default for Fields<'_> {
    fn default() -> Self {
        Fields {
            fields: [""; COLUMNS_MAX],
            count: 0,
        }
    }
}

impl<'t> Fields<'t> {
    fn push(&mut self, field: &'t str) {
        if let Some(place) = self.fields.get_mut(self.count) {
            *place = field.trim_ascii();
        }
        self.count += 1;
    }

    fn all(&self) -> &[&'t str] {
        &self.fields[..self.count.min(COLUMNS_MAX)]
    }
}

/// The fields of a line without quotes.
fn split(text: &str, delimiter: Delimiter) -> Fields<'_> {
    let mut fields = Fields::default();
    match delimiter {
        Delimiter::Space => (fields.fields, fields.count) = words(text),
        Delimiter::Char(char) if char.is_ascii() => {
            let mut start = 0;
            for (at, byte) in text.bytes().enumerate() {
                if byte == char as u8 {
                    fields.push(&text[start..at]);
                    start = at + 1;
                }
            }
            fields.push(&text[start..]);
        }
        Delimiter::Char(char) => text.split(char).for_each(|field| fields.push(field)),
    }
    fields
}

enum Wrong {
    /// The line has a wrong number of columns, for example because it is truncated.
    Count(String),
    /// A column has an invalid value.
    Field(String),
}

/// Reads the columns of a line.
struct Row<'a> {
    table: &'a Table,
    page_bytes: u32,
    /// The volume of the last line.
    volume: String,
}

impl Row<'_> {
    fn new<'a>(table: &'a Table, options: &BlockOptions) -> Row<'a> {
        Row {
            table,
            page_bytes: options.page_bytes,
            volume: String::new(),
        }
    }

    /// Whether a line contains column names: none of its numeric columns is a number.
    fn is_names(&self, text: &str) -> bool {
        let columns = self.table.columns.columns.iter();
        let fields = split(text, self.table.delimiter);
        let mut all = columns.zip(fields.all());
        let digits = |field: &str| {
            let field = field.trim_start_matches('"');
            field.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        };
        all.all(|(column, field)| match column {
            Column::Time(_) | Column::FileTime | Column::Offset(_) | Column::Size(_) => {
                !digits(field)
            }
            _ => true,
        })
    }

    /// Parses time in nanoseconds, operation, offset and length in bytes.
    fn read(&mut self, fields: &Fields<'_>) -> Result<(u64, Op, u64, u64), Wrong> {
        let table = self.table;
        let (mut time_ns, mut op, mut offset, mut bytes) = (0, Op::Read, 0, 0);
        self.volume.clear();
        let columns = &table.columns.columns;
        let (found, wanted) = (fields.count, columns.len());
        if found < wanted || (found > wanted && !table.columns.more) {
            return Err(Wrong::Count(format!(
                "expected {wanted} columns, found {found}: {}",
                table.advice()
            )));
        }
        for (index, (column, field)) in columns.iter().zip(fields.all()).enumerate() {
            let no =
                |what: &str| self.field(format!("column {}, `{field}`, is no {what}", index + 1));
            match column {
                Column::Ignored => {}
                Column::Time(unit) => {
                    let unit = table.time_unit.or(*unit).unwrap_or(TimeUnit::Milliseconds);
                    let read = unit.nanoseconds(field);
                    time_ns = read.ok_or_else(|| no(&format!("time in {}", unit.name())))?;
                }
                Column::FileTime => {
                    let unit = table.time_unit.unwrap_or(TimeUnit::Filetime);
                    let read = unit.nanoseconds(field);
                    time_ns = read.ok_or_else(|| no(&format!("time in {}", unit.name())))?;
                    if table.time_unit.is_none() && !FILETIMES_NS.contains(&time_ns) {
                        return Err(Wrong::Field(format!(
                            "`{field}` is no Windows file time (100 ns since 1601): state its unit \
                             with --time-unit"
                        )));
                    }
                }
                Column::Op(code) => {
                    op = op_of(*code, field).map_err(no)?;
                }
                Column::Offset(unit) => {
                    let (unit, name) = table.bytes(*unit, self.page_bytes);
                    let read = number(field).and_then(|number| number.checked_mul(unit));
                    offset = read.ok_or_else(|| no(&format!("offset in {name}")))?;
                }
                Column::Size(unit) => {
                    let (unit, name) = table.bytes(*unit, self.page_bytes);
                    let read = number(field).and_then(|number| number.checked_mul(unit));
                    bytes = read.ok_or_else(|| no(&format!("size in {name}")))?;
                }
                Column::Volume(word) => {
                    if !self.volume.is_empty() {
                        self.volume.push('.');
                    }
                    if let Some(word) = word {
                        self.volume.push_str(word);
                        self.volume.push(' ');
                    }
                    self.volume.push_str(field);
                }
            }
        }
        if self.volume.is_empty() {
            self.volume.push_str("volume");
        }
        Ok((time_ns, op, offset, bytes))
    }

    fn field(&self, problem: String) -> Wrong {
        Wrong::Field(format!("{problem}: {}", self.table.advice()))
    }
}

/// Parses an operation; the error says what is expected.
fn op_of(code: OpCode, field: &str) -> Result<Op, &'static str> {
    let of = |reads| if reads { Op::Read } else { Op::Write };
    match (code, field) {
        (OpCode::Words, "0" | "1") => {
            Err("word for an operation (op:write1 if 1 is a write, op:read1 if it is a read)")
        }
        (OpCode::Words, _) => op_named(field).ok_or("read, write, trim or flush"),
        (OpCode::Digit { one_reads }, "0" | "0x0") => Ok(of(!one_reads)),
        (OpCode::Digit { one_reads }, "1" | "0x1") => Ok(of(one_reads)),
        (OpCode::Digit { .. }, _) => {
            Err("operation, 0 or 1 (op is for words, op:flags for flags of more than one bit)")
        }
        (OpCode::Flags, _) => u32::from_str_radix(field.trim_start_matches("0x"), 16)
            .map(|flags| of(flags & 1 == 1))
            .map_err(|_| "hexadecimal flags"),
    }
}

fn op_named(field: &str) -> Option<Op> {
    let is = |names: &[&str]| names.iter().any(|name| field.eq_ignore_ascii_case(name));
    match field {
        _ if is(&["r", "read", "rs", "ra"]) => Some(Op::Read),
        _ if is(&["w", "write", "ws"]) => Some(Op::Write),
        _ if is(&["d", "t", "discard", "trim", "unmap"]) => Some(Op::Trim),
        _ if is(&["f", "flush", "sync"]) => Some(Op::Commit),
        _ => None,
    }
}
