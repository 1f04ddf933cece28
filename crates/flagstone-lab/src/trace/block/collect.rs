//! From requests to a trace: their order, the check of their rate, and the dense page numbers.

use rustc_hash::FxHashMap as HashMap;

use super::time::TimeUnit;
use super::{BlockOptions, BlockReport, CommitAt};
use crate::trace::check::MAX_COUNT;
use crate::trace::input::{ImportError, Line};
use crate::trace::{Event, Op, Relation, Trace};

/// Fewer requests than this say nothing about a rate.
const RATE_NEEDS: usize = 100;

/// More requests a second than any device serves.
const RATE_MAX: f64 = 20e6;

/// Fewer than this, one in a quarter of an hour, is not worth a trace.
const RATE_MIN: f64 = 1.0 / 900.0;

/// A request as its line says it.
pub(super) struct Request<'a> {
    /// Nanoseconds from any zero.
    pub time_ns: u64,
    /// The name of the volume.
    pub volume: &'a str,
    /// Read, write or trim.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A request in pages of its volume, `first..end`; a flush has none, and its operation is a commit.
struct Pages {
    time_ns: u64,
    volume: u32,
    op: Op,
    first: u64,
    end: u64,
}

/// A run of numbered pages: page `first + n` of the volume has number `number + n`.
struct Run {
    volume: u32,
    first: u64,
    end: u64,
    number: u64,
}

/// How the times of a format came about, for messages and provenance.
pub(super) enum Times {
    /// In this unit, as the user said.
    Stated(TimeUnit),
    /// In this unit, as the format says; the user may say otherwise.
    Known(TimeUnit),
    /// In this unit, as the format says.
    Fixed(TimeUnit),
    /// Some lines move a clock; what lies between two of them has one time.
    Waits(&'static str),
    /// The source has none.
    None,
}

/// Collects requests and turns them into a trace.
pub(super) struct Collector<'a> {
    options: &'a BlockOptions,
    volumes: HashMap<String, u32>,
    requests: Vec<Pages>,
    /// What was seen so far.
    pub report: BlockReport,
}

impl<'a> Collector<'a> {
    pub(super) fn new(options: &'a BlockOptions) -> Result<Collector<'a>, ImportError> {
        options.check()?;
        Ok(Collector {
            options,
            volumes: HashMap::default(),
            requests: Vec::new(),
            report: BlockReport::default(),
        })
    }

    /// The number of the volume of that name.
    fn volume(&mut self, name: &str) -> u32 {
        if let Some(number) = self.volumes.get(name) {
            return *number;
        }
        let number = self.volumes.len() as u32;
        self.volumes.insert(name.to_string(), number);
        number
    }

    /// Counts something that becomes no transaction.
    pub(super) fn skip(&mut self, reason: &'static str) {
        *self.report.skipped.entry(reason).or_default() += 1;
    }

    /// The line that says `problem`, unless it is the last one and was cut: that one is reported.
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

    /// Takes a flush of a volume.
    pub(super) fn flush(&mut self, time_ns: u64, volume: &str) {
        match self.options.commit_at {
            CommitAt::Request => self.skip("flushes and other requests without data"),
            CommitAt::Flush => {
                let volume = self.volume(volume);
                self.requests.push(Pages {
                    time_ns,
                    volume,
                    op: Op::Commit,
                    first: 0,
                    end: 0,
                });
            }
        }
    }

    /// Takes the request of a line.
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
        self.requests.push(Pages {
            time_ns,
            volume,
            op,
            first,
            end,
        });
        Ok(())
    }

    /// Orders, checks and numbers what was collected.
    pub(super) fn finish(
        mut self,
        importer: &str,
        times: Times,
    ) -> Result<(Trace, BlockReport), ImportError> {
        if self.requests.iter().all(|request| request.op == Op::Commit) {
            return Err(ImportError::Whole(format!(
                "no request of format {importer} in the input"
            )));
        }
        let mut latest = 0;
        for request in &self.requests {
            self.report.out_of_order += u64::from(request.time_ns < latest);
            latest = latest.max(request.time_ns);
        }
        self.requests.sort_by_key(|request| request.time_ns);
        self.check_rate(&times)?;
        let (relations, runs, pages) = self.number_pages()?;
        let (events, transactions) = self.events(&runs)?;
        if transactions == 0 {
            return Err(ImportError::Whole(match self.options.commit_at {
                CommitAt::Request => "nothing but trims in the input".to_string(),
                CommitAt::Flush => "no read, and no write before a flush in the input: leave out \
                                    --commit-at flush"
                    .to_string(),
            }));
        }
        let times = match times {
            Times::Stated(unit) => format!("{}, as stated", unit.name()),
            Times::Known(unit) | Times::Fixed(unit) => {
                format!("{}, as the format has it", unit.name())
            }
            Times::Waits(how) => how.to_string(),
            Times::None => "none in the source: all 0".to_string(),
        };
        let trace = Trace {
            page_bytes: self.options.page_bytes,
            pages,
            transactions,
            relations,
            events,
            provenance: self.report.provenance(importer, &times),
        };
        Ok((trace, self.report))
    }

    fn check_rate(&mut self, times: &Times) -> Result<(), ImportError> {
        let (Some(first), Some(last)) = (self.requests.first(), self.requests.last()) else {
            return Ok(());
        };
        let duration_ns = last.time_ns - first.time_ns;
        if i64::try_from(duration_ns).is_err() {
            return Err(ImportError::Whole(
                "the times span more than 292 years: their unit cannot be right".to_string(),
            ));
        }
        self.report.duration_ns = duration_ns;
        let apart = |pair: &[Pages]| pair[0].time_ns < pair[1].time_ns;
        self.report.times = 1 + self.requests.windows(2).filter(|pair| apart(pair)).count() as u64;
        let (unit, may_state) = match times {
            Times::None | Times::Waits(_) => return Ok(()),
            Times::Stated(unit) | Times::Known(unit) => (*unit, true),
            Times::Fixed(unit) => (*unit, false),
        };
        let gaps = (self.requests.len() - 1) as f64;
        let rate = gaps / (duration_ns as f64 / 1e9);
        self.report.requests_per_s = (duration_ns > 0).then_some(rate);
        let plausible = (RATE_MIN..=RATE_MAX).contains(&rate);
        if plausible || self.options.any_rate || self.requests.len() < RATE_NEEDS {
            return Ok(());
        }
        let mut problem = format!(
            "{} requests within {} s cannot be right (plausible are {:.4} to {:.0} a second): ",
            self.requests.len(),
            duration_ns as f64 / 1e9,
            RATE_MIN,
            RATE_MAX
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
        problem += match may_state {
            true => ". State the unit with --time-unit, or take them as they are with --any-rate",
            false => ". Take them as they are with --any-rate",
        };
        Err(ImportError::Whole(problem))
    }

    /// Numbers all pages that are read or written, by volume name and address.
    fn number_pages(&mut self) -> Result<(Vec<Relation>, Vec<Run>, u32), ImportError> {
        let mut names: Vec<(&String, u32)> = self
            .volumes
            .iter()
            .map(|(name, number)| (name, *number))
            .collect();
        names.sort_unstable();
        // From now on volumes are numbered in the order of their names.
        let mut rank = vec![0; names.len()];
        for (new, (_, old)) in names.iter().enumerate() {
            rank[*old as usize] = new as u32;
        }
        for request in &mut self.requests {
            request.volume = rank[request.volume as usize];
        }

        let touched = self
            .requests
            .iter()
            .filter(|request| matches!(request.op, Op::Read | Op::Write));
        let mut touched: Vec<(u32, u64, u64)> = touched
            .map(|request| (request.volume, request.first, request.end))
            .collect();
        touched.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for (volume, first, end) in touched {
            match runs.last_mut() {
                Some(run) if run.volume == volume && first <= run.end => run.end = run.end.max(end),
                _ => runs.push(Run {
                    volume,
                    first,
                    end,
                    number: 0,
                }),
            }
        }
        let mut pages = 0;
        let mut of_volume = vec![0; names.len()];
        for run in &mut runs {
            run.number = pages;
            pages += run.end - run.first;
            of_volume[run.volume as usize] += run.end - run.first;
        }
        if pages > u64::from(MAX_COUNT) {
            return Err(ImportError::Whole(format!(
                "{pages} distinct pages are more than the {MAX_COUNT} of a trace: larger pages may \
                 help (--page-bytes)"
            )));
        }
        let relations = names.iter().zip(of_volume).filter(|(_, pages)| *pages > 0);
        let relations = relations
            .map(|((name, _), pages)| Relation {
                name: name.to_string(),
                pages: pages as u32,
            })
            .collect();
        Ok((relations, runs, pages as u32))
    }

    fn events(&mut self, runs: &[Run]) -> Result<(Vec<Event>, u32), ImportError> {
        let mut wanted = 0_u64;
        for request in &self.requests {
            wanted += 1;
            each_range(request, runs, |first, end| wanted += end - first);
        }
        let mut events: Vec<Event> = Vec::new();
        let room = usize::try_from(wanted)
            .ok()
            .map(|wanted| events.try_reserve_exact(wanted));
        if !matches!(room, Some(Ok(()))) || self.requests.len() > MAX_COUNT as usize {
            return Err(ImportError::Whole(format!(
                "{} requests of {wanted} pages do not fit: larger pages may help (--page-bytes)",
                self.requests.len()
            )));
        }
        let zero_ns = self.requests.first().map_or(0, |first| first.time_ns);
        // What follows the last flush of its volume belongs to no transaction.
        let mut ends: HashMap<u32, usize> = HashMap::default();
        for (index, request) in self.requests.iter().enumerate() {
            if request.op == Op::Commit {
                ends.insert(request.volume, index);
            }
        }
        let mut open: HashMap<u32, u32> = HashMap::default();
        let mut transactions = 0;
        for (index, request) in self.requests.iter().enumerate() {
            let time_ns = request.time_ns - zero_ns;
            let mut event = |transaction, op, page| {
                events.push(Event {
                    time_ns,
                    transaction,
                    op,
                    page,
                });
            };
            if request.op == Op::Commit {
                if let Some(transaction) = open.remove(&request.volume) {
                    event(transaction, Op::Commit, 0);
                    self.report.flushes += 1;
                }
                continue;
            }
            let alone = self.options.commit_at == CommitAt::Request || request.op == Op::Read;
            if !alone && ends.get(&request.volume).is_none_or(|&end| end < index) {
                let late = "writes and trims after the last flush";
                *self.report.skipped.entry(late).or_default() += 1;
                continue;
            }
            let mut pages = 0;
            each_range(request, runs, |first, end| pages += end - first);
            if pages == 0 {
                let unseen = "trims of pages that are never read or written";
                *self.report.skipped.entry(unseen).or_default() += 1;
                continue;
            }
            let known = open.get(&request.volume).copied().filter(|_| !alone);
            let transaction = known.unwrap_or(transactions);
            if known.is_none() {
                transactions += 1;
            }
            each_range(request, runs, |first, end| {
                (first..end).for_each(|page| event(transaction, request.op, page as u32));
            });
            match alone {
                true => event(transaction, Op::Commit, 0),
                false => {
                    open.insert(request.volume, transaction);
                }
            }
            self.report.requests += 1;
        }
        Ok((events, transactions))
    }
}

/// The numbered pages of a request, as ranges of numbers. A read or write lies in one run; a trim
/// may cover none or many.
fn each_range(request: &Pages, runs: &[Run], mut each: impl FnMut(u64, u64)) {
    let from = runs.partition_point(|run| (run.volume, run.end) <= (request.volume, request.first));
    for run in &runs[from..] {
        if run.volume != request.volume || run.first >= request.end {
            break;
        }
        let (first, end) = (request.first.max(run.first), request.end.min(run.end));
        each(
            run.number + (first - run.first),
            run.number + (end - run.first),
        );
    }
}
