//! Tests without a server, and a run on the one that `FLAGSTONE_TEST_POSTGRES` names.

use super::*;
use flagstone_lab::tpcc::consistency::CONDITIONS;
use flagstone_lab::tpcc::load::Loader;
use flagstone_lab::tpcc::session::Session;

struct Quiet;

impl Observer for Quiet {
    fn loading(&self, _: &str, _: u64, _: u64) {}
    fn running(&self, _: u64, _: Duration) {}
    fn step(&self, _: &str) {}
    fn advice(&self, _: &str) {}
}

fn options(url: &str) -> Options {
    Options {
        url: url.to_owned(),
        load: None,
        clients: 4,
        limit: Limit::Transactions(400),
        seed: 1,
        isolation: Isolation::default(),
        reads: false,
        waldump: None,
        pgdata: None,
    }
}

#[test]
fn a_connection_string_without_sense_is_refused_with_an_example() {
    let error = record(&options("nonsense"), "", &Quiet)
        .unwrap_err()
        .to_string();
    assert!(error.contains("postgres://user@host"), "{error}");
}

#[test]
fn a_missing_server_is_reported_with_its_address() {
    let url = "host=127.0.0.1 port=1 user=nobody dbname=none connect_timeout=5";
    let error = record(&options(url), "", &Quiet).unwrap_err().to_string();
    assert!(
        error.contains("127.0.0.1") && error.contains("port 1"),
        "{error}"
    );
    assert!(error.contains("is the server running"), "{error}");
}

#[test]
fn a_refused_checkpoint_says_whom_to_grant_what() {
    let refused = Error::Database {
        statement: "CHECKPOINT".to_owned(),
        message: "must be superuser (SQLSTATE 42501)".to_owned(),
    };
    assert!(
        RecordError::from(refused)
            .to_string()
            .contains("GRANT pg_checkpoint")
    );
}

/// Statements that each break one condition; `w_id = 1` and district 1 exist in any population.
const BREAKAGES: [(u32, &str); 11] = [
    (1, "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1"),
    (
        2,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1",
    ),
    (
        3,
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = (SELECT min(no_o_id) \
         + 1 FROM new_order WHERE no_w_id = 1 AND no_d_id = 1)",
    ),
    (
        4,
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 3",
    ),
    (
        5,
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 3",
    ),
    (
        6,
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 3",
    ),
    (
        7,
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 1 \
         AND ol_o_id = 3 AND ol_number = 1",
    ),
    (
        8,
        "UPDATE history SET h_amount = h_amount + 1 WHERE h_w_id = 1 AND h_c_id = 3",
    ),
    (
        9,
        "UPDATE history SET h_d_id = h_d_id % 10 + 1 WHERE h_w_id = 1 AND h_d_id = 1",
    ),
    (
        10,
        "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_id = 3",
    ),
    (
        12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_id = 3",
    ),
];

/// Populates a small database in a schema of its own, records a run, and tests the checks.
#[test]
fn a_run_on_a_server_keeps_the_conditions_and_becomes_a_trace() {
    let Ok(url) = std::env::var("FLAGSTONE_TEST_POSTGRES") else {
        eprintln!(
            "skipped: FLAGSTONE_TEST_POSTGRES names no server (like postgres://localhost/db)"
        );
        return;
    };
    let schema = format!("flagstone_test_{}", std::process::id());
    let mut admin = PostgresSession::connect(&config(&url).unwrap(), Isolation::default()).unwrap();
    admin.define(&format!("CREATE SCHEMA {schema}")).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            run_in(&url, &schema, isolation);
        }
    });
    admin
        .define(&format!("DROP SCHEMA {schema} CASCADE"))
        .unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn run_in(url: &str, schema: &str, isolation: Isolation) {
    let url = match (url.contains("://"), url.contains('?')) {
        (false, _) => format!("{url} options=-csearch_path={schema}"),
        (true, false) => format!("{url}?options=-csearch_path%3D{schema}"),
        (true, true) => format!("{url}&options=-csearch_path%3D{schema}"),
    };
    let mut session = PostgresSession::connect(&config(&url).unwrap(), isolation).unwrap();
    if isolation == Isolation::default() {
        let scale = Scale {
            warehouses: 2,
            customers: 60,
            items: 500,
        };
        let population = Population {
            scale,
            seed: 3,
            now: now(),
        };
        load::load(&mut session, &population, &mut |_, _| ()).unwrap();
        check(&mut session, When::Populated).unwrap();
        let delivered = "DELETE FROM new_order WHERE no_w_id = 1 AND no_o_id = 44";
        notices(&mut session, 11, delivered);
    }

    let options = Options {
        isolation,
        ..options(&url)
    };
    let recording = match record(&options, "test", &Quiet) {
        Err(RecordError::Wal(
            error @ (WalError::NotFound { .. } | WalError::Unreadable { .. }),
        )) => {
            eprintln!("skipped: {error}");
            return;
        }
        other => other.unwrap(),
    };
    let total = recording.counts.total();
    assert_eq!(total.committed + total.rolled_back, 400);
    let commits = recording
        .trace
        .events
        .iter()
        .filter(|e| e.op == Op::Commit)
        .count() as u64;
    let reading = [TransactionKind::OrderStatus, TransactionKind::StockLevel]
        .map(|k| recording.counts.of(k).committed);
    assert!(commits >= total.committed - reading.iter().sum::<u64>());
    let name = format!("{schema}.stock");
    assert!(
        recording
            .trace
            .relations
            .iter()
            .any(|relation| relation.name == name)
    );
    assert_eq!(recording.trace.provenance["tpcc.clients"], "4");

    let with_reads = record(
        &Options {
            reads: true,
            ..options
        },
        "test",
        &Quiet,
    );
    match with_reads {
        Err(RecordError::Probes(
            error @ (ProbeError::NotRoot | ProbeError::NotFound(_) | ProbeError::Failed { .. }),
        )) => eprintln!("skipped: {error}"),
        other => {
            let Recording { trace, counts, .. } = other.unwrap();
            let total = counts.total();
            let ends = u64::from(trace.transactions);
            assert!(ends >= total.committed + total.rolled_back);
            let count = |op| trace.events.iter().filter(|event| event.op == op).count();
            assert!(count(Op::Read) > 2 * count(Op::Write) && count(Op::Write) > 400);
            assert!(trace.relations.iter().any(|relation| relation.name == name));
        }
    }

    BREAKAGES
        .iter()
        .for_each(|(number, breakage)| notices(&mut session, *number, breakage));
    check(&mut session, When::Used).unwrap();
}

/// Asserts that a broken condition is noticed, then undoes the change.
fn notices(session: &mut PostgresSession, number: u32, breakage: &str) {
    let condition = CONDITIONS
        .iter()
        .find(|condition| condition.number == number)
        .unwrap();
    session.define(&format!("BEGIN; {breakage}")).unwrap();
    let row = session.query_one(&condition.query, &[]);
    session.define("ROLLBACK").unwrap();
    assert_ne!(
        row.unwrap()[0],
        0.into(),
        "condition {number} does not notice"
    );
}

#[test]
fn the_shipped_trace_is_what_its_provenance_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/tpcc-postgres.parquet"
    );
    let path = std::path::Path::new(path);
    assert!(
        std::fs::metadata(path).unwrap().len() <= 4 << 20,
        "at most 4 MiB"
    );
    let trace = flagstone_lab::trace::file::read(path).unwrap();
    let count = |op| trace.events.iter().filter(|event| event.op == op).count();
    let (mut committed, mut rolled_back) = (0, 0);
    for kind in [
        TransactionKind::NewOrder,
        TransactionKind::Payment,
        TransactionKind::Delivery,
    ] {
        let text = &trace.provenance[&format!("tpcc.{}", kind.name())];
        let numbers: Vec<usize> = text
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        committed += numbers[0];
        rolled_back += numbers[1];
    }
    assert_eq!(count(Op::Commit), committed);
    assert_eq!(count(Op::Abort), rolled_back);
    assert_eq!(trace.transactions as usize, committed + rolled_back);
    assert!(trace.provenance["command"].ends_with("-o data/tpcc-postgres.parquet"));
}
