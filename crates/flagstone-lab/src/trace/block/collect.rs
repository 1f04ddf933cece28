//! Converts requests to a trace: ordering, rate check, and dense page numbers.
//!
//! An importer passes each request to a [`Collector`], which stores it on disk and records which
//! pages are touched. Then every page gets its number, and [`Requests`] yields the events.

use std::path::PathBuf;

use rustc_hash::FxHashMap as HashMap;

use super::numbers::{Numbers, Touched};
use super::sorter::{Pages, Sorted, Sorter};
use super::time::TimeUnit;
use super::{BlockOptions, BlockReport, CommitAt};
use crate::trace::check::MAX_COUNT;
use crate::trace::input::{EventSink, ImportError, Line};
use crate::trace::{Event, Op, Relation, Trace};

/// Minimum number of requests for checking the rate.
const RATE_NEEDS: u64 = 100;

/// Maximum plausible number of requests per second.
const RATE_MAX: f64 = 20e6;

/// Minimum plausible rate: one in a quarter of an hour.
const RATE_MIN: f64 = 1.0 / 900.0;

/// A request as read from its line.
pub(super) struct Request<'a> {
    /// Nanoseconds from an arbitrary zero.
    pub time_ns: u64,
    /// The name of the volume.
    pub volume: &'a str,
    /// Read, write or trim.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// The source of a format's times, for messages and provenance.
pub(super) enum Times {
    /// In this unit, as stated by the user.
    Stated(TimeUnit),
    /// In this unit by default; the user may state another.
    Known(TimeUnit),
    /// In this unit, fixed by the format.
    Fixed(TimeUnit),
    /// Some lines advance a clock; requests between two of them have the same time.
    Waits(&'static str),
    /// The format has no times.
    None,
}

/// Collects requests and turns them into a trace.
pub(super) struct Collector<'a> {
    options: &'a BlockOptions,
    folder: PathBuf,
    volumes: HashMap<String, u32>,
    /// The volume of the previous request.
    last_volume: (String, u32),
    sorter: Sorter,
    touched: Touched,
    span: Span,
    /// Counts so far.
    pub report: BlockReport,
}

/// Numbers of requests and flushes, and the first and last time.
#[derive(Default)]
struct Span {
    requests: u64,
    flushes: HashMap<u32, u64>,
    first_ns: u64,
    last_ns: u64,
}

impl<'a> Collector<'a> {
    pub(super) fn new(options: &'a BlockOptions) -> Result<Collector<'a>, ImportError> {
        options.check()?;
        Ok(Collector {
            options,
            folder: options.folder.clone().unwrap_or_else(std::env::temp_dir),
            volumes: HashMap::default(),
            last_volume: (String::new(), u32::MAX),
            sorter: Sorter::default(),
            touched: Touched::default(),
            span: Span::default(),
            report: BlockReport::default(),
        })
    }

    /// The number of the volume with this name.
    fn volume(&mut self, name: &str) -> u32 {
        let (last, number) = &self.last_volume;
        if last == name && *number != u32::MAX {
            return *number;
        }
        let number = match self.volumes.get(name) {
            Some(number) => *number,
            None => {
                let number = self.volumes.len() as u32;
                self.volumes.insert(name.to_string(), number);
                number
            }
        };
        self.last_volume = (name.to_string(), number);
        number
    }

    /// Counts a skipped line or request.
    pub(super) fn skip(&mut self, reason: &'static str) {
        self.report.skip(reason);
    }

    /// The error for a wrong line. A truncated last line is only reported.
    pub(super) fn wrong(
        &mut self,
        line: &Line<'_>,
        problem: impl Into<String>,
    ) -> Result<(), ImportError> {
        if line.ended {
            return Err(line.wrong(problem));
        }
        self.report.cut_line = Some(line.number);
        Ok(())
    }

    /// Whether flushes end transactions.
    pub(super) fn takes_flushes(&self) -> bool {
        self.options.commit_at == CommitAt::Flush
    }

    /// Adds a flush of a volume.
    pub(super) fn flush(&mut self, time_ns: u64, volume: &str) -> Result<(), ImportError> {
        if !self.takes_flushes() {
            self.skip("flushes and other requests without data");
            return Ok(());
        }
        let volume = self.volume(volume);
        self.keep_flush(time_ns, volume)
    }

    /// Adds a flush of every volume named so far.
    pub(super) fn flush_all(&mut self, time_ns: u64) -> Result<(), ImportError> {
        (0..self.volumes.len() as u32).try_for_each(|volume| self.keep_flush(time_ns, volume))
    }

    fn keep_flush(&mut self, time_ns: u64, volume: u32) -> Result<(), ImportError> {
        *self.span.flushes.entry(volume).or_default() += 1;
        self.keep(Pages {
            time_ns,
            volume,
            op: Op::Commit,
            first: 0,
            end: 0,
            in_part: [false; 2],
        })
    }

    fn keep(&mut self, pages: Pages) -> Result<(), ImportError> {
        let (span, time_ns) = (&mut self.span, pages.time_ns);
        if span.requests == 0 {
            (span.first_ns, span.last_ns) = (time_ns, time_ns);
        }
        span.requests += 1;
        self.report.out_of_order += u64::from(time_ns < span.last_ns);
        span.first_ns = span.first_ns.min(time_ns);
        span.last_ns = span.last_ns.max(time_ns);
        let kept = self.sorter.push(pages, &self.folder);
        kept.map_err(|error| ImportError::Temporary(self.folder.clone(), error))
    }

    /// Adds the request of a line.
    pub(super) fn push(
        &mut self,
        line: &Line<'_>,
        request: Request<'_>,
    ) -> Result<(), ImportError> {
        let Request {
            time_ns,
            volume,
            op,
            offset,
            bytes,
        } = request;
        if bytes == 0 {
            self.skip("requests of no bytes");
            return Ok(());
        }
        if op != Op::Trim && bytes > self.options.max_request_bytes {
            return Err(line.wrong(format!(
                "a request of {bytes} bytes is longer than the {} allowed: is the unit of its length \
                 right? Allow more with --max-request-bytes",
                self.options.max_request_bytes
            )));
        }
        let Some(end) = offset.checked_add(bytes) else {
            return Err(line.wrong(format!(
                "offset {offset} and length {bytes} overflow 64 bits"
            )));
        };
        // A trim affects only whole pages, another request each page that it touches.
        let page = u64::from(self.options.page_bytes);
        let (first, end) = match op {
            Op::Trim => (offset.div_ceil(page), end / page),
            _ => (offset / page, end.div_ceil(page)),
        };
        if first >= end {
            self.skip("trims of less than a page");
            return Ok(());
        }
        let volume = self.volume(volume);
        if op != Op::Trim && !self.touched.add(volume, first, end) {
            return Err(ImportError::Whole(format!(
                "more distinct pages than the {MAX_COUNT} of a trace: larger pages may help \
                 (--page-bytes)"
            )));
        }
        let in_part = [offset, offset + bytes].map(|edge| edge % page != 0 && op == Op::Write);
        self.report.in_part += u64::from(in_part.contains(&true));
        self.keep(Pages {
            time_ns,
            volume,
            op,
            first,
            end,
            in_part: in_part.map(|is| is && !self.options.whole_pages),
        })
    }

    /// Checks, sorts and numbers the collected requests.
    pub(super) fn finish(
        mut self,
        importer: &'static str,
        times: Times,
    ) -> Result<Requests, ImportError> {
        if self.span.requests == self.span.flushes.values().sum::<u64>() {
            return Err(ImportError::Whole(format!(
                "no request of format {importer} in the input"
            )));
        }
        self.check_rate(&times)?;
        let mut names: Vec<(String, u32)> = self.volumes.into_iter().collect();
        names.sort_unstable();
        let mut rank = vec![0; names.len()];
        for (new, (_, old)) in names.iter().enumerate() {
            rank[*old as usize] = new as u32;
        }
        let sorted = self.sorter.finish(&self.folder);
        let failed = |error| ImportError::Temporary(self.folder.clone(), error);
        Ok(Requests {
            importer,
            times: match times {
                Times::Stated(unit) => format!("{}, as stated", unit.name()),
                Times::Known(unit) | Times::Fixed(unit) => {
                    format!("{}, as the format has it", unit.name())
                }
                Times::Waits(how) => how.to_string(),
                Times::None => "none in the source: all 0".to_string(),
            },
            options: self.options.clone(),
            sorted: sorted.map_err(failed)?,
            numbers: self.touched.number(&rank),
            names,
            span: self.span,
            report: self.report,
        })
    }

    /// Refuses an implausible rate of requests, which shows a wrong unit of time. The error lists
    /// units that would be plausible.
    fn check_rate(&mut self, times: &Times) -> Result<(), ImportError> {
        let duration_ns = self.span.last_ns - self.span.first_ns;
        if i64::try_from(duration_ns).is_err() {
            return Err(ImportError::Whole(
                "the times span more than 292 years: their unit cannot be right".to_string(),
            ));
        }
        self.report.duration_ns = duration_ns;
        // The unit, and whether the user may state another one.
        let (unit, may_state) = match times {
            Times::None | Times::Waits(_) => return Ok(()),
            Times::Stated(unit) | Times::Known(unit) => (*unit, true),
            Times::Fixed(unit) => (*unit, false),
        };
        let requests = self.span.requests;
        let rate = (requests - 1) as f64 / (duration_ns as f64 / 1e9);
        self.report.requests_per_s = (duration_ns > 0).then_some(rate);
        let plausible = (RATE_MIN..=RATE_MAX).contains(&rate);
        if plausible || self.options.any_rate || requests < RATE_NEEDS {
            return Ok(());
        }
        let mut problem = format!(
            "{requests} requests within {} s cannot be right (plausible are {RATE_MIN:.4} to \
             {RATE_MAX:.0} a second): ",
            duration_ns as f64 / 1e9,
        );
        if duration_ns == 0 {
            problem += "all have the same time";
        } else {
            problem += &format!("with times in {} they are {rate:.3} a second", unit.name());
            let others = TimeUnit::ALL.into_iter().filter(|other| *other != unit);
            for other in others.filter(|_| may_state) {
                let other_rate = rate * unit.ns() as f64 / other.ns() as f64;
                if (RATE_MIN..=RATE_MAX).contains(&other_rate) {
                    problem += &format!(", in {} {other_rate:.3}", other.name());
                }
            }
        }
        problem += if may_state {
            ". State the unit with --time-unit, or take them as they are with --any-rate"
        } else {
            ". Take them as they are with --any-rate"
        };
        Err(ImportError::Whole(problem))
    }
}

/// The checked requests of an input, with numbered pages.
pub struct Requests {
    importer: &'static str,
    times: String,
    options: BlockOptions,
    sorted: Sorted,
    numbers: Numbers,
    /// Names and numbers of the volumes, sorted.
    names: Vec<(String, u32)>,
    span: Span,
    report: BlockReport,
}

impl Requests {
    /// The number of requests and flushes.
    pub fn count(&self) -> u64 {
        self.span.requests
    }

    /// The trace in memory.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn into_trace(self) -> Result<(Trace, BlockReport), ImportError> {
        let mut events = Vec::new();
        let (mut trace, report) = self.events(|| {}, &mut |event| {
            events.push(event);
            Ok(())
        })?;
        trace.events = events;
        Ok((trace, report))
    }

    /// Passes the events to `sink` in order, and returns the trace without events. Calls `step` for
    /// each request.
    ///
    /// # Errors
    /// [`ImportError`], and errors of `sink`.
    pub fn events(
        mut self,
        mut step: impl FnMut(),
        sink: EventSink<'_>,
    ) -> Result<(Trace, BlockReport), ImportError> {
        let alone_all = self.options.commit_at == CommitAt::Request;
        let folder = self.options.folder.clone().unwrap_or_default();
        let mut open: HashMap<u32, u32> = HashMap::default();
        let mut transactions = 0;
        let mut previous_ns = None;
        while let Some(request) =
            (self.sorted.next()).map_err(|error| ImportError::Temporary(folder.clone(), error))?
        {
            let Pages { op, volume, .. } = request;
            step();
            let time_ns = request.time_ns - self.span.first_ns;
            self.report.times += u64::from(previous_ns != Some(time_ns));
            previous_ns = Some(time_ns);
            let mut event = |transaction, op, page| {
                sink(Event {
                    time_ns,
                    transaction,
                    op,
                    page,
                })
            };
            if op == Op::Commit {
                *self.span.flushes.entry(volume).or_default() -= 1;
                if let Some(transaction) = open.remove(&volume) {
                    event(transaction, Op::Commit, 0)?;
                    self.report.flushes += 1;
                }
                continue;
            }
            let alone = alone_all || op == Op::Read;
            // Requests after the last flush of their volume belong to no transaction.
            if !alone && self.span.flushes.get(&volume).is_none_or(|left| *left == 0) {
                self.report.skip("writes and trims after the last flush");
                continue;
            }
            let pages = match op {
                Op::Trim => self.numbers.within(volume, request.first, request.end),
                _ => (self.numbers).touched(volume, request.first, request.end),
            };
            if pages.is_empty() {
                (self.report).skip("trims of pages that are never read or written");
                continue;
            }
            let known = open.get(&volume).copied().filter(|_| !alone);
            let transaction = known.unwrap_or(transactions);
            if known.is_none() {
                if transactions == MAX_COUNT {
                    return Err(ImportError::Whole(format!(
                        "more transactions than the {MAX_COUNT} of a trace: cut the input"
                    )));
                }
                transactions += 1;
            }
            // A partially written page was read first.
            let [first, last] = request.in_part;
            if first || last && pages.len() == 1 {
                event(transaction, Op::Read, pages.start)?;
            }
            if last && pages.len() > 1 {
                event(transaction, Op::Read, pages.end - 1)?;
            }
            for page in pages {
                event(transaction, op, page)?;
            }
            if alone {
                event(transaction, Op::Commit, 0)?
            } else {
                _ = open.insert(volume, transaction);
            }
            self.report.requests += 1;
        }
        if transactions == 0 {
            return Err(ImportError::Whole(match self.options.commit_at {
                CommitAt::Request => "nothing but trims in the input".to_string(),
                CommitAt::Flush => "no read, and no write before a flush in the input: leave out \
                                    --commit-at flush"
                    .to_string(),
            }));
        }
        Ok((self.head(transactions), self.report))
    }

    /// The trace without its events. Each volume that is used becomes a relation.
    fn head(&self, transactions: u32) -> Trace {
        let named = self.names.iter();
        let relations = named.map(|(name, volume)| Relation {
            name: name.clone(),
            pages: self.numbers.of_volume[*volume as usize],
        });
        Trace {
            page_bytes: self.options.page_bytes,
            pages: self.numbers.pages,
            transactions,
            relations: relations.filter(|relation| relation.pages > 0).collect(),
            events: Vec::new(),
            provenance: (self.report).provenance(
                self.importer,
                &self.times,
                self.options.whole_pages,
            ),
        }
    }
}
