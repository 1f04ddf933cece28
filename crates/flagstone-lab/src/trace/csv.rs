//! Exports a trace as comma-separated values, and imports it again.
//!
//! ```text
//! time_ns,transaction,op,page,relation
//! 0,0,write,17,1663/5/16396
//! 125000,0,commit,,
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use rustc_hash::FxHashMap as HashMap;

use super::block::columns::Delimiter;
use super::check::{Checker, MAX_COUNT};
use super::input::{EventSink, ImportError, Lines};
use super::{Event, Op, Relation, Trace};

/// The first line.
pub const HEADER: &str = "time_ns,transaction,op,page,relation";

/// Writes all events, each with the relation of its page if known. Commits and aborts have no page.
/// Fields are quoted as RFC 4180 requires.
///
/// # Errors
/// Errors of `out`.
pub fn write(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let mut ends = Vec::with_capacity(trace.relations.len());
    let mut end = 0;
    for relation in &trace.relations {
        end += relation.pages;
        ends.push(end);
    }
    let names: Vec<String> = trace.relations.iter().map(|r| quoted(&r.name)).collect();
    writeln!(out, "{HEADER}")?;
    for event in &trace.events {
        write!(
            out,
            "{},{},{},",
            event.time_ns,
            event.transaction,
            event.op.name()
        )?;
        if event.op.ends() {
            writeln!(out, ",")?;
        } else {
            let relation = names.get(ends.partition_point(|end| *end <= event.page));
            writeln!(
                out,
                "{},{}",
                event.page,
                relation.map_or("", String::as_str)
            )?;
        }
    }
    out.flush()
}

/// Reads the output of [`write()`]: passes the events to `sink` in order, and returns the trace
/// without events. The text does not contain the page size.
///
/// # Errors
/// [`ImportError`], and errors of `sink`.
pub fn import(
    reader: impl BufRead,
    page_bytes: u32,
    sink: EventSink<'_>,
) -> Result<Trace, ImportError> {
    let mut lines = Lines::new(reader);
    match lines.next()? {
        Some(line) if line.text.trim_ascii() == HEADER => {}
        Some(line) => {
            return Err(line.wrong(format!(
                "not the output of `trace export csv`, whose first line is `{HEADER}`: describe \
                 the columns, for example --columns time:us,op,offset:sectors,bytes,volume, or use \
                 --preset"
            )));
        }
        None => return Err(ImportError::Whole("the input is empty".to_string())),
    }
    let mut checker = Checker::default();
    let mut relations = Relations::default();
    while let Some(line) = lines.next()? {
        if line.text.is_empty() {
            continue;
        }
        let fields = if line.text.contains('"') {
            split(line.text, Delimiter::Char(','))
        } else {
            line.text.split(',').map(str::to_string).collect()
        };
        let [time, transaction, op, page, relation] = &fields[..] else {
            return Err(line.wrong(format!("expected 5 columns, found {}", fields.len())));
        };
        let id = |text: &str| text.parse().ok().filter(|number| *number < MAX_COUNT);
        let op = line.read(op, "operation", Op::from_name(op))?;
        let event = Event {
            time_ns: line.read(time, "time in ns", time.parse().ok())?,
            transaction: line.read(transaction, "transaction", id(transaction))?,
            op,
            page: if op.ends() {
                0
            } else {
                line.read(page, "page", id(page))?
            },
        };
        checker
            .see(&event)
            .map_err(|flaw| line.wrong(flaw.to_string()))?;
        if !op.ends() {
            relations.see(relation, event.page);
        }
        sink(event)?;
    }
    let whole = |problem: String| ImportError::Whole(problem);
    let (pages, transactions) = (checker.pages(), checker.transactions());
    checker
        .finish(pages, transactions)
        .map_err(|flaw| whole(flaw.to_string()))?;
    let entry = |name: &str, value: &str| (name.to_string(), value.to_string());
    Ok(Trace {
        page_bytes,
        pages,
        transactions,
        relations: relations.finish().map_err(whole)?,
        events: Vec::new(),
        provenance: BTreeMap::from([
            entry("importer", "csv"),
            entry("times", "ns, as the format has it"),
            entry("transactions", "as the input has them"),
        ]),
    })
}

/// First and last page of each relation; pages without a name belong to none.
#[derive(Default)]
struct Relations(HashMap<String, (u32, u32)>);

impl Relations {
    fn see(&mut self, name: &str, page: u32) {
        match self.0.get_mut(name) {
            Some((first, last)) => (*first, *last) = (page.min(*first), page.max(*last)),
            None => drop(self.0.insert(name.to_string(), (page, page))),
        }
    }

    /// The relations in the order of their pages. Pages without events belong to the relation after
    /// them. Fails if pages of two relations are mixed.
    fn finish(mut self) -> Result<Vec<Relation>, String> {
        let none = self.0.remove("");
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|(_, pages)| *pages);
        let mut end = 0;
        let mut relations = Vec::new();
        for (name, (first, last)) in all {
            if first < end {
                return Err(format!(
                    "pages of relation `{name}` lie among those of another"
                ));
            }
            relations.push(Relation {
                name,
                pages: last + 1 - end,
            });
            end = last + 1;
        }
        match none {
            Some((first, _)) if first < end => Err(format!(
                "page {first} of no relation lies among those of relations"
            )),
            _ => Ok(relations),
        }
    }
}

/// The fields of a line with quoted fields, as in RFC 4180.
pub(super) fn split(line: &str, delimiter: Delimiter) -> Vec<String> {
    let ends = |char: char| match delimiter {
        Delimiter::Char(delimiter) => char == delimiter,
        Delimiter::Space => char.is_ascii_whitespace(),
    };
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        let field = fields.last_mut().expect("there is one");
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            char if quoted || !ends(char) => field.push(char),
            _ if delimiter == Delimiter::Space && field.is_empty() => {}
            _ => fields.push(String::new()),
        }
    }
    fields
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Op, Relation};

    #[test]
    fn events_are_lines_with_their_relations() {
        let relation = |name: &str, pages| Relation {
            name: name.to_string(),
            pages,
        };
        let trace = Trace {
            page_bytes: 8192,
            pages: 4,
            transactions: 1,
            relations: vec![relation("8,0", 2), relation("a \"b\"", 1)],
            events: [
                (0, 0, Op::Read, 1),
                (5, 0, Op::Write, 2),
                (5, 0, Op::Trim, 3),
                (7, 0, Op::Commit, 0),
            ]
            .map(Event::of)
            .to_vec(),
            ..Trace::default()
        };
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            "time_ns,transaction,op,page,relation\n\
             0,0,read,1,\"8,0\"\n\
             5,0,write,2,\"a \"\"b\"\"\"\n\
             5,0,trim,3,\n\
             7,0,commit,,\n"
        );
        let (again, said) = read(&text);
        assert_eq!(said, Ok(()));
        assert_eq!((again.pages, again.transactions), (4, 1));
        assert_eq!(again.relations, trace.relations);
        assert_eq!(again.events, trace.events);
    }

    fn read(text: &[u8]) -> (Trace, Result<(), String>) {
        let mut events = Vec::new();
        let read = import(text, 8192, &mut |event| {
            events.push(event);
            Ok(())
        });
        let said = read.as_ref().map(drop).map_err(ToString::to_string);
        let trace = read.unwrap_or_default();
        (Trace { events, ..trace }, said)
    }

    #[test]
    fn a_table_that_breaks_a_rule_names_its_line() {
        for (lines, why) in [
            ("1,0,commit,\n", "line 2: expected 5 columns, found 4"),
            ("x,0,commit,,\n", "line 2: `x` is no time in ns"),
            ("1,0,erase,0,\n", "line 2: `erase` is no operation"),
            ("1,0,read,,\n", "line 2: `` is no page"),
            (
                "1,0,read,0,\n0,0,commit,,\n",
                "line 3: row 1: time 0 ns is before",
            ),
            (
                "1,1,commit,,\n",
                "line 2: row 0: transaction 1 appears before 0",
            ),
            (
                "1,0,read,0,a\n",
                "transaction 0, which begins in row 0, never ends",
            ),
            (
                "1,0,read,0,a\n1,0,read,1,b\n1,0,read,2,a\n1,0,commit,,\n",
                "pages of relation `b` lie among those of another",
            ),
        ] {
            let (_, said) = read(format!("{HEADER}\n{lines}").as_bytes());
            assert!(said.clone().unwrap_err().contains(why), "{said:?}");
        }
        let (_, said) = read(b"a,b\n");
        assert!(said.unwrap_err().contains("--columns time:us"));
    }
}
