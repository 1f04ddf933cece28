//! The importer for the output of [`script`]: converts accesses to PostgreSQL's buffers into a
//! trace with reads.
//!
//! ```text
//! line                                                     becomes
//! S TIME PID                                               a transaction of this process begins
//! R TIME PID FORK BLOCK TABLESPACE DATABASE FILE BUFFER    Read of that page
//! D TIME PID BUFFER                                        Write of the page last read there
//! C TIME PID, A TIME PID                                   Commit, Abort
//! ```
//!
//! A backend runs one transaction at a time, so its process id identifies it. `MarkBufferDirty`
//! reports only the buffer. Its page is the last one read into it, which is pinned and cannot
//! change meanwhile. Each processor has its own queue, so lines are first sorted by time.
//!
//! The writes differ from those in the log ([`super::waldump`]): they include pages pruned by
//! readers, and a transaction's changes of catalogues. Hint bits count as writes in neither. Only
//! the main fork is imported. Temporary tables are in separate buffers with negative numbers and
//! are left out. Transactions that touch no page are left out.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use rustc_hash::FxHashMap as HashMap;

use super::check::MAX_COUNT;
use super::input::{ImportError, Line, Lines};
use super::{Event, Op, Relation, Trace};

/// The bpftrace program that prints these lines, for a given server executable.
pub fn script(server: &Path) -> String {
    let server = server.display();
    format!(
        r#"usdt:{server}:postgresql:transaction__start {{ printf("S %llu %d\n", nsecs, pid); }}
usdt:{server}:postgresql:transaction__commit {{ printf("C %llu %d\n", nsecs, pid); }}
usdt:{server}:postgresql:transaction__abort {{ printf("A %llu %d\n", nsecs, pid); }}
usdt:{server}:postgresql:buffer__read__done {{
    @fork[tid] = arg0; @block[tid] = arg1;
    @space[tid] = arg2; @base[tid] = arg3; @file[tid] = arg4;
}}
uretprobe:{server}:ReadBufferExtended /@file[tid]/ {{
    printf("R %llu %d %d %u %u %u %u %d\n", nsecs, pid, (int32)@fork[tid], (uint32)@block[tid],
        (uint32)@space[tid], (uint32)@base[tid], (uint32)@file[tid], (int32)retval);
}}
uprobe:{server}:MarkBufferDirty {{ printf("D %llu %d %d\n", nsecs, pid, (int32)arg0); }}
END {{ clear(@fork); clear(@block); clear(@space); clear(@base); clear(@file); }}
"#
    )
}

/// Options of the import.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The server's page size, its `block_size`.
    pub page_bytes: u32,
    /// Names for relations, by `tablespace/database/file`.
    pub relation_names: BTreeMap<String, String>,
}

/// Counts of an import, including what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Lines that concern a transaction or a page.
    pub lines: u64,
    /// Events that bpftrace reports as lost because they were not read fast enough.
    pub lost: u64,
    /// Skipped lines, by reason.
    skipped: BTreeMap<&'static str, u64>,
}

impl ProbeReport {
    /// Reasons for skipping that occurred, with counts.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.skipped.iter().map(|(what, count)| (*what, *count))
    }

    fn skip(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.skipped.entry(what).or_default() += count;
        }
    }

    fn provenance(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::from([
            ("importer".to_string(), "bpftrace".to_string()),
            ("lines".to_string(), self.lines.to_string()),
            (
                "times".to_string(),
                "of each access, by the server's clock".to_string(),
            ),
        ]);
        for (what, count) in self.skipped() {
            entries.insert(format!("skipped: {what}"), count.to_string());
        }
        if self.lost > 0 {
            entries.insert("lost by bpftrace".to_string(), self.lost.to_string());
        }
        entries
    }
}

/// Tablespace, database and file number, then the block.
type PageKey = ([u32; 3], u32);

/// Page number of accesses outside the main fork, which are not part of the trace.
const OTHER_FORK: u32 = u32::MAX;
const TEMPORARY: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
enum What {
    Start,
    Read { page: u32, buffer: i32 },
    Dirty { buffer: i32 },
    End(Op),
}

#[derive(Clone, Copy)]
struct Raw {
    time_ns: u64,
    process: u32,
    what: What,
}

/// Imports the output of [`script`].
///
/// # Errors
/// [`ImportError`], with the line: the input cannot be read, a line is not from the script, or it
/// contains no complete transaction that touches a page.
pub fn import(
    reader: impl BufRead,
    options: &ReadOptions,
) -> Result<(Trace, ProbeReport), ImportError> {
    let mut report = ProbeReport::default();
    let mut pages = Pages::default();
    let mut raw = parse(reader, &mut pages, &mut report)?;
    raw.sort_by_key(|raw| raw.time_ns);
    let slots = assemble(&raw, &mut report);
    let mut trace = number(&slots, &pages.list, options)?;
    trace.provenance = report.provenance();
    Ok((trace, report))
}

#[derive(Default)]
struct Pages {
    numbers: HashMap<PageKey, u32>,
    list: Vec<PageKey>,
}

impl Pages {
    fn number(&mut self, key: PageKey) -> u32 {
        let fresh = self.list.len() as u32;
        let number = *self.numbers.entry(key).or_insert(fresh);
        if number == fresh {
            self.list.push(key);
        }
        number
    }
}

/// Parses the output of the script. Messages of bpftrace itself are passed over.
fn parse(
    reader: impl BufRead,
    pages: &mut Pages,
    report: &mut ProbeReport,
) -> Result<Vec<Raw>, ImportError> {
    let mut lines = Lines::new(reader);
    let mut raw = Vec::new();
    while let Some(line) = lines.next()? {
        if !line.ended {
            report.skip("last line, cut short", 1);
            break;
        }
        // Messages of bpftrace itself: number of probes, lost events, contents of maps.
        let ours = match line.text.split(' ').next() {
            Some("S" | "R" | "D" | "C" | "A") => true,
            Some("Lost") => {
                let count = line.text.split(' ').nth(1).and_then(|n| n.parse().ok());
                report.lost = report.lost.saturating_add(count.unwrap_or(1));
                false
            }
            Some("" | "Attaching" | "Attached") => false,
            Some(map) if map.starts_with('@') => false,
            _ => return Err(line.wrong("not a line of the script for bpftrace")),
        };
        if ours {
            raw.push(event(&line, pages).ok_or_else(|| {
                line.wrong(
                    "expected `S|C|A TIME PID`, `D TIME PID BUFFER` or \
                     `R TIME PID FORK BLOCK TABLESPACE DATABASE FILE BUFFER`",
                )
            })?);
            if pages.list.len() > MAX_COUNT as usize {
                return Err(line.wrong(format!("more than {MAX_COUNT} distinct pages")));
            }
        }
    }
    report.lines = raw.len() as u64;
    Ok(raw)
}

/// Parses a line of the script: start, read, dirty buffer, commit or abort, with time and process.
/// `None` if it is malformed.
fn event(line: &Line<'_>, pages: &mut Pages) -> Option<Raw> {
    let mut words = line.text.split(' ');
    let kind = words.next()?;
    let time_ns = words.next()?.parse().ok()?;
    let process = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<u32>().ok();
    let what = match kind {
        "S" => What::Start,
        "C" => What::End(Op::Commit),
        "A" => What::End(Op::Abort),
        "D" => What::Dirty {
            buffer: words.next()?.parse().ok()?,
        },
        _ => {
            let (fork, block) = (number()?, number()?);
            let file = [number()?, number()?, number()?];
            let buffer: i32 = words.next()?.parse().ok()?;
            // Local buffers have negative numbers, the main fork is 0.
            let page = match (buffer < 0, fork) {
                (true, _) => TEMPORARY,
                (false, 0) => pages.number((file, block)),
                (false, _) => OTHER_FORK,
            };
            What::Read { page, buffer }
        }
    };
    words.next().is_none().then_some(Raw {
        time_ns,
        process,
        what,
    })
}

/// A transaction: its accesses in order, and their times.
#[derive(Default)]
struct Slot {
    accesses: Vec<(u64, Op, u32)>,
    end: Option<(u64, Op)>,
}

/// Groups accesses by transaction; keeps those that touch a page and end.
fn assemble(raw: &[Raw], report: &mut ProbeReport) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut open: HashMap<u32, usize> = HashMap::default();
    let mut buffers: HashMap<i32, u32> = HashMap::default();
    for raw in raw {
        let access = match raw.what {
            What::Start => {
                // The end of an earlier open transaction of this process is missing.
                open.insert(raw.process, slots.len());
                slots.push(Slot::default());
                continue;
            }
            What::End(op) => {
                match open.remove(&raw.process) {
                    Some(slot) => slots[slot].end = Some((raw.time_ns, op)),
                    None => report.skip("ends of transactions that began before", 1),
                }
                continue;
            }
            What::Read { page, buffer } => {
                buffers.insert(buffer, page);
                Some((Op::Read, page))
            }
            What::Dirty { buffer } => buffers.get(&buffer).map(|page| (Op::Write, *page)),
        };
        match (access, open.get(&raw.process)) {
            (None, _) => report.skip("changes of buffers that were read before", 1),
            (Some((_, OTHER_FORK)), _) => report.skip("accesses to other forks", 1),
            (Some((_, TEMPORARY)), _) => report.skip("accesses to temporary tables", 1),
            (Some(_), None) => report.skip("accesses outside of transactions", 1),
            (Some((op, page)), Some(slot)) => {
                slots[*slot].accesses.push((raw.time_ns, op, page));
            }
        }
    }
    let (mut unfinished, mut accesses, mut empty) = (0, 0, 0);
    slots.retain(|slot| {
        let count = slot.accesses.len() as u64;
        if slot.end.is_none() {
            unfinished += 1;
            accesses += count;
        } else if count == 0 {
            empty += 1;
        }
        slot.end.is_some() && count > 0
    });
    report.skip("transactions that never end", unfinished);
    report.skip("accesses of those", accesses);
    report.skip("transactions that touch no page", empty);
    slots
}

/// Assigns dense numbers to pages and transactions, and sorts all events by time.
fn number(slots: &[Slot], list: &[PageKey], options: &ReadOptions) -> Result<Trace, ImportError> {
    if slots.is_empty() {
        return Err(ImportError::Whole(
            "no transaction that touches a page ends in what bpftrace printed".to_string(),
        ));
    }
    if slots.len() > MAX_COUNT as usize {
        return Err(ImportError::Whole(format!(
            "more than {MAX_COUNT} transactions"
        )));
    }
    let mut used: Vec<u32> = slots
        .iter()
        .flat_map(|slot| slot.accesses.iter().map(|access| access.2))
        .collect();
    used.sort_unstable();
    used.dedup();
    used.sort_unstable_by_key(|page| list[*page as usize]);
    let mut numbers = vec![0; list.len()];
    let mut relations: Vec<Relation> = Vec::new();
    let mut last = None;
    for (number, page) in (0..).zip(&used) {
        numbers[*page as usize] = number;
        let file = list[*page as usize].0;
        if last != Some(file) {
            last = Some(file);
            let [space, base, relation] = file;
            let name = format!("{space}/{base}/{relation}");
            let name = options.relation_names.get(&name).cloned().unwrap_or(name);
            relations.push(Relation { name, pages: 0 });
        }
        if let Some(relation) = relations.last_mut() {
            relation.pages += 1;
        }
    }

    let mut events: Vec<(u64, usize, Op, u32)> = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        let accesses = slot.accesses.iter();
        events
            .extend(accesses.map(|(time, op, page)| (*time, number, *op, numbers[*page as usize])));
        events.extend(slot.end.map(|(time, op)| (time, number, op, 0)));
    }
    // Stable: within a transaction the order is already right.
    events.sort_by_key(|event| event.0);
    let zero = events[0].0;
    let mut transactions: Vec<Option<u32>> = vec![None; slots.len()];
    let mut next = 0;
    let events = events
        .into_iter()
        .map(|(time_ns, slot, op, page)| Event {
            time_ns: time_ns - zero,
            transaction: *transactions[slot].get_or_insert_with(|| {
                next += 1;
                next - 1
            }),
            op,
            page,
        })
        .collect();
    Ok(Trace {
        page_bytes: options.page_bytes,
        pages: used.len() as u32,
        transactions: slots.len() as u32,
        relations,
        events,
        ..Trace::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ReadOptions {
        ReadOptions {
            page_bytes: 8192,
            relation_names: BTreeMap::from([("1663/5/16396".to_string(), "stock".to_string())]),
        }
    }

    /// Two processes, with lines out of order as printed by two processors.
    const SAMPLE: &str = "\
Attaching 7 probes...
S 100 7
R 110 7 0 8 1663 5 16396 40
D 120 7 40
R 130 7 2 0 1663 5 16396 41
D 135 7 41
C 200 7
D 205 7 40
S 105 9
R 115 9 0 3 1663 5 16396 42
R 118 9 0 0 1664 0 2676 43
D 125 9 40
D 128 9 77
R 129 9 0 0 1663 5 99999 -1
A 210 9
S 220 9
C 230 9
S 240 9
R 250 9 0 8 1663 5 16396 40
Lost 3 events

@fork[7]: 0
";

    #[test]
    fn lines_become_a_trace_in_the_order_of_their_times() {
        let (trace, report) = import(SAMPLE.as_bytes(), &options()).unwrap();
        trace.validate().unwrap();
        let seen: Vec<_> = trace
            .events
            .iter()
            .map(|e| (e.time_ns, e.transaction, e.op, e.page))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 0, Op::Read, 1),
                (5, 1, Op::Read, 0),
                (8, 1, Op::Read, 2),
                (10, 0, Op::Write, 1),
                // Page 8 is in buffer 40, whichever process read it.
                (15, 1, Op::Write, 1),
                (90, 0, Op::Commit, 0),
                (100, 1, Op::Abort, 0),
            ]
        );
        let names: Vec<_> = trace
            .relations
            .iter()
            .map(|r| (&*r.name, r.pages))
            .collect();
        assert_eq!(names, [("stock", 2), ("1664/0/2676", 1)]);
        assert_eq!(report.lost, 3);
        let skipped: Vec<_> = report.skipped().collect();
        assert_eq!(
            skipped,
            [
                ("accesses of those", 1),
                ("accesses outside of transactions", 1),
                ("accesses to other forks", 2),
                ("accesses to temporary tables", 1),
                ("changes of buffers that were read before", 1),
                ("transactions that never end", 1),
                ("transactions that touch no page", 1),
            ]
        );
        assert_eq!(trace.provenance["lost by bpftrace"], "3");
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, want) in [
            ("S 1 2\nX 1\n", "line 2: not a line of the script"),
            ("S 1\n", "line 1: expected `S|C|A TIME PID`"),
            ("R 1 2 0 0 1 1 1\n", "line 1: expected"),
            ("D 1 2 3 4\n", "line 1: expected"),
            ("S 1 2\nC 2 2\n", "no transaction that touches a page"),
            ("", "no transaction that touches a page"),
        ] {
            let error = import(text.as_bytes(), &options()).unwrap_err().to_string();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }
}
