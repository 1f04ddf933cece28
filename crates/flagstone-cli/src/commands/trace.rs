//! `flagstone trace`: imports, describes and exports traces.

use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use flagstone_lab::output::Output;
use flagstone_lab::trace::block::blkparse::Action;
use flagstone_lab::trace::block::columns::{Columns, Delimiter, PRESETS, Preset};
use flagstone_lab::trace::block::fio::Waits;
use flagstone_lab::trace::block::table::{self, Table};
use flagstone_lab::trace::block::time::TimeUnit;
use flagstone_lab::trace::block::{self, CommitAt, Requests, blkparse, fio};
use flagstone_lab::trace::file::Effort;
use flagstone_lab::trace::info::Info;
use flagstone_lab::trace::input::{EventSink, ImportError, Input};
use flagstone_lab::trace::waldump::{self, Forks};
use flagstone_lab::trace::{Trace, csv, file, notes};
use indicatif::ProgressBar;
use serde::Serialize;

use super::{Failure, apart, named, note, progress, progress_bar, say, unless_closed};

/// Create, describe and export traces of transactions.
#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Create a trace from a database's log or from a block trace.
    #[command(subcommand)]
    Import(Import),
    /// Create a trace by running transactions on a database; needs the program flagstone-record.
    #[command(disable_help_flag = true)]
    Record(apart::Args),
    /// Describe a trace: transactions, their sizes, relations, provenance.
    Info(InfoArgs),
    /// Write a trace in another format.
    #[command(subcommand)]
    Export(Export),
}

#[derive(Subcommand)]
enum Import {
    /// The output of pg_waldump on PostgreSQL's write-ahead log.
    Waldump(WaldumpArgs),
    /// A table of requests whose columns you describe, or the output of `trace export csv`.
    Csv(TableArgs),
    /// A DiskSim ASCII trace, as MQSim reads it: TIME DEVICE SECTOR SECTORS 1 (read) or 0.
    Disksim(PresetArgs),
    /// An MSR Cambridge trace: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime.
    Msr(PresetArgs),
    /// An SPC trace (UMass Financial and WebSearch): ASU,LBA,Size,Opcode,Timestamp.
    Spc(PresetArgs),
    /// The default output of blkparse.
    Blkparse(BlkparseArgs),
    /// An I/O log of fio, version 2 or 3.
    Fio(FioArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// The default of `--max-request-bytes`.
const REQUEST_MAX: u64 = 64 << 20;

#[derive(Args)]
struct Files {
    /// The input, or `-` for standard input; gzip and zstd are decompressed.
    file: PathBuf,
    /// The Parquet file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Args)]
struct WaldumpArgs {
    #[command(flatten)]
    files: Files,
    /// Page size of the server in bytes (its block_size).
    #[arg(long, default_value_t = 8192, value_name = "N", value_parser = page_bytes)]
    page_bytes: u32,
    /// Which forks of a relation to import: main, or all, each as a relation of its own.
    #[arg(long, default_value = "main", value_parser = named([(Forks::Main, "main"), (Forks::All, "all")]))]
    forks: Forks,
    /// Import transactions that never end as aborted, instead of dropping them.
    #[arg(long)]
    keep_unfinished: bool,
}

#[derive(Args)]
struct BlockArgs {
    #[command(flatten)]
    files: Files,
    /// Page size in bytes; requests are split at its multiples.
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = page_bytes)]
    page_bytes: u32,
    /// Maximum length of a request; a longer one is an error.
    #[arg(long, default_value_t = REQUEST_MAX, value_name = "N")]
    max_request_bytes: u64,
    /// Accept any rate of requests, however implausible.
    #[arg(long)]
    any_rate: bool,
    /// Treat a write of part of a page as a write of the whole page, without the read before it.
    #[arg(long)]
    whole_pages: bool,
}

#[derive(Args)]
struct PresetArgs {
    #[command(flatten)]
    block: BlockArgs,
    /// Unit of the times, if the file does not state it or states another one.
    #[arg(long, value_parser = time_unit())]
    time_unit: Option<TimeUnit>,
    /// Bytes per sector [default: 512].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sector_bytes: Option<u32>,
}

#[derive(Args)]
struct TableArgs {
    #[command(flatten)]
    preset_args: PresetArgs,
    /// Meaning of the columns, from the left, for example time:us,op,offset:sectors,bytes,volume.
    ///
    /// time:UNIT (s, ms, us, ns, 100ns, filetime); op (words), op:write1 (1 is a write), op:read1
    /// (1 is a read) or op:flags (hexadecimal, the lowest bit says read); offset:UNIT and size:UNIT
    /// (bytes, sectors, kib, mib, pages, or a number of bytes); volume (several columns are joined
    /// to one name); _ for a column to ignore, and ... for any more at the end.
    #[arg(long, value_parser = Columns::parse, conflicts_with = "preset")]
    columns: Option<Columns>,
    /// A published format: disksim, msr, spc, fiu, alibaba, tencent, systor, cloudphysics.
    #[arg(long, value_parser = named(PRESETS.map(|preset| (preset, preset.name))))]
    preset: Option<Preset>,
    /// Separator of columns: one character, tab, or space for any number of blanks.
    #[arg(long, value_name = "C", value_parser = Delimiter::parse)]
    delimiter: Option<Delimiter>,
    /// Lines to skip at the start. A line of column names is skipped automatically.
    #[arg(long, default_value_t = 0, value_name = "N")]
    skip_lines: u64,
    /// How requests form transactions: each request is one, or all writes of a volume between two
    /// flushes.
    #[arg(long, default_value = "request", value_parser = named(CommitAt::ALL))]
    commit_at: CommitAt,
}

#[derive(Args)]
struct BlkparseArgs {
    #[command(flatten)]
    block: BlockArgs,
    /// How requests form transactions: each request is one, or all writes of a volume between two
    /// flushes. Reads are separate transactions.
    #[arg(long, default_value = "request", value_parser = named(CommitAt::ALL))]
    commit_at: CommitAt,
    /// Which event represents a request: Q queued, D issued to the device, C completed.
    #[arg(long, default_value = "D", value_parser = named(Action::ALL.map(|action| (action, action.letter()))))]
    action: Action,
}

#[derive(Args)]
struct FioArgs {
    #[command(flatten)]
    block: BlockArgs,
    /// How requests form transactions: each request is one, or all writes to a file between two
    /// syncs. Reads are separate transactions.
    #[arg(long, default_value = "request", value_parser = named(CommitAt::ALL))]
    commit_at: CommitAt,
    /// Version 2: meaning of the number of a `wait`, which the file does not state: until-ms,
    /// milliseconds since the start (as fio replays it), or for-us, microseconds since the previous
    /// wait (as fio's manual says).
    #[arg(long, value_parser = named(Waits::ALL))]
    waits: Option<Waits>,
}

#[derive(Args)]
struct InfoArgs {
    /// The trace.
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Maximum number of relations to list; JSON output has all.
    #[arg(long, default_value_t = 20, value_name = "N", conflicts_with = "json")]
    relations: usize,
}

#[derive(Subcommand)]
enum Export {
    /// Comma-separated values: time_ns,transaction,op,page,relation.
    Csv(CsvArgs),
}

#[derive(Args)]
struct CsvArgs {
    /// The trace.
    file: PathBuf,
    /// The file to write instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn time_unit() -> impl TypedValueParser<Value = TimeUnit> {
    named(TimeUnit::ALL.map(|unit| (unit, unit.name())))
}

fn page_bytes(text: &str) -> Result<u32, String> {
    let number = text.parse().map_err(|_| "not a number".to_string())?;
    block::BlockOptions::new(number)
        .check()
        .map_err(|error| error.to_string())?;
    Ok(number)
}

impl BlockArgs {
    fn options(&self, commit_at: CommitAt) -> block::BlockOptions {
        block::BlockOptions {
            commit_at,
            page_bytes: self.page_bytes,
            max_request_bytes: self.max_request_bytes,
            any_rate: self.any_rate,
            whole_pages: self.whole_pages,
            // Keep temporary files beside the output: the usual folder may be in memory.
            folder: Some(match self.files.output.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
                _ => ".".into(),
            }),
        }
    }
}

/// Runs a `flagstone trace` command.
pub(crate) fn run(args: TraceArgs) -> Result<ExitCode, Failure> {
    match args.command {
        TraceCommand::Import(from) => import(from),
        TraceCommand::Record(args) => return apart::run(&apart::RECORD, &args),
        TraceCommand::Info(args) => info(&args),
        TraceCommand::Export(Export::Csv(args)) => export_csv(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Imports a trace from one of the formats. An unknown word may be a preset of `csv`.
fn import(from: Import) -> Result<(), Failure> {
    match from {
        Import::Waldump(args) => {
            let options = waldump::WalOptions {
                page_bytes: args.page_bytes,
                forks: args.forks,
                keep_unfinished: args.keep_unfinished,
                ..waldump::WalOptions::default()
            };
            import_with(&args.files, Effort::Small, |input, bar, sink| {
                let (mut trace, report) = waldump::import(input, &options)?;
                bar.finish_and_clear();
                let events = std::mem::take(&mut trace.events);
                events.into_iter().try_for_each(sink)?;
                Ok((trace, notes::of_waldump(&report)))
            })
        }
        Import::Other(words) => {
            let name = words.first().map_or("", String::as_str);
            let preset = PRESETS.iter().any(|preset| preset.name == name);
            Err(Failure::Usage(if preset {
                format!("`{name}` is a preset: use `trace import csv --preset {name} …`")
            } else {
                format!(
                    "there is no trace format `{name}`: use waldump, blkparse, fio, or csv with \
                     --columns (trace import csv --columns time:us,op,offset:sectors,bytes,volume) \
                     or with --preset {}",
                    PRESETS.map(|preset| preset.name).join(", ")
                )
            }))
        }
        Import::Csv(args) => import_table(&args),
        Import::Disksim(args) => import_preset("disksim", &args),
        Import::Msr(args) => import_preset("msr", &args),
        Import::Spc(args) => import_preset("spc", &args),
        Import::Blkparse(BlkparseArgs {
            block,
            commit_at,
            action,
        }) => import_block(&block, commit_at, |input, options| {
            blkparse::import(input, options, action)
        }),
        Import::Fio(FioArgs {
            block,
            commit_at,
            waits,
        }) => import_block(&block, commit_at, |input, options| {
            fio::import(input, options, waits)
        }),
    }
}

fn import_preset(name: &str, args: &PresetArgs) -> Result<(), Failure> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let table = Table::of(preset.expect("a preset of that name"));
    import_as(table, CommitAt::Request, args)
}

/// Imports a table with described columns or a preset, or without both the output of `export csv`.
fn import_table(args: &TableArgs) -> Result<(), Failure> {
    let mut table = match (&args.columns, &args.preset) {
        (Some(columns), _) => Table::new(columns.clone()),
        (None, Some(preset)) => Table::of(preset),
        (None, None) => {
            refuse_of_requests(args)?;
            let block = &args.preset_args.block;
            return import_with(&block.files, Effort::Fast, |input, _, sink| {
                let trace = csv::import(input, block.page_bytes, sink)?;
                Ok((trace, Vec::new()))
            });
        }
    };
    table.delimiter = args.delimiter.unwrap_or(table.delimiter);
    table.skip_lines = args.skip_lines;
    import_as(table, args.commit_at, &args.preset_args)
}

/// Refuses options that say how requests are read: the output of `export csv` has none.
fn refuse_of_requests(args: &TableArgs) -> Result<(), Failure> {
    let (preset, block) = (&args.preset_args, &args.preset_args.block);
    let given = [
        ("--delimiter", args.delimiter.is_some()),
        ("--skip-lines", args.skip_lines != 0),
        ("--commit-at", args.commit_at != CommitAt::Request),
        ("--time-unit", preset.time_unit.is_some()),
        ("--sector-bytes", preset.sector_bytes.is_some()),
        (
            "--max-request-bytes",
            block.max_request_bytes != REQUEST_MAX,
        ),
        ("--any-rate", block.any_rate),
        ("--whole-pages", block.whole_pages),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::Usage(format!(
            "{option} applies only to a table of requests, and a file without --columns and \
             --preset is read as the output of `trace export csv`: add one of them, or leave it out"
        ))),
    }
}

fn import_as(mut table: Table, commit_at: CommitAt, args: &PresetArgs) -> Result<(), Failure> {
    table.time_unit = args.time_unit;
    table.sector_bytes = args.sector_bytes;
    import_block(&args.block, commit_at, |input, options| {
        table::import(input, options, &table)
    })
}

/// Imports a block trace in two passes: `importer` reads the requests, which are then sorted,
/// numbered and written.
fn import_block(
    args: &BlockArgs,
    commit_at: CommitAt,
    importer: impl FnOnce(&mut Input, &block::BlockOptions) -> Result<Requests, ImportError>,
) -> Result<(), Failure> {
    let options = args.options(commit_at);
    import_with(&args.files, Effort::Fast, |input, bar, sink| {
        let requests = importer(input, &options)?;
        bar.finish_and_clear();
        let bar = progress_bar(requests.count(), "writing:");
        let mut done = 0_u64;
        let step = || {
            done += 1;
            if done.is_multiple_of(1 << 12) {
                bar.inc(1 << 12);
            }
        };
        let (trace, report) = requests.events(step, sink)?;
        bar.finish_and_clear();
        Ok((trace, notes::of_block(&report)))
    })
}

/// Imports the input with an importer and writes the trace. Prints notes to standard error.
fn import_with(
    files: &Files,
    effort: Effort,
    importer: impl FnOnce(
        &mut Input,
        &ProgressBar,
        EventSink<'_>,
    ) -> Result<(Trace, Vec<String>), ImportError>,
) -> Result<(), Failure> {
    let name = if files.file == Path::new("-") {
        "standard input".to_string()
    } else {
        files.file.display().to_string()
    };
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::Failed(format!("{name}{what}: {error}"))
    };
    let output = Output::new(&files.output, &[&files.file])?;
    let mut writer = file::Writer::new(&output, effort);
    let bar = progress("{msg} {bar:40} {bytes} of {total_bytes}, {bytes_per_sec} {left}");
    bar.set_message("reading, bytes:");
    let mut input = Input::open(&files.file, |raw, length| watched(&bar, raw, length))
        .map_err(|error| failed(" cannot be read", &error))?;
    let imported = importer(&mut input, &bar, &mut |event| {
        Ok(writer.push(event).map_err(Box::new)?)
    });
    bar.finish_and_clear();
    let (mut trace, notes) = match imported {
        Err(ImportError::File(error)) => return Err((*error).into()),
        imported => imported.map_err(|error| failed("", &error))?,
    };
    let print = input.finish();
    let print = print.map_err(|error| failed(" cannot be read", &error))?;
    let source = files.file.file_name().filter(|name| *name != "-");
    let source = source.map_or("standard input".into(), |name| name.to_string_lossy());
    trace.provenance.extend([
        ("command".to_string(), notes::command_line("flagstone")),
        ("source".to_string(), source.into_owned()),
        ("source_sha256".to_string(), print.sha256),
        ("source_bytes".to_string(), print.bytes.to_string()),
        (
            "flagstone".to_string(),
            env!("CARGO_PKG_VERSION").to_string(),
        ),
    ]);
    let events = writer.finish(&trace)?;
    note(&format!(
        "{}: {} transactions, {events} events, {} pages of {} bytes",
        files.output.display(),
        trace.transactions,
        trace.pages,
        trace.page_bytes
    ));
    for line in notes {
        note(&format!("  {line}"));
    }
    Ok(())
}

/// Wraps `raw` so that the progress bar shows how much has been read.
fn watched(bar: &ProgressBar, raw: Box<dyn Read>, length: Option<u64>) -> Box<dyn Read> {
    if let Some(length) = length {
        bar.set_length(length);
    }
    Box::new(bar.wrap_read(raw))
}

/// The output of `trace info --json`.
#[derive(Serialize)]
struct Described {
    trace: String,
    trace_sha256: String,
    #[serde(flatten)]
    info: Info,
}

fn info(args: &InfoArgs) -> Result<(), Failure> {
    let trace = file::read(&args.file)?;
    let info = Info::of(&trace);
    let sha256 = file::sha256(&args.file)?;
    if args.json {
        let trace = args.file.display().to_string();
        let object = Described {
            trace,
            trace_sha256: sha256,
            info,
        };
        say(&serde_json::to_string(&object)?);
    } else {
        say(&format!(
            "{}\n\nsha256 {sha256}",
            info.tables(args.relations)
        ));
    }
    Ok(())
}

fn export_csv(args: &CsvArgs) -> Result<(), Failure> {
    let path = args
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    let output = path.map(|path| Output::new(path, &[&args.file]));
    let output = output.transpose()?;
    let trace = file::read(&args.file)?;
    let Some(output) = output else {
        return unless_closed(csv::write(&trace, BufWriter::new(io::stdout().lock())));
    };
    let mut draft = output.draft()?;
    let written = csv::write(&trace, BufWriter::new(&mut draft));
    written.map_err(|error| output.failed(error))?;
    Ok(draft.finish()?)
}
