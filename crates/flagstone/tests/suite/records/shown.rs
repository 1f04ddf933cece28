//! Tests that the state shown of a record-level device is that of its flash and its tables.

use super::*;
use crate::shown::{bytes_of, named, newest_root};
use flagstone::ftl::{BlockState, Header};
use flagstone::nand::Flash;
use flagstone::units::{Pbn, Ppn};

/// A device with a committed, a rolled back and a live transaction, each with records in page 0 and
/// in one more page, and one whose commit is only in the host's log.
fn device(kind: RecordKind) -> (Bench, [TxId; 4]) {
    let mut bench = Bench::new(kind, 3, None);
    bench.options.tells = true;
    bench.write(0, 1, &[9, 9, 9, 9], &[]);
    let all = [(); 4].map(|()| bench.begin());
    let [committed, rolled_back, live, logged] = all;
    bench.write(1, 2, &[1], &[(committed, &[0])]);
    bench.write(2, 3, &[1, 1], &[(rolled_back, &[0, 1])]);
    bench.write(3, 4, &[1, 1, 1], &[(live, &[1]), (logged, &[0, 2])]);
    let three: [(TxId, &[SlotNo]); 3] = [(committed, &[0]), (rolled_back, &[1]), (live, &[2])];
    bench.write(0, 5, &[1, 1, 1, 9], &three);
    bench.commit(committed);
    bench.abort(rolled_back);
    (bench, all)
}

/// Fails if an entry, a flag or a list is read from a wrong place, or if a set flag is shown as not
/// set.
#[test]
fn entries_and_flags_are_shown_as_they_were_written() {
    for kind in RecordKind::ALL {
        let (mut bench, [committed, rolled_back, live, logged]) = device(kind);
        let info = bench.device().info();
        let chip = bench.flash.look(|power| power.chip().clone());
        let mut found = Vec::new();
        for at in (0..chip.geometry().pages()).map(Ppn) {
            let spare = chip.peek_spare(at);
            let Some(head) = Header::parse(spare).filter(Header::is_version) else {
                continue;
            };
            let mut data = vec![0; chip.geometry().page_bytes as usize];
            let bytes = chip.peek(at, &mut data, &mut []).expect("it is whole");
            let entries = info.entries(spare, &data[..bytes]);
            let fields = info.tail_fields(spare);
            let flags = fields.iter().filter(|field| field.name.starts_with("FLAG"));
            let flags: Vec<&str> = flags.map(|flag| (info.flag)(flag.value as u8)).collect();
            assert_eq!(flags.len(), entries.len(), "{kind}");
            // Flags without entries are not shown.
            let shown = bytes_of(&fields);
            let tail = &spare[flagstone::ftl::header::SIZE..];
            assert_eq!(shown, tail[..shown.len()], "{kind}");
            found.extend((!entries.is_empty()).then_some((head.lpn.0, entries, flags)));
        }
        found.sort();
        let of = |tx: TxId, slots: &[SlotNo]| (tx, slots.to_vec());
        let all_three = vec![of(committed, &[0]), of(rolled_back, &[1]), of(live, &[2])];
        let expected = [
            (0, all_three),
            (1, vec![of(committed, &[0])]),
            (2, vec![of(rolled_back, &[0, 1])]),
            (3, vec![of(live, &[1]), of(logged, &[0, 2])]),
        ];
        let entries = found
            .iter()
            .map(|(lpn, entries, _)| (*lpn, entries.clone()));
        assert_eq!(entries.collect::<Vec<_>>(), expected, "{kind}");
        // One flag that says committed is enough under CFC_ex; one that denies it is, under AFC_ex.
        let of = |tx: TxId| {
            let flags = found.iter().flat_map(|(_, entries, flags)| {
                let with = entries.iter().zip(flags);
                with.filter_map(|((of, _), flag)| (*of == tx).then_some(*flag))
            });
            flags.collect::<Vec<&str>>()
        };
        let decides = match kind {
            RecordKind::CfcEx => "TRUE",
            RecordKind::AfcEx => "FALSE",
            added => panic!("which flag of {added} decides?"),
        };
        let decided = [committed, rolled_back, live, logged].map(|tx| of(tx).contains(&decides));
        let says_committed = kind == RecordKind::CfcEx;
        let expected = [
            says_committed,
            !says_committed,
            !says_committed,
            !says_committed,
        ];
        assert_eq!(decided, expected, "{kind}");
    }
}

/// Fails if a table leaves out a live transaction or a version, or if a restart reports a row of
/// the recovery table that applies to other facts.
#[test]
fn tables_and_rulings_are_of_the_transactions_that_there_are() {
    for kind in RecordKind::ALL {
        let (mut bench, [committed, rolled_back, live, logged]) = device(kind);
        let rows = |bench: &mut Bench, name: &str| -> Vec<Vec<String>> {
            let mut tables = bench.device().tables();
            tables.retain(|table| table.name == name);
            let table = tables.pop().expect("it is there");
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.len() == table.columns.len())
            );
            table.rows
        };
        let row = |tx: TxId, state: &str, pages: &str| -> Vec<String> {
            vec![tx.to_string(), state.into(), pages.into()]
        };
        assert_eq!(
            rows(&mut bench, "live_transactions"),
            [
                row(live, "live", "page 3, page 0"),
                row(logged, "live", "page 3")
            ],
            "{kind}"
        );
        let versions = rows(&mut bench, "live_versions");
        let pages: Vec<&str> = versions.iter().map(|row| &row[0][..]).collect();
        // A page whose version is committed and has no older version needs no row.
        assert_eq!(pages, ["page 0", "page 2", "page 3"], "{kind}");
        let of_page_0 = versions[0][1].split(", ");
        assert!(
            of_page_0.count() >= 2,
            "{kind}: the version below is needed"
        );

        bench.restart(2, None).expect("there is no cut");
        let in_doubt = rows(&mut bench, "live_transactions");
        assert!(in_doubt.iter().all(|row| row[1] == "in doubt"), "{kind}");
        let logged_row = row(logged, "in doubt", "page 3");
        assert!(in_doubt.contains(&logged_row), "{kind}: {in_doubt:?}");
        bench.resolve(&[committed, logged]);
        let rulings = bench.device().rulings().to_vec();
        let of = |tx| {
            let ruling = rulings.iter().find(|ruling| ruling.tx == Some(tx));
            ruling.map(|ruling| (ruling.row, ruling.counts))
        };
        assert_eq!(of(committed), Some(("@A", true)), "{kind}");
        assert_eq!(of(logged), Some(("@B", true)), "{kind}");
        assert_eq!(of(live), Some(("@C", false)), "{kind}");
        let rolled_back = of(rolled_back);
        assert!(
            rolled_back.is_none_or(|ruling| ruling == ("@C", false)),
            "{kind}"
        );
        assert_eq!(rows(&mut bench, "live_transactions").len(), 0, "{kind}");
    }
}

#[test]
fn a_root_says_which_blocks_are_out_of_service() {
    for kind in RecordKind::ALL {
        let mut bench = Bench::new(kind, 3, None);
        bench.churn(20);
        let mut chip = bench.flash.look(|power| power.chip().clone());
        chip.reset_time();
        for block in (0..chip.geometry().blocks())
            .map(Pbn)
            .filter(|block| block.0 % 13 == 8)
        {
            chip.wear_out(block);
        }
        let mut bench = Bench::on(chip, kind, 3, None);
        bench.churn(60);
        let chip = bench.flash.look(|power| power.chip().clone());
        let root = newest_root(&chip, |data| kind.info().root_fields(data));
        let (_, lines) = root.expect("blocks have failed");
        let bad = named(&lines, "BAD");
        assert!(!bad.is_empty(), "{kind}");
        for block in bad {
            let state = bench.device().ftl().blocks().state(Pbn(block as u32));
            assert_eq!(state, BlockState::Bad, "{kind}");
        }
    }
}
