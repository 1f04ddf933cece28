//! Power cuts under one transaction over two attached stores: each is atomic by itself, and the two
//! are not atomic together.

use super::{Found, contents, on, run};
use crate::lab::{open, put_store, super_journals, uri};
use flagstone::commit::Kind;
use flagstone_store::medium::Recorded;
use rusqlite::Connection;
use std::sync::{Arc, Mutex};

#[test]
fn power_cuts_leave_each_of_two_attached_stores_whole() {
    let media = [Recorded::default(), Recorded::default()];
    let places = media.clone().map(put_store);
    let db = open(&places[0]).expect("it opens");
    let attach = format!("ATTACH '{}' AS other", uri(&places[1]));
    run(&db, &attach).expect("attached");
    let oracles = [(); 2].map(|()| Connection::open_in_memory().expect("memory"));
    let mut before = oracles
        .each_ref()
        .map(|oracle| contents(oracle).expect("memory"));
    let mut found = Found {
        ways: 3,
        ..Found::default()
    };
    // Cuts that leave the transaction in the first store only, and in the second one only.
    let mut only = [0, 0];
    for number in 0..12 {
        let sql = ["t", "u"].map(|table| match number {
            0 => format!("CREATE TABLE {table} (a)"),
            1..8 => format!("INSERT INTO {table} VALUES (printf('%0*d', {number} * 700, 1))"),
            _ => format!("DELETE FROM {table} WHERE rowid = {number} - 8"),
        });
        for (oracle, sql) in oracles.iter().zip(&sql) {
            run(oracle, sql).expect("memory");
        }
        let after = oracles
            .each_ref()
            .map(|oracle| contents(oracle).expect("memory"));
        let both = match number {
            0 => format!(
                "BEGIN; {}; {}; COMMIT",
                sql[0],
                sql[1].replace("u (", "other.u (")
            ),
            _ => format!("BEGIN; {}; {}; COMMIT", sql[0], sql[1]),
        };
        // At each operation of one medium, the other is as it is. All the while there is a
        // super-journal on disk: a plain database would need it.
        let seen: Arc<Mutex<Vec<[Recorded; 2]>>> = Arc::default();
        for medium in &media {
            let (seen, media) = (Arc::clone(&seen), media.clone());
            let main = places[0].to_path_buf();
            medium.watch(Some(Box::new(move |_: &Recorded| {
                assert_eq!(super_journals(&main), 1);
                let moment = media.each_ref().map(Recorded::snapshot);
                seen.lock().expect("one thread").push(moment);
            })));
        }
        run(&db, &both).expect("it works");
        media.iter().for_each(|medium| medium.watch(None));
        for moment in seen.lock().expect("one thread").iter() {
            let landed = moment.each_ref().map(|medium| {
                let place = put_store(medium.snapshot());
                let left = open(&place).and_then(|db| contents(&db));
                left.expect("it opens")
            });
            if number > 0 && landed[0] != before[0] && landed[1] == before[1] {
                only[0] += 1;
            } else if number > 0 && landed[0] == before[0] && landed[1] != before[1] {
                only[1] += 1;
            }
            for (index, medium) in moment.iter().enumerate() {
                let allowed = [before[index], after[index]];
                found.look(on(Kind::Seal, 4096), &[medium.snapshot()], &allowed, 9);
            }
        }
        before = after;
    }
    assert!(found.cuts > 100, "{}", found.cuts);
    assert_eq!(
        found.bad, 0,
        "of {}, the first: {:?}",
        found.cuts, found.example
    );
    // What is not promised does happen: some cuts fall between the two commits, the first of which
    // is that of the main database.
    println!("{} cuts between the commits", only[0]);
    assert!(only[0] > 0 && only[1] == 0, "{only:?}");
    drop(db);
    assert_eq!(super_journals(&places[0]), 0);
}
