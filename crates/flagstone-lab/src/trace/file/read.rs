//! Reads trace files written by any tool. Columns may be in any order, integers may have 32 or 64
//! bits, and columns may be nullable if they contain no nulls, as pandas and DuckDB write them.
//! Everything else is an error that names the row.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::{FileError, Problem, VERSION, key};
use crate::inputs;
use crate::quiet::quietly;
use crate::trace::check::MAX_COUNT;
use crate::trace::{Event, Op, Trace};

/// Number of values read at once.
const BATCH: usize = 1 << 16;

/// The value that represents a null.
const NULL: i64 = i64::MIN;

/// Reads and checks a trace file.
///
/// # Errors
/// [`FileError`]: the file cannot be opened, is not Parquet or truncated, is Parquet but not a
/// trace, lacks a column, has an invalid value, or violates a rule of [`Trace::validate`].
pub fn read(path: &Path) -> Result<Trace, FileError> {
    read_or(path).map_err(|problem| problem.of(path))
}

/// Reads and checks a trace file in memory; `name` is used in errors.
///
/// # Errors
/// As [`read`], or a temporary file cannot be created.
pub fn read_bytes(bytes: &[u8], name: &Path) -> Result<Trace, FileError> {
    let read = || {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        read_file(file)
    };
    read().map_err(|problem| problem.of(name))
}

fn read_or(path: &Path) -> Result<Trace, Problem> {
    read_file(inputs::open(path)?)
}

/// Reads a trace and validates it. Without declared numbers of pages and transactions, the largest
/// ones that occur count.
fn read_file(mut file: File) -> Result<Trace, Problem> {
    check_ends(&mut file)?;
    let reader = SerializedFileReader::new(file)?;
    let mut trace = Trace::default();
    let declared = head(reader.metadata(), &mut trace)?;
    let columns = Columns::find(reader.metadata())?;
    // The Parquet reader panics on some damage, for example if a page refers to a missing
    // dictionary.
    let groups = AssertUnwindSafe(|| {
        let mut groups = 0..reader.num_row_groups();
        groups.try_for_each(|group| {
            let group = reader.get_row_group(group)?;
            columns.read(&*group, &mut trace.events)
        })
    });
    let damaged = |_| Problem::Damaged("its pages cannot be decoded".to_string());
    quietly(|| catch_unwind(groups)).map_err(damaged)??;
    let largest = |of: fn(&Event) -> u32| trace.events.iter().map(of).max().map_or(0, |n| n + 1);
    trace.pages = declared
        .pages
        .unwrap_or_else(|| largest(|event| if event.op.ends() { 0 } else { event.page }));
    trace.transactions = declared
        .transactions
        .unwrap_or_else(|| largest(|event| event.transaction));
    trace.validate()?;
    Ok(trace)
}

/// The first and last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Detects files that are not Parquet, and truncated ones.
fn check_ends(file: &mut File) -> Result<(), Problem> {
    let mut ends = [[0; 4]; 2];
    let len = file.seek(SeekFrom::End(0))?;
    for (end, at) in ends.iter_mut().zip([0, len.saturating_sub(4)]) {
        file.seek(SeekFrom::Start(at))?;
        let short = file.read_exact(end).is_err();
        if short && len >= 4 {
            return Err(Problem::Cut);
        }
    }
    match ends {
        _ if len == 0 => Err(Problem::Foreign("it is empty".to_string())),
        [first, _] if first != *MAGIC => {
            let (import, of) = if first == *b"fio " {
                ("fio", "it")
            } else {
                ("--help", "a log or a table")
            };
            Err(Problem::Foreign(format!(
                "not a Parquet file, so not a trace: to convert {of}, use `flagstone trace import \
                 {import}`"
            )))
        }
        [_, last] if last != *MAGIC => Err(Problem::Cut),
        _ => Ok(()),
    }
}

/// Optional counts in a file.
struct Declared {
    pages: Option<u32>,
    transactions: Option<u32>,
}

/// Reads the key-value metadata.
fn head(metadata: &ParquetMetaData, trace: &mut Trace) -> Result<Declared, Problem> {
    let entries = metadata.file_metadata().key_value_metadata();
    let entries = entries.map_or(&[][..], Vec::as_slice);
    let text = |name: &str| {
        entries
            .iter()
            .find(|entry| entry.key == name)
            .and_then(|entry| entry.value.as_deref())
    };
    let number = |name: &str| -> Result<Option<u32>, Problem> {
        let Some(text) = text(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| *number <= MAX_COUNT);
        number.map(Some).ok_or_else(|| {
            Problem::Foreign(format!(
                "metadata entry `{name}` is `{text}`, not a number up to {MAX_COUNT}"
            ))
        })
    };
    if text(key::FORMAT) != Some(key::TRACE) {
        return Err(Problem::Foreign(format!(
            "a Parquet file, but not a trace: its metadata does not say `{}={}` (files made with \
             other tools need that entry and `{}`)",
            key::FORMAT,
            key::TRACE,
            key::PAGE_BYTES
        )));
    }
    match number(key::VERSION)? {
        None | Some(VERSION) => {}
        Some(version) => {
            return Err(Problem::Foreign(format!(
                "version {version} of the trace format; this flagstone reads version {VERSION}"
            )));
        }
    }
    let Some(page_bytes) = number(key::PAGE_BYTES)? else {
        return Err(Problem::Foreign(format!(
            "metadata entry `{}` is missing",
            key::PAGE_BYTES
        )));
    };
    trace.page_bytes = page_bytes;
    if let Some(text) = text(key::RELATIONS) {
        trace.relations = serde_json::from_str(text).map_err(|error| {
            Problem::Foreign(format!("metadata entry `{}`: {error}", key::RELATIONS))
        })?;
    }
    for entry in entries {
        if let (Some(name), Some(value)) = (entry.key.strip_prefix(key::PROVENANCE), &entry.value) {
            trace.provenance.insert(name.to_string(), value.clone());
        }
    }
    Ok(Declared {
        pages: number(key::PAGES)?,
        transactions: number(key::TRANSACTIONS)?,
    })
}

/// Positions of the columns in the file.
struct Columns {
    time_ns: usize,
    transaction: usize,
    op: usize,
    page: usize,
}

impl Columns {
    /// Finds the columns of a trace by name, wherever they are.
    fn find(metadata: &ParquetMetaData) -> Result<Columns, Problem> {
        let schema = metadata.file_metadata().schema_descr();
        let column = |name: &str| {
            let at = schema
                .columns()
                .iter()
                .position(|column| column.path().parts() == [name]);
            let Some(at) = at else {
                let names: Vec<String> = schema
                    .columns()
                    .iter()
                    .map(|column| column.path().string())
                    .collect();
                return Err(Problem::Foreign(format!(
                    "column `{name}` is missing; the file has {}",
                    names.join(", ")
                )));
            };
            if schema.column(at).max_rep_level() > 0 {
                return Err(Problem::Foreign(format!("column `{name}` holds lists")));
            }
            Ok(at)
        };
        Ok(Columns {
            time_ns: column("time_ns")?,
            transaction: column("transaction")?,
            op: column("op")?,
            page: column("page")?,
        })
    }

    /// Reads and appends the events of a row group.
    fn read(&self, group: &dyn RowGroupReader, events: &mut Vec<Event>) -> Result<(), Problem> {
        let first_row = events.len();
        for at in [self.time_ns, self.transaction, self.op, self.page] {
            let column = group.metadata().column(at);
            let start = (column.dictionary_page_offset()).unwrap_or(column.data_page_offset());
            if start < 0 || column.compressed_size() < 0 {
                return Err(Problem::Damaged(
                    "a column has an invalid position or length".to_string(),
                ));
            }
            let codec = column.compression();
            if !matches!(codec, Compression::UNCOMPRESSED | Compression::ZSTD(_)) {
                return Err(Problem::Foreign(format!(
                    "compressed with {codec}: write it with zstd, or without compression"
                )));
            }
        }
        let ops = ops(group, self.op, first_row)?;
        let times = integers(group, self.time_ns, "time_ns")?;
        let transactions = integers(group, self.transaction, "transaction")?;
        let pages = integers(group, self.page, "page")?;
        let rows = ops.len();
        if times.len() != rows || transactions.len() != rows || pages.len() != rows {
            return Err(Problem::Damaged(
                "its columns have different lengths".to_string(),
            ));
        }
        for (index, op) in ops.into_iter().enumerate() {
            let row = first_row + index;
            let number = |name: &str, value: i64, most: u64| {
                let what = match u64::try_from(value) {
                    Ok(number) if number <= most => return Ok(number),
                    Ok(number) => format!("{name} is {number}, more than the {most} that fit"),
                    Err(_) if value == NULL => format!("{name} is missing"),
                    Err(_) => format!("{name} is {value}, below 0"),
                };
                Err(Problem::Row { row, what })
            };
            let id = |name: &str, value: i64| {
                number(name, value, u64::from(MAX_COUNT) - 1).map(|number| number as u32)
            };
            events.push(Event {
                time_ns: number("time_ns", times[index], i64::MAX as u64)?,
                transaction: id("transaction", transactions[index])?,
                op,
                page: if op.ends() {
                    0
                } else {
                    id("page", pages[index])?
                },
            });
        }
        Ok(())
    }
}

/// Reads a column of integers; a null becomes [`NULL`].
fn integers(group: &dyn RowGroupReader, at: usize, name: &str) -> Result<Vec<i64>, Problem> {
    let mut all = Vec::new();
    match group.get_column_reader(at)? {
        ColumnReader::Int32ColumnReader(reader) => {
            read_all(reader, |value| {
                all.push(value.map_or(NULL, |value| i64::from(*value)))
            })?;
        }
        ColumnReader::Int64ColumnReader(reader) => {
            read_all(reader, |value| all.push(value.copied().unwrap_or(NULL)))?;
        }
        _ => {
            return Err(Problem::Foreign(format!(
                "column `{name}` does not hold integers"
            )));
        }
    }
    Ok(all)
}

/// Reads the column `op`.
fn ops(group: &dyn RowGroupReader, at: usize, first_row: usize) -> Result<Vec<Op>, Problem> {
    let ColumnReader::ByteArrayColumnReader(reader) = group.get_column_reader(at)? else {
        return Err(Problem::Foreign(
            "column `op` does not hold text".to_string(),
        ));
    };
    let mut all: Vec<Op> = Vec::new();
    let mut wrong: Option<Problem> = None;
    read_all(reader, |value| {
        let name = value.map(|value| String::from_utf8_lossy(value.data()));
        match name.as_deref().and_then(Op::from_name) {
            _ if wrong.is_some() => {}
            Some(op) => all.push(op),
            None => {
                let what = match name {
                    None => "op is missing".to_string(),
                    Some(name) => {
                        let name: String = name.chars().take(40).collect();
                        format!("op is {name:?}, not one of read, write, trim, commit, abort")
                    }
                };
                wrong = Some(Problem::Row {
                    row: first_row + all.len(),
                    what,
                });
            }
        }
    })?;
    wrong.map_or(Ok(all), Err)
}

/// Calls `each` for every value of a column, with `None` for nulls.
fn read_all<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    mut each: impl FnMut(Option<&T::T>),
) -> Result<(), Problem> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    loop {
        levels.clear();
        values.clear();
        let (rows, _, _) = reader.read_records(BATCH, Some(&mut levels), None, &mut values)?;
        if rows == 0 {
            return Ok(());
        }
        if levels.is_empty() {
            values.iter().for_each(|value| each(Some(value)));
        } else {
            // Columns are flat: a lower level than the highest means null.
            let highest = if values.len() == levels.len() { 0 } else { 1 };
            let mut values = values.iter();
            for level in &levels {
                each(if *level >= highest {
                    values.next()
                } else {
                    None
                });
            }
        }
    }
}
