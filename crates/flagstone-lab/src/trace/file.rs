//! The trace file: Parquet, a row an event, with the rest of the trace in its key-value metadata.
//!
//! ```text
//! time_ns      INT64              nanoseconds since the first event, never falling
//! transaction  INT32              dense from 0, in the order of first appearance
//! op           BYTE_ARRAY (UTF8)  read | write | trim | commit | abort
//! page         INT32              dense from 0; 0 for commit and abort
//! ```
//!
//! `docs/trace-format.md` is for users who read or write such files with other tools: keep it true.

mod read;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::{self, BufWriter, Read, Write};
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

use super::check::Flaw;
use super::input::hex;
use super::{Event, Op, Trace};
use crate::inputs;
use crate::output::{Output, OutputError, Why};
pub use read::read;

/// The version of the format, in the metadata as `flagstone.version`. A reader refuses others.
pub const VERSION: u32 = 1;

/// Events of one row group.
const ROW_GROUP: usize = 1 << 20;

const SCHEMA: &str = "message flagstone_trace {
    REQUIRED INT64 time_ns;
    REQUIRED INT32 transaction;
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED INT32 page;
}";

/// Keys of the metadata.
mod key {
    pub(super) const FORMAT: &str = "flagstone.format";
    pub(super) const VERSION: &str = "flagstone.version";
    pub(super) const PAGE_BYTES: &str = "flagstone.page_bytes";
    pub(super) const PAGES: &str = "flagstone.pages";
    pub(super) const TRANSACTIONS: &str = "flagstone.transactions";
    pub(super) const RELATIONS: &str = "flagstone.relations";
    /// Followed by the name of the entry.
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
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a trace file.
#[derive(Debug, Error)]
pub enum Problem {
    /// The operating system refused.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It cannot be written there.
    #[error("cannot be written: {0}")]
    Output(Why),
    /// It ends before what it says is in it.
    #[error("cut short: it ends before its contents do; copy or make it again")]
    Cut,
    /// It is damaged.
    #[error("a damaged Parquet file, copy or make it again: {0}")]
    Damaged(String),
    /// It is Parquet, but not a trace that this version reads.
    #[error("{0}")]
    Foreign(String),
    /// A value of one row is wrong; rows are counted from 0.
    #[error("row {row}: {what}")]
    Row {
        /// The event.
        row: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The events break a rule of traces.
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

/// What a reader says that wanted more bytes than there are.
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

/// Writes `trace`. The same trace gives the same bytes.
///
/// # Errors
/// [`Problem::Flaw`] if the trace breaks a rule that its readers rely on, [`Problem::Output`]
/// otherwise.
pub fn write(trace: &Trace, output: &Output) -> Result<(), FileError> {
    write_or(trace, output).map_err(|problem| problem.of(output.path()))
}

fn write_or(trace: &Trace, output: &Output) -> Result<(), Problem> {
    trace.validate()?;
    let mut draft = output.draft()?;
    write_to(trace, &mut draft).map_err(|problem| match problem {
        Problem::Io(error) => Problem::Output(Why::Io(error)),
        problem => problem,
    })?;
    Ok(draft.finish()?)
}

fn write_to(trace: &Trace, file: impl Write + Send) -> Result<(), Problem> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer =
        SerializedFileWriter::new(BufWriter::new(file), schema, Arc::new(properties(trace)?))?;
    let names = Op::ALL.map(|op| ByteArray::from(op.name()));
    for events in trace.events.chunks(ROW_GROUP) {
        let mut group = writer.next_row_group()?;
        // In the order of the schema.
        column::<Int64Type>(&mut group, events, |event| event.time_ns as i64)?;
        column::<Int32Type>(&mut group, events, |event| event.transaction as i32)?;
        column::<ByteArrayType>(&mut group, events, |event| names[event.op as usize].clone())?;
        column::<Int32Type>(&mut group, events, |event| event.page as i32)?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Writes the next column of a row group: `of` every event.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    events: &[Event],
    of: impl Fn(&Event) -> T::T,
) -> Result<(), Problem> {
    let values: Vec<T::T> = events.iter().map(of).collect();
    let Some(mut column) = group.next_column()? else {
        return Err(Problem::Damaged(
            "the schema has fewer columns than are written".to_string(),
        ));
    };
    column.typed::<T>().write_batch(&values, None, None)?;
    Ok(column.close()?)
}

fn properties(trace: &Trace) -> Result<WriterProperties, Problem> {
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
    let column = |name: &str| ColumnPath::from(name);
    Ok(WriterProperties::builder()
        .set_created_by("flagstone".to_string())
        .set_key_value_metadata(Some(entries))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(12)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Numbers that grow by little or jump about: no dictionary helps, differences do.
        .set_dictionary_enabled(false)
        .set_column_encoding(column("time_ns"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(column("transaction"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(column("page"), Encoding::PLAIN)
        .set_column_dictionary_enabled(column("op"), true)
        .build())
}

/// The SHA-256 of a file's bytes, in hexadecimal: what results name a trace by.
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
