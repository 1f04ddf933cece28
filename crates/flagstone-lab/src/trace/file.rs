//! The trace file: Parquet with one row per event, and the rest of the trace as key-value metadata.
//!
//! ```text
//! time_ns      INT64              nanoseconds since the first event, never falling
//! transaction  INT32              dense from 0, in the order of first appearance
//! op           BYTE_ARRAY (UTF8)  read | write | trim | commit | abort
//! page         INT32              dense from 0; 0 for commit and abort
//! ```
//!
//! `docs/trace-format.md` documents this for users of other tools: keep it up to date.

mod read;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::check::{Checker, Flaw};
use super::input::hex;
use super::{Event, Op, Trace};
use crate::inputs;
use crate::output::{Draft, Output, OutputError, Why};
pub use read::{read, read_bytes};

/// Format version, in the metadata as `flagstone.version`. Readers refuse other versions.
pub const VERSION: u32 = 1;

/// Events per row group.
const ROW_GROUP: usize = 1 << 20;

/// Number of values passed to Parquet at once. A multiple of its own batches, so that page
/// boundaries do not depend on it.
const BATCH: usize = 1 << 14;

const SCHEMA: &str = "message flagstone_trace {
    REQUIRED INT64 time_ns;
    REQUIRED INT32 transaction;
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED INT32 page;
}";

/// Metadata keys.
mod key {
    pub(super) const FORMAT: &str = "flagstone.format";
    pub(super) const VERSION: &str = "flagstone.version";
    pub(super) const PAGE_BYTES: &str = "flagstone.page_bytes";
    pub(super) const PAGES: &str = "flagstone.pages";
    pub(super) const TRANSACTIONS: &str = "flagstone.transactions";
    pub(super) const RELATIONS: &str = "flagstone.relations";
    /// Prefix of an entry's name.
    pub(super) const PROVENANCE: &str = "flagstone.provenance.";
    /// The value of [`FORMAT`].
    pub(super) const TRACE: &str = "trace";
}

/// A trace file that cannot be read or written.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub problem: Problem,
}

/// Why a trace file cannot be used.
#[derive(Debug, Error)]
pub enum Problem {
    /// A system call failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The output cannot be written.
    #[error("cannot be written: {0}")]
    Output(Why),
    /// The file is truncated.
    #[error("cut short: it ends before its contents do; copy or make it again")]
    Cut,
    /// The file is damaged.
    #[error("a damaged Parquet file, copy or make it again: {0}")]
    Damaged(String),
    /// The file is Parquet, but not a trace that this version reads.
    #[error("{0}")]
    Foreign(String),
    /// A value of one row is wrong; rows are counted from 0.
    #[error("row {row}: {what}")]
    Row {
        /// The event.
        row: usize,
        /// What is wrong with the value.
        what: String,
    },
    /// The events violate a rule of traces.
    #[error("{0}")]
    Flaw(#[from] Flaw),
}

impl Problem {
    fn of(self, path: &Path) -> FileError {
        FileError {
            path: path.to_path_buf(),
            problem: self,
        }
    }
}

impl From<OutputError> for Problem {
    fn from(error: OutputError) -> Problem {
        Problem::Output(error.why)
    }
}

/// Whether a reader's error means that the file ends too early.
fn is_early_end(cause: &(dyn std::error::Error + 'static)) -> bool {
    let cause = cause.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

impl From<ParquetError> for Problem {
    fn from(error: ParquetError) -> Problem {
        match error {
            ParquetError::External(cause) if is_early_end(&*cause) => Problem::Cut,
            ParquetError::EOF(_) => Problem::Cut,
            ParquetError::External(cause) if cause.is::<io::Error>() => match cause.downcast() {
                Ok(cause) => Problem::Io(*cause),
                Err(cause) => Problem::Damaged(cause.to_string()),
            },
            other => Problem::Damaged(other.to_string()),
        }
    }
}

/// Writes `trace`. Equal traces give equal bytes.
///
/// # Errors
/// [`Problem::Flaw`] if the trace violates a rule, [`Problem::Output`] otherwise.
pub fn write(trace: &Trace, output: &Output) -> Result<(), FileError> {
    let write = || -> Result<(), Problem> {
        trace.validate()?;
        let mut writer = Writer::new(output, Effort::Small);
        trace
            .events
            .iter()
            .try_for_each(|event| writer.take(*event))?;
        writer.close(trace).map(drop)
    };
    write().map_err(|problem| problem.of(output.path()))
}

/// Compression effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Maximum, as in [`write()`].
    Small,
    /// Less for a trace with more than one row group.
    Fast,
}

/// Writes a trace whose events arrive one by one, in constant memory.
pub struct Writer<'a> {
    output: &'a Output,
    effort: Effort,
    /// Created when the first row group is full.
    parquet: Option<SerializedFileWriter<Draft>>,
    /// Events of the next row group.
    events: Vec<Event>,
    checker: Checker,
}

impl<'a> Writer<'a> {
    /// Starts a trace without events that will be written to `output`.
    pub fn new(output: &'a Output, effort: Effort) -> Writer<'a> {
        Writer {
            output,
            effort,
            parquet: None,
            events: Vec::new(),
            checker: Checker::default(),
        }
    }

    /// Adds the next event.
    ///
    /// # Errors
    /// [`Problem::Flaw`] or [`Problem::Output`].
    pub fn push(&mut self, event: Event) -> Result<(), FileError> {
        self.take(event)
            .map_err(|problem| problem.of(self.output.path()))
    }

    /// Writes the metadata of `head`, and renames the file to its final name. Returns the number of
    /// events.
    ///
    /// # Errors
    /// [`Problem::Flaw`] or [`Problem::Output`].
    pub fn finish(self, head: &Trace) -> Result<usize, FileError> {
        let output = self.output;
        self.close(head)
            .map_err(|problem| problem.of(output.path()))
    }

    fn parquet(&mut self) -> Result<&mut SerializedFileWriter<Draft>, Problem> {
        if self.parquet.is_none() {
            let level = match self.effort {
                Effort::Fast if self.events.len() == ROW_GROUP => 1,
                _ => 12,
            };
            let schema = Arc::new(parse_message_type(SCHEMA)?);
            let properties = Arc::new(properties(level)?);
            let writer = SerializedFileWriter::new(self.output.draft()?, schema, properties);
            self.parquet = Some(writer.map_err(unwritten)?);
        }
        Ok(self.parquet.as_mut().expect("it was made"))
    }

    fn take(&mut self, event: Event) -> Result<(), Problem> {
        self.checker.see(&event)?;
        self.events.push(event);
        match self.events.len() {
            ROW_GROUP => self.group(),
            _ => Ok(()),
        }
    }

    fn group(&mut self) -> Result<(), Problem> {
        self.parquet()?;
        let events = std::mem::take(&mut self.events);
        let mut group = self.parquet()?.next_row_group().map_err(unwritten)?;
        write_group(&mut group, &events).map_err(unwritten)?;
        group.close().map_err(unwritten)?;
        self.events = events;
        self.events.clear();
        Ok(())
    }

    fn close(mut self, head: &Trace) -> Result<usize, Problem> {
        head.validate_head()?;
        self.checker.finish(head.pages, head.transactions)?;
        self.parquet()?;
        if !self.events.is_empty() {
            self.group()?;
        }
        let mut parquet = self.parquet.take().expect("it was made");
        for entry in entries(head)? {
            parquet.append_key_value_metadata(entry);
        }
        parquet.into_inner().map_err(unwritten)?.finish()?;
        Ok(self.checker.events())
    }
}

/// Converts a write error: no input is damaged.
fn unwritten(error: ParquetError) -> Problem {
    match Problem::from(error) {
        Problem::Io(error) => Problem::Output(Why::Io(error)),
        problem => problem,
    }
}

fn write_group(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    events: &[Event],
) -> Result<(), ParquetError> {
    let names = Op::ALL.map(|op| ByteArray::from(op.name()));
    // The columns in the order of the schema.
    column::<Int64Type>(group, events, |event| event.time_ns as i64)?;
    column::<Int32Type>(group, events, |event| event.transaction as i32)?;
    column::<ByteArrayType>(group, events, |event| names[event.op as usize].clone())?;
    column::<Int32Type>(group, events, |event| event.page as i32)
}

/// Writes the next column of a row group: `of` every event.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    events: &[Event],
    of: impl Fn(&Event) -> T::T,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "the schema has fewer columns than are written".to_string(),
        ));
    };
    let mut values = Vec::with_capacity(BATCH);
    for batch in events.chunks(BATCH) {
        values.clear();
        values.extend(batch.iter().map(&of));
        column.typed::<T>().write_batch(&values, None, None)?;
    }
    column.close()
}

/// The metadata: everything in a trace except its events.
fn entries(trace: &Trace) -> Result<Vec<KeyValue>, Problem> {
    let relations = serde_json::to_string(&trace.relations).map_err(io::Error::from)?;
    let entry = |key: &str, value: &dyn Display| KeyValue::new(key.into(), value.to_string());
    let mut entries = vec![
        entry(key::FORMAT, &key::TRACE),
        entry(key::VERSION, &VERSION),
        entry(key::PAGE_BYTES, &trace.page_bytes),
        entry(key::PAGES, &trace.pages),
        entry(key::TRANSACTIONS, &trace.transactions),
        entry(key::RELATIONS, &relations),
    ];
    for (name, value) in &trace.provenance {
        entries.push(entry(&format!("{}{name}", key::PROVENANCE), value));
    }
    Ok(entries)
}

fn properties(level: i32) -> Result<WriterProperties, Problem> {
    let column = |name: &str| ColumnPath::from(name);
    Ok(WriterProperties::builder()
        .set_created_by("flagstone".to_string())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(level)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // These numbers increase slowly or jump: dictionaries do not help, differences do.
        .set_dictionary_enabled(false)
        .set_column_encoding(column("time_ns"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(column("transaction"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(column("page"), Encoding::PLAIN)
        .set_column_dictionary_enabled(column("op"), true)
        .build())
}

/// The SHA-256 of a file in hexadecimal, by which results identify a trace.
///
/// # Errors
/// [`Problem::Io`] if the file cannot be read.
pub fn sha256(path: &Path) -> Result<String, FileError> {
    let hash = || -> io::Result<String> {
        let mut file = inputs::open(path)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return Ok(hex(&hash.finalize()));
            }
            hash.update(&buffer[..length]);
        }
    };
    hash().map_err(|error| Problem::Io(error).of(path))
}

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
