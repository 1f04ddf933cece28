//! The times of each transaction of replays, as a Parquet file: for distributions or the course of
//! a run, where a record only has means and percentiles.

use crate::driver::Counted;
use crate::output::{Output, OutputError, Why};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::Arc;

/// The columns. A row is a committed transaction, in commit order. Times are in nanoseconds;
/// `ended_ns` counts from the begin of the run.
const SCHEMA: &str = "message flagstone_latencies {
    REQUIRED BYTE_ARRAY protocol (STRING);
    REQUIRED INT64 seed;
    REQUIRED INT64 ended_ns;
    REQUIRED INT64 response_ns;
    REQUIRED INT64 isolation_wait_ns;
    REQUIRED INT64 commit_ns;
    REQUIRED BOOLEAN only_reads;
}";

/// The times of one run.
#[derive(Debug, Clone)]
pub struct Times {
    protocol: &'static str,
    seed: u64,
    ended: Vec<u64>,
    response: Vec<u64>,
    wait: Vec<u64>,
    commit: Vec<u64>,
    only_reads: Vec<bool>,
}

impl Times {
    pub(super) fn of(protocol: &'static str, seed: u64, counted: &Counted) -> Times {
        let ended = counted.ended_at.iter();
        Times {
            protocol,
            seed,
            ended: ended.map(|at| at.saturating_sub(counted.from.0)).collect(),
            response: counted.response_ns.clone(),
            wait: counted.isolation_wait_ns.clone(),
            commit: counted.commit_ns.clone(),
            only_reads: counted.only_read.clone(),
        }
    }

    fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    ) -> Result<(), ParquetError> {
        let rows = self.ended.len();
        // The columns in the order of the schema.
        column::<ByteArrayType>(group, vec![ByteArray::from(self.protocol); rows])?;
        column::<Int64Type>(group, vec![self.seed as i64; rows])?;
        for times in [&self.ended, &self.response, &self.wait, &self.commit] {
            column::<Int64Type>(group, times.iter().map(|&ns| ns as i64).collect())?;
        }
        column::<BoolType>(group, self.only_reads.clone())
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: Vec<T::T>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.expect("the schema has it");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

/// Writes the times of runs, one row group per run. Equal runs give equal bytes.
///
/// # Errors
/// The file cannot be written.
pub fn write_times<'a>(
    runs: impl IntoIterator<Item = &'a Times>,
    output: &Output,
) -> Result<(), OutputError> {
    let failed = |error: ParquetError| OutputError {
        path: output.path().to_path_buf(),
        why: Why::Io(io::Error::other(error)),
    };
    let level = ZstdLevel::try_new(6).map_err(failed)?;
    let properties = WriterProperties::builder()
        .set_created_by("flagstone".to_string())
        .set_compression(Compression::ZSTD(level))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
    let draft = output.draft()?;
    let mut file =
        SerializedFileWriter::new(draft, schema, Arc::new(properties)).map_err(failed)?;
    for times in runs {
        let mut group = file.next_row_group().map_err(failed)?;
        times.write(&mut group).map_err(failed)?;
        group.close().map_err(failed)?;
    }
    file.into_inner().map_err(failed)?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn rows_are_the_transactions_of_each_run_in_their_order() {
        let times = |protocol, seed| Times {
            protocol,
            seed,
            ended: vec![30, 70],
            response: vec![20, 50],
            wait: vec![1, 2],
            commit: vec![3, 4],
            only_reads: vec![true, false],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.parquet");
        let output = Output::new(&path, &[]).unwrap();
        write_times(&[times("seal", 1), times("aw", 2)], &output).unwrap();
        let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows = file.get_row_iter(None).unwrap().map(|row| {
            let row = row.unwrap();
            let number = |at| row.get_long(at).unwrap();
            let protocol = row.get_string(0).unwrap().clone();
            (
                protocol,
                [1, 2, 3, 4, 5].map(number),
                row.get_bool(6).unwrap(),
            )
        });
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1], ("seal".into(), [1, 70, 50, 2, 4], false));
        assert_eq!(rows[2], ("aw".into(), [2, 30, 20, 1, 3], true));
    }
}
