//! What a device shows must match its flash and its decisions, under every protocol.

use crate::layouts::size;
use crate::shown::{bytes_of, data_at, header_at, named, newest_root, programmed};
use crate::small_device::{EVERYTHING, NOTHING, Small, unwaited};
use flagstone::commit::{Field, Kind, mapping};
use flagstone::dice::Dice;
use flagstone::ftl::{BlockState, Config, Header, PageKind, header};
use flagstone::nand::{Chip, Cut, Geometry, small};
use flagstone::units::{Lpn, Pbn, Ppn, TxId};
use std::collections::{BTreeMap, BTreeSet};

const PAGES: u32 = 96;

fn device(kind: Kind) -> Small {
    let chip = small::chip(Geometry {
        blocks_per_plane: 30,
        pages_per_block: 6,
        strict_order: false,
        ..small::GEOMETRY
    });
    let mut options = unwaited(kind);
    options.tells = true;
    let config = Config::small(PAGES, Some(3));
    Small::on(chip, config, kind, options)
}

/// Runs transactions that commit, are rolled back, or trim, and one that stays open, until the
/// power fails if it does. Returns the open one with its pages.
fn history(small: &mut Small, kind: Kind, seed: u64, count: u32) -> Option<(TxId, BTreeSet<u32>)> {
    let mut dice = Dice(seed);
    let is_alone = small.device().live_max() == Some(1);
    let open = |small: &mut Small| -> Option<(TxId, BTreeSet<u32>)> {
        Some((small.try_open(1, &[90, 91, 95]).ok()?, [90, 91, 95].into()))
    };
    let early = if is_alone { None } else { Some(open(small)?) };
    for i in 0..count {
        let first = dice.pick(40);
        let pages: Vec<u32> = (0..1 + dice.pick(4)).map(|n| first + 7 * n).collect();
        let tx = small.try_open(2 + i as u8, &pages).ok()?;
        let now = small.now;
        let trimmed = dice.one_in(4).then(|| Lpn(80 + dice.pick(8)));
        if let Some(lpn) = trimmed {
            small.now = small.device().trim(now, tx, lpn).ok()?.next;
        }
        if dice.one_in(3) && kind != Kind::Plain {
            let now = small.now;
            small.now = small.device().abort(now, tx).ok()?;
        } else {
            small.try_commit(tx).ok()?;
        }
    }
    match early {
        None => open(small),
        early => early,
    }
}

/// Compares the rulings of a restart with the resulting state. Adds their rows to `rows`.
fn assert_rulings(small: &mut Small, kind: Kind, rows: &mut BTreeSet<&'static str>) {
    let mapped = mapping(small.device().ftl());
    let rulings = small.device().rulings().to_vec();
    let heads: BTreeMap<Ppn, Header> = small.chip(programmed).into_iter().collect();
    let newest = |lpn: Lpn| mapped.iter().find(|(at, _)| *at == lpn);
    for ruling in &rulings {
        assert!(
            kind.info()
                .recovery
                .iter()
                .any(|row| row.code == ruling.row),
            "{kind}: {ruling:?} names no row"
        );
        rows.insert(ruling.row);
        assert!(ruling.pages.is_sorted(), "{kind}: {ruling:?}");
        // A log whose entries name places names pages that may hold other data by now.
        let of_log = kind.info().log.iter().any(|it| {
            let mut fields = it.fields.iter();
            fields.any(|(name, ..)| *name == "PPN")
        });
        for &at in ruling.pages.iter().filter(|_| !of_log) {
            let head = heads.get(&at).filter(|head| head.is_version());
            let head = head.unwrap_or_else(|| panic!("{kind}: p{at} is no version"));
            let is_mapped = mapped.contains(&(head.lpn, at));
            assert!(ruling.counts || !is_mapped, "{kind}: {ruling:?}, p{at}");
            // If a page counts, the page itself, a copy of it, or a newer version is mapped.
            if ruling.counts && !is_mapped && head.kind == PageKind::Data {
                // The place of a transaction may be above the write sequence of its page.
                let place = |at: &Ppn| {
                    let ruling = rulings.iter().find(|other| other.pages.contains(at));
                    let place = ruling.and_then(|ruling| ruling.because.split("place ").nth(1));
                    let place = place.and_then(|it| it.split(',').next()?.parse().ok());
                    place.unwrap_or(heads[at].seq)
                };
                let instead = newest(head.lpn).map(|(_, at)| place(at));
                assert!(
                    instead.is_none_or(|instead| instead >= place(&at)),
                    "{kind}: {ruling:?}, p{at}"
                );
            }
        }
    }
}

/// Rows that these histories do not reach; `None` for a protocol of which they need only reach
/// half. The tests of recovery tables cover all rows.
fn rare(kind: Kind) -> Option<&'static [&'static str]> {
    use Kind::{Afc, Bpcc, GMixSl, LightTx, MhlD, MixSl, Plain, Scc};
    Some(match kind {
        // A torn log page, and a part from before the checkpoint.
        Kind::Aw | Kind::MhlM => &["@B", "@C"],
        // Flags of one commit on both sides of a cut.
        Kind::Cfc => &["@C"],
        // A root that lists transactions; SEAL keeps no mapping table on flash.
        Kind::Seal => &["@C", "@F"],
        Kind::SealR => &["@C"],
        Plain | Scc | Bpcc | Afc | MhlD | LightTx | MixSl | GMixSl => &[],
        #[allow(unreachable_patterns, reason = "a protocol that is added")]
        _ => return None,
    })
}

/// Fails if a restart reports another row than the one it applies, reports a page as counting
/// without mapping it, or decides differently because it reports.
#[test]
fn what_a_restart_tells_is_what_it_goes_by() {
    for &kind in Kind::ALL {
        let mut rows = BTreeSet::new();
        for at in 0..40 {
            let mut small = device(kind);
            (0..80).for_each(|page| small.put(&[(page, 1)]));
            small.churn(0..80, |device| device.stats().collections > 9);
            let cut = Cut {
                at: 4 * at,
                dice: (at / 2) * 0x9d + [NOTHING, EVERYTHING][at as usize % 2],
                torn: at.is_multiple_of(5),
            };
            let mut small = small.arm(cut);
            history(&mut small, kind, at, 60);
            let mut small = small.restart(NOTHING);
            assert_rulings(&mut small, kind, &mut rows);
            let before = mapping(small.device().ftl());
            small.options.tells = false;
            let mut silent = small.restart(NOTHING);
            assert!(silent.device().rulings().is_empty());
            assert_eq!(mapping(silent.device().ftl()), before, "{kind}");
        }
        let all = kind.info().recovery.iter().map(|row| row.code);
        let missing: Vec<&str> = all.filter(|row| !rows.contains(row)).collect();
        match rare(kind) {
            Some(rare) => assert_eq!(missing, rare, "{kind}"),
            None => assert!(missing.len() <= rows.len(), "{kind}: {missing:?}"),
        }
    }
}

/// The pages that cells refer to, as `p7`.
fn places_in(cells: &[String]) -> Vec<Ppn> {
    let words = cells.iter().flat_map(|cell| cell.split([' ', ',']));
    words
        .filter_map(|word| Some(Ppn(word.strip_prefix('p')?.parse().ok()?)))
        .collect()
}

/// Fails if a table omits a version of a live transaction, shows a wrong one, or still shows a
/// transaction that has ended.
#[test]
fn tables_show_the_versions_of_the_live_transaction() {
    for &kind in Kind::ALL {
        let mut small = device(kind);
        (0..40).for_each(|page| small.put(&[(page, 1)]));
        let (tx, pages) = history(&mut small, kind, 5, 60).expect("the power is on");
        let of_tx = |small: &mut Small| -> Vec<Vec<String>> {
            let mut tables = small.device().tables();
            tables.retain(|table| table.columns.contains(&"transaction"));
            let rows = tables.into_iter().flat_map(|table| table.rows);
            rows.filter(|row| row.contains(&tx.to_string())).collect()
        };
        let memory: Vec<&str> = small.device().memory().iter().map(|part| part.0).collect();
        let tables = small.device().tables();
        assert_eq!(tables.is_empty(), kind == Kind::Plain, "{kind}");
        for table in &tables {
            let is_whole = |row: &Vec<String>| row.len() == table.columns.len();
            assert!(table.rows.iter().all(is_whole), "{kind}: {table:?}");
            assert!(memory.contains(&table.name), "{kind}: {memory:?} {table:?}");
        }
        if kind == Kind::Plain {
            continue;
        }
        let rows = of_tx(&mut small);
        assert!(!rows.is_empty(), "{kind}: {tables:?}");
        let lpn = |at| small.chip(|chip| header_at(chip, at).expect("a version").lpn.0);
        let mut shown: BTreeSet<u32> = rows
            .iter()
            .flat_map(|row| places_in(row))
            .map(lpn)
            .collect();
        // The held-back page is in the last column of its row.
        let held = rows
            .iter()
            .filter_map(|row| row.last()?.strip_prefix("page "));
        shown.extend(held.map(|page| page.parse::<u32>().expect("a page")));
        assert_eq!(shown, pages, "{kind}: {rows:?}");
        small.commit(tx);
        assert_eq!(of_tx(&mut small).len(), 0, "{kind}");
    }
}

/// Fails if a field has a wrong offset or length or is missing, and if a protocol lists a record
/// that it does not store there.
#[test]
fn fields_say_all_the_bytes_of_spare_areas_logs_and_roots() {
    for &kind in Kind::ALL {
        let info = kind.info();
        let mut small = device(kind);
        (0..40).for_each(|page| small.put(&[(page, 1)]));
        history(&mut small, kind, 7, 200).expect("the power is on");
        // A few blocks fail.
        let rated = |block: Pbn| if block.0 % 13 == 8 { 1 } else { u32::MAX };
        let mut small = small.wear_out(EVERYTHING, rated);
        history(&mut small, kind, 8, 200).expect("the power is on");
        let chip = small.chip(Chip::clone);
        let (mut tails, mut logs) = (0, 0);
        for (at, head) in programmed(&chip) {
            if head.is_version() {
                let spare = chip.peek_spare(at);
                let fields = info.tail_fields(spare);
                let tail = header::SIZE..header::SIZE + info.format.tail_bytes;
                assert_eq!(bytes_of(&fields), spare[tail], "{kind}");
                tails += fields.len();
            }
            if head.kind == PageKind::Log {
                let data = data_at(&chip, at);
                let (fields, entries) = info.log_fields(&data);
                let count = fields.last().expect("a head").value;
                assert_eq!(entries.len() as u64, count, "{kind}");
                let bytes = bytes_of(fields.iter().chain(entries.iter().flatten()));
                assert_eq!(bytes, data[..bytes.len()], "{kind}");
                logs += entries.len();
            }
        }
        assert_eq!(tails > 0, info.format.tail_bytes > 0, "{kind}");
        assert_eq!(logs > 0, info.format.logs > 0, "{kind}");
        let (blank, no) = info.log_fields(&[]);
        assert!(blank.is_empty() && no.is_empty(), "{kind}");

        let root = newest_root(&chip, |data| info.root_fields(data));
        let (data, lines) = root.expect("a root says which blocks are bad");
        let bad = named(&lines, "BAD");
        assert!(!bad.is_empty(), "{kind}");
        for block in bad {
            let state = small.device().ftl().blocks().state(Pbn(block as u32));
            assert_eq!(state, BlockState::Bad, "{kind}");
        }
        assert_eq!(named(&lines, "PARTS"), [1], "{kind}");
        let map = lines.iter().flatten().filter(|field| field.name == "MAP");
        for (index, field) in map.filter(|field| !field.is_blank()).enumerate() {
            let head = header_at(&chip, Ppn(field.value as u32)).expect("a page");
            assert_eq!((head.kind, head.lpn), (PageKind::Map, Lpn(index as u32)));
        }
        // Empty lists are omitted.
        let of_ftl = |line: &&Vec<Field>| {
            let names = ["GENERATION", "LOG_FROM", "POOL", "BAD", "MAP"];
            names.contains(&line[0].name)
        };
        let own = &lines[lines.iter().take_while(of_ftl).count()..];
        match kind {
            // Its list is compressed.
            Kind::MixSl | Kind::GMixSl => {
                let listed = named(own, "XID");
                assert_eq!(named(own, "COUNT"), [listed.len() as u64], "{kind}");
                assert!(listed.is_sorted() && !listed.is_empty(), "{kind}");
            }
            // It comes last in a root, behind its length.
            _ => {
                let (own, bytes) = (bytes_of(own.iter().flatten()), named(&lines, "BYTES")[0]);
                let contents = &data[size("journal::root_part")..][..bytes as usize];
                let (before, found) = contents.split_at(contents.len() - own.len());
                let length = (own.len() as u32).to_le_bytes();
                assert!(before.ends_with(&length) && found == own, "{kind}");
            }
        }
    }
}
