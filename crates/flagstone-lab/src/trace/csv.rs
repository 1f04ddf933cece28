//! A trace as comma-separated values, for tools that read nothing better.
//!
//! ```text
//! time_ns,transaction,op,page,relation
//! 0,0,write,17,1663/5/16396
//! 125000,0,commit,,
//! ```

use std::io::{self, Write};

use super::Trace;

/// The first line.
pub const HEADER: &str = "time_ns,transaction,op,page,relation";

/// Writes all events, each with the relation that its page belongs to as far as it is known.
/// Commits and aborts have no page. Fields are quoted where RFC 4180 asks for it.
///
/// # Errors
/// Those of `out`.
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
            String::from_utf8(text).unwrap(),
            "time_ns,transaction,op,page,relation\n\
             0,0,read,1,\"8,0\"\n\
             5,0,write,2,\"a \"\"b\"\"\"\n\
             5,0,trim,3,\n\
             7,0,commit,,\n"
        );
    }
}
