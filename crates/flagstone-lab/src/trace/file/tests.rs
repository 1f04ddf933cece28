//! Round trips of random traces, and all kinds of invalid files.

use std::collections::BTreeMap;
use std::fs::{self, File};

use parquet::data_type::{ByteArray, FixedLenByteArrayType};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tempfile::TempDir;

use super::*;
use crate::trace::Relation;

/// A temporary folder for a test.
fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A valid trace: a few concurrent transactions with random operations and times.
fn random_trace(seed: u64) -> Trace {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let pages = random.random_range(1..5000);
    let mut trace = Trace {
        page_bytes: 512 << random.random_range(0..6),
        pages,
        ..Trace::default()
    };
    let mut open = Vec::new();
    let mut time_ns = 0;
    let target = random.random_range(0..400);
    while trace.transactions < target || !open.is_empty() {
        time_ns += [0, 1, 1_000_000, 1 << 40][random.random_range(0..4)];
        let fresh = trace.transactions < target && (open.is_empty() || random.random_bool(0.2));
        if fresh {
            open.push(trace.transactions);
            trace.transactions += 1;
        }
        let at = if fresh {
            open.len() - 1
        } else {
            random.random_range(0..open.len())
        };
        let op = Op::ALL[random.random_range(0..5)];
        let transaction = if op.ends() {
            open.swap_remove(at)
        } else {
            open[at]
        };
        let page = if op.ends() {
            0
        } else {
            random.random_range(0..pages)
        };
        trace
            .events
            .push(Event::of((time_ns, transaction, op, page)));
    }
    let half = pages / 2;
    trace.relations = vec![
        Relation {
            name: "1663/5/1 \"quoted\" ü".to_string(),
            pages: half,
        },
        Relation {
            name: String::new(),
            pages: pages - half,
        },
    ];
    trace.provenance = BTreeMap::from([
        ("command".to_string(), format!("seed {seed}\nsecond line")),
        (String::new(), String::new()),
    ]);
    trace
}

fn to(path: &Path) -> Output {
    Output::new(path, &[]).unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    let place = place();
    let path = place.path().join("a.parquet");
    for seed in 0..100 {
        let trace = random_trace(seed);
        write(&trace, &to(&path)).unwrap();
        assert_eq!(read(&path).unwrap(), trace, "seed {seed}");
    }
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        1,
        "a partial file was left behind"
    );
}

#[test]
fn several_row_groups_are_one_trace() {
    let place = place();
    let path = place.path().join("a.parquet");
    let mut trace = Trace {
        page_bytes: 4096,
        pages: 7,
        transactions: 1,
        ..Trace::default()
    };
    let event = |n: usize| Event::of((n as u64, 0, Op::Write, (n * n % 7) as u32));
    trace.events = (0..ROW_GROUP + 5).map(event).collect();
    trace.events.push(Event {
        op: Op::Commit,
        page: 0,
        ..event(ROW_GROUP + 5)
    });
    write(&trace, &to(&path)).unwrap();
    assert!(read(&path).unwrap() == trace);
    let again = place.path().join("b.parquet");
    write(&trace, &to(&again)).unwrap();
    assert_eq!(sha256(&path).unwrap(), sha256(&again).unwrap());
}

#[test]
fn a_flawed_trace_is_not_written_and_an_old_file_stays() {
    let place = place();
    let path = place.path().join("a.parquet");
    let mut trace = random_trace(1);
    write(&trace, &to(&path)).unwrap();
    let before = sha256(&path).unwrap();
    trace.events.pop();
    let error = write(&trace, &to(&path)).unwrap_err().to_string();
    assert!(error.contains("never ends"), "{error}");
    assert_eq!(sha256(&path).unwrap(), before);
}

fn problem(path: &Path) -> String {
    let error = read(path).unwrap_err().to_string();
    error
        .strip_prefix(&format!("{}: ", path.display()))
        .expect("names the file")
        .to_string()
}

#[test]
fn a_file_that_was_cut_is_refused_wherever_it_was_cut() {
    let place = place();
    let (whole, cut) = (
        place.path().join("a.parquet"),
        place.path().join("cut.parquet"),
    );
    write(&random_trace(3), &to(&whole)).unwrap();
    let bytes = fs::read(&whole).unwrap();
    for length in 0..bytes.len() {
        fs::write(&cut, &bytes[..length]).unwrap();
        let problem = problem(&cut);
        let why = match length {
            0 => "it is empty",
            1..4 => "not a Parquet file",
            _ => "cut short",
        };
        assert!(problem.starts_with(why), "{length}: {problem}");
    }
}

#[test]
fn foreign_files_are_told_apart() {
    let place = place();
    assert!(matches!(
        read(&place.path().join("absent")).unwrap_err().problem,
        Problem::Io(_)
    ));
    assert_eq!(problem(place.path()), "cannot be read: it is a folder");
    let text = place.path().join("text");
    fs::write(&text, "time_ns,transaction\n1,2\n").unwrap();
    assert!(
        problem(&text).starts_with("not a Parquet file"),
        "{}",
        problem(&text)
    );
}

/// A file with the four columns, each with the given type and one row group of values.
struct Foreign {
    schema: String,
    entries: Vec<(&'static str, &'static str)>,
    times: Vec<i64>,
    ops: Vec<&'static str>,
    pages: Vec<i64>,
    /// Whether columns are nullable, and the third page is null.
    null: bool,
}

impl Foreign {
    /// As written by another tool: other order, 64-bit integers, an extra first column.
    fn whole() -> Foreign {
        Foreign {
            schema: "message any {
                REQUIRED BYTE_ARRAY op (STRING);
                OPTIONAL INT64 page;
                REQUIRED INT64 transaction;
                REQUIRED INT64 time_ns;
            }"
            .to_string(),
            entries: vec![(key::FORMAT, key::TRACE), (key::PAGE_BYTES, "4096")],
            times: vec![0, 5, 5],
            ops: vec!["read", "write", "commit"],
            pages: vec![3, 1, 0],
            null: false,
        }
    }

    fn write(&self, path: &Path) {
        let schema = Arc::new(parse_message_type(&self.schema).unwrap());
        let entries = self.entries.iter();
        let entries = entries
            .map(|(k, v)| KeyValue::new(k.to_string(), v.to_string()))
            .collect();
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(entries))
            .build();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut names = self.names().into_iter();
        while let Some(mut column) = group.next_column().unwrap() {
            match names.next().unwrap().as_str() {
                "op" if self.schema.contains("FIXED") => {
                    let values = vec![ByteArray::from("read!").into(); 3];
                    column
                        .typed::<FixedLenByteArrayType>()
                        .write_batch(&values, None, None)
                        .unwrap()
                }
                "op" => {
                    let values: Vec<_> = self.ops.iter().map(|op| ByteArray::from(*op)).collect();
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(&values, None, None)
                        .unwrap()
                }
                "page" => {
                    let levels: &[i16] = if self.null { &[1, 1, 0] } else { &[1, 1, 1] };
                    let values = &self.pages[..if self.null { 2 } else { 3 }];
                    column
                        .typed::<Int64Type>()
                        .write_batch(values, Some(levels), None)
                        .unwrap()
                }
                "transaction" => column
                    .typed::<Int64Type>()
                    .write_batch(&[0, 0, 0], None, None)
                    .unwrap(),
                _ => column
                    .typed::<Int64Type>()
                    .write_batch(&self.times, None, None)
                    .unwrap(),
            };
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    fn names(&self) -> Vec<String> {
        let lines = self.schema.lines().filter(|line| line.contains(';'));
        let names = lines.map(|line| line.trim().trim_end_matches(';').split(' ').nth(2).unwrap());
        names.map(str::to_string).collect()
    }
}

#[test]
fn traces_of_other_tools_are_read() {
    let place = place();
    let path = place.path().join("a.parquet");
    for null in [false, true] {
        Foreign {
            null,
            ..Foreign::whole()
        }
        .write(&path);
        let trace = read(&path).unwrap();
        assert_eq!(
            (trace.pages, trace.transactions, trace.page_bytes),
            (4, 1, 4096)
        );
        let ops: Vec<_> = trace
            .events
            .iter()
            .map(|e| (e.time_ns, e.op, e.page))
            .collect();
        assert_eq!(
            ops,
            [(0, Op::Read, 3), (5, Op::Write, 1), (5, Op::Commit, 0)]
        );
    }
}

#[test]
fn each_departure_from_the_schema_has_its_message() {
    let place = place();
    let path = place.path().join("a.parquet");
    let said = |foreign: Foreign| {
        foreign.write(&path);
        problem(&path)
    };
    let whole = Foreign::whole;
    let with = |entry| {
        let mut foreign = whole();
        foreign.entries.push(entry);
        foreign
    };

    assert!(
        said(Foreign {
            entries: vec![],
            ..whole()
        })
        .contains("does not say `flagstone.format=trace`")
    );
    let unsized_ = Foreign {
        entries: vec![(key::FORMAT, key::TRACE)],
        ..whole()
    };
    assert_eq!(
        said(unsized_),
        "metadata entry `flagstone.page_bytes` is missing"
    );
    assert!(said(with((key::VERSION, "2"))).starts_with("version 2 of the trace format"));
    assert!(said(with((key::PAGES, "-1"))).contains("`flagstone.pages` is `-1`, not a number"));
    assert!(
        said(with((key::RELATIONS, "{"))).starts_with("metadata entry `flagstone.relations`: ")
    );
    assert_eq!(
        said(with((key::PAGES, "3"))),
        "row 0: page 3 is beyond the 3 pages of the trace"
    );
    assert_eq!(
        said(with((key::TRANSACTIONS, "2"))),
        "2 transactions are declared and 1 occur"
    );

    let renamed = Foreign {
        schema: whole().schema.replace("time_ns", "time"),
        ..whole()
    };
    assert_eq!(
        said(renamed),
        "column `time_ns` is missing; the file has op, page, transaction, time"
    );
    let retyped = whole()
        .schema
        .replace("BYTE_ARRAY op (STRING)", "FIXED_LEN_BYTE_ARRAY(5) op");
    assert_eq!(
        said(Foreign {
            schema: retyped,
            ..whole()
        }),
        "column `op` does not hold text"
    );

    let op = |name| Foreign {
        ops: vec!["read", name, "commit"],
        ..whole()
    };
    assert_eq!(
        said(op("flush")),
        "row 1: op is \"flush\", not one of read, write, trim, commit, abort"
    );
    assert_eq!(
        said(op("commit")),
        "row 2: transaction 0 goes on after its commit or abort"
    );
    let no_end = Foreign {
        ops: vec!["read"; 3],
        null: true,
        ..whole()
    };
    assert_eq!(said(no_end), "row 2: page is missing");
    assert_eq!(
        said(Foreign {
            pages: vec![-3, 0, 0],
            ..whole()
        }),
        "row 0: page is -3, below 0"
    );
    let far = Foreign {
        pages: vec![1, 1 << 31, 0],
        ..whole()
    };
    assert!(said(far).starts_with("row 1: page is 2147483648, more than the 2147483646"));
    let back = Foreign {
        times: vec![5, 3, 5],
        ..whole()
    };
    assert!(said(back).starts_with("row 1: time 3 ns is before"));
}
