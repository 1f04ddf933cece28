//! Makes the runs of a comparison and prints them: results on stdout, and the runs that were not
//! made on stderr.

use super::table::{self, Column, Table, wrap};
use super::{Args, Seeds, elsewhere, output, page};
use crate::commands::{Failure, NOT_DONE, note, say};
use flagstone_lab::chart::escape;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::effort::Effort;
use flagstone_lab::ranking::separation::Advice;
use flagstone_lab::ranking::{Measured, Row, Standing};
use flagstone_lab::replay::ReplayError;
use flagstone_lab::stop::Stop;
use rayon::prelude::*;
use std::fmt::Display;
use std::process::ExitCode;

/// The runs of one protocol or stack, one for each seed, and how each ended.
pub(super) struct Outcome<K, R, E> {
    pub of: K,
    pub ended: Vec<Result<R, E>>,
}

impl<K, R, E> Outcome<K, R, E> {
    /// The runs that were made.
    pub(super) fn runs(&self) -> impl Iterator<Item = &R> {
        self.ended.iter().flatten()
    }
}

/// The reason why a run was not made.
pub(super) trait Refusal: Display {
    /// Whether the request itself was invalid, rather than a run that failed.
    fn is_refusal(&self) -> bool;
}

impl Refusal for ReplayError {
    fn is_refusal(&self) -> bool {
        ReplayError::is_refusal(self)
    }
}

/// Makes all runs on `threads` threads, or one for each core. Results are in the order of the
/// subjects. `effort_of` estimates that of a run, for the progress bar ([`Effort`]).
pub(super) fn run_all<K: Clone + Display + Sync, R: Send, E: Send>(
    subjects: &[K],
    seeds: Seeds,
    threads: Option<u64>,
    effort_of: impl Fn(&K, usize) -> u64,
    run: impl Fn(&K, usize) -> Result<R, E> + Sync,
) -> Vec<Outcome<K, R, E>> {
    let nth = 0..seeds.count as usize;
    let (stop, effort) = (Stop::current(), Effort::current());
    let each = |at: usize| nth.clone().map(move |nth| (at, nth));
    let all: Vec<(usize, usize)> = (0..subjects.len()).flat_map(each).collect();
    let planned = all.iter().map(|&(at, nth)| effort_of(&subjects[at], nth));
    let planned: Vec<u64> = planned.inspect(|&pages| effort.plan(pages)).collect();
    let made = all.par_iter().zip(&planned).map(|(&(at, nth), &pages)| {
        let name = subjects[at].to_string();
        stop.within(|| effort.within(&name, pages, || run(&subjects[at], nth)))
    });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0) as usize);
    let mut ended: Vec<Result<R, E>> = match pool.build() {
        Ok(pool) => pool.install(|| made.collect()),
        // If the process cannot start more threads, use those of the current pool.
        Err(_) => made.collect(),
    };
    subjects
        .iter()
        .map(|of| Outcome {
            of: of.clone(),
            ended: ended.drain(..nth.len()).collect(),
        })
        .collect()
}

/// How runs of one kind are printed.
pub(super) struct Printed<'a, R: 'static> {
    pub columns: &'static [Column<R>],
    /// The names of all structures in memory.
    pub structures: &'a [&'a str],
    /// Describes what was compared, in lines of text.
    pub about: &'a dyn Fn(&R) -> Vec<String>,
    /// Explains why the first rows are ahead.
    pub reasons: fn(&Standing<'_, R>, Advice) -> Vec<String>,
}

/// Prints measurements, writes the page of `--html`, and reports failures. `what` is the word for a
/// subject, and `suits` says of a device whether it meets a condition, for advice.
pub(super) fn report<K: Display, R: Measured, E: Refusal>(
    args: &Args,
    device: &DeviceSpec,
    outcomes: Vec<Outcome<K, R, E>>,
    printed: &Printed<'_, R>,
    what: &str,
    suits: impl Fn(&K, &DeviceSpec) -> bool,
) -> Result<ExitCode, Failure> {
    let all = outcomes.len();
    let (mut rows, mut failed, mut refused) = (Vec::new(), Failed::default(), Vec::new());
    for Outcome { of, ended } in outcomes {
        let ended: Result<Vec<R>, E> = ended.into_iter().collect();
        match ended {
            Ok(runs) => rows.push(Row { runs }),
            Err(error) if error.is_refusal() => {
                let elsewhere = elsewhere(args, device, |device| suits(&of, device));
                refused.push(format!("left out: {error}{elsewhere}"));
            }
            Err(error) => failed.add(of.to_string(), error.to_string()),
        }
    }
    failed.note(all);
    if !args.timing {
        let runs = rows.iter_mut().flat_map(|row| &mut row.runs);
        runs.for_each(R::forget_timing);
    }
    if let Some(path) = &args.html
        && !rows.is_empty()
    {
        output(args, path)?.write(page_of(args, &rows, printed).as_bytes())?;
    }
    print(args, &rows, printed);
    let none = refused.len() == all;
    refused.sort();
    refused.dedup();
    refused.iter().for_each(|why| note(why));
    if none {
        return Err(Failure::Usage(format!("no {what} supports these options")));
    }
    Ok(if failed.0.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_DONE)
    })
}

/// The reasons why runs failed, each with the rows to which it applies.
#[derive(Default)]
pub(super) struct Failed(Vec<(String, Vec<String>)>);

impl Failed {
    pub(super) fn add(&mut self, row: String, why: String) {
        match self.0.iter_mut().find(|(other, _)| *other == why) {
            Some((_, rows)) => rows.push(row),
            None => self.0.push((why, vec![row])),
        }
    }

    /// Reports each reason once. Omits the row names if it applies to `all` rows.
    pub(super) fn note(&self, all: usize) {
        for (why, rows) in &self.0 {
            if rows.len() == all && all > 1 {
                note(&format!("error: {why}"))
            } else {
                note(&format!("error: {}: {why}", rows.join(", ")))
            }
        }
    }
}

/// Prints the rows: records for programs, or a table, its legend, and who is first and why.
fn print<R: Measured>(args: &Args, rows: &[Row<R>], printed: &Printed<'_, R>) {
    let runs = || rows.iter().flat_map(|row| &row.runs);
    if args.json {
        for run in runs() {
            say(&serde_json::to_string(run).expect("records have plain fields"));
        }
        return;
    }
    if args.csv {
        let runs: Vec<&R> = runs().collect();
        let lines = table::csv(&runs, printed.structures);
        return lines.iter().for_each(|line| say(line));
    }
    let standing = Standing::of(rows);
    let Some(reference) = standing.reference().or(standing.rows.first().copied()) else {
        return;
    };
    let table = Table::new(printed.columns, &standing);
    if args.markdown {
        return table.markdown().iter().for_each(|line| say(line));
    }
    let width = table::width();
    let text = |text: &str| wrap(text, width).iter().for_each(|line| say(line));
    (printed.about)(&reference.runs[0])
        .iter()
        .for_each(|line| text(line));
    say("");
    let table = if args.wide { table } else { table.fit(width) };
    table.lines().iter().for_each(|line| say(line));
    say("");
    text(&table.legend());
    text(&times(args));
    let verdict = standing.verdict();
    let reasons = (printed.reasons)(&standing, advice(args));
    for (nth, line) in verdict.iter().chain(&reasons).enumerate() {
        if nth == 0 {
            say("");
        }
        text(line);
    }
}

/// The options that this comparison allows to change, for advice.
fn advice(args: &Args) -> Advice {
    Advice {
        is_stack: args.host.stack.is_some(),
        is_drawn: args.workload.is_some(),
        isolated: args.isolation.is_some(),
        aborts: args.abort_ratio > 0.0,
    }
}

/// Says whether the times are virtual or real.
fn times(args: &Args) -> String {
    let seeds = match args.seeds {
        Some(count) if count > 1 => format!("means over {count} seeds"),
        _ => "exact for this seed".to_string(),
    };
    format!("Times and rates are virtual, and {seeds}.")
}

/// The comparison as an HTML page.
fn page_of<R: Measured>(args: &Args, rows: &[Row<R>], printed: &Printed<'_, R>) -> String {
    let standing = Standing::of(rows);
    let table = Table::new(printed.columns, &standing);
    let reference = standing.reference().unwrap_or(&rows[0]);
    let mut body = page::paragraphs(&(printed.about)(&reference.runs[0]));
    body += &page::paragraphs(&standing.verdict());
    body += &table.html(&standing);
    body += &page::paragraphs(&(printed.reasons)(&standing, advice(args)));
    body += &format!(
        "<p class=\"soft\">{}</p>\n<p class=\"soft\">{}</p>\n",
        escape(&table.legend()),
        times(args)
    );
    page::whole("Flagstone: a comparison", &body)
}
