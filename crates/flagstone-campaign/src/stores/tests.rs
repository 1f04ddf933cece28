//! Small campaigns on stores, their controls, and run ids.

use super::harness::{Done, Life, May, Media, StoreRun, World};
use super::*;
use flagstone_store::medium::Landing;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;
use std::sync::Arc;

fn campaign(protocol: Kind, lie: Lie, cuts: u64) -> StoreFindings {
    campaign_over(StoreSubject::Pages, protocol, lie, cuts)
}

fn campaign_over(subject: StoreSubject, protocol: Kind, lie: Lie, cuts: u64) -> StoreFindings {
    task(subject, protocol, lie, cuts).run(&|_| ())
}

fn task(subject: StoreSubject, protocol: Kind, lie: Lie, cuts: u64) -> StoreCampaign {
    StoreCampaign {
        subject,
        protocol,
        lie,
        encrypted: false,
        // A control for runs with a chip beside the medium.
        on_chip: lie == Lie::Landings,
        cuts,
        depth: 3,
        seed: 14,
        stop_early: lie != Lie::None,
    }
}

#[test]
fn a_simulated_chip_beside_the_medium_is_recovered_to_the_same() {
    for &protocol in Kind::ALL.iter().filter(|&&protocol| suits(protocol)) {
        let campaign = StoreCampaign {
            on_chip: true,
            ..task(StoreSubject::Pages, protocol, Lie::None, 1_100)
        };
        let findings = campaign.run(&|_| ());
        assert_eq!(findings.violations, [], "{protocol}");
        let (tally, on_chip) = (&findings.work, &findings.work.on_chip);
        assert_eq!(
            tally.cuts, on_chip.cuts,
            "{protocol}: not all were compared"
        );
        assert!(tally.grown > 0, "{protocol}: {findings:?}");
        let seen = [on_chip.all, on_chip.nothing, on_chip.torn];
        assert!(seen.iter().all(|&ops| ops > 10), "{protocol}: {on_chip:?}");
        assert!(on_chip.by_tables > 0 || protocol != Kind::Seal);
    }
}

#[test]
fn cuts_lose_nothing_under_any_protocol_that_a_store_can_have() {
    let (mut protocols, mut discards) = (0, 0);
    for &protocol in Kind::ALL.iter().filter(|&&protocol| suits(protocol)) {
        protocols += 1;
        // A dozen runs: three stores grow, and half of those that begin large are filled.
        let findings = campaign(protocol, Lie::None, 1_300);
        assert_eq!(findings.violations, [], "{protocol}");
        assert!(findings.work.cuts_again > 50, "{findings:?}");
        assert!(findings.work.collections > 0, "{protocol}: {findings:?}");
        assert!(findings.work.grown > 0, "{protocol}: {findings:?}");
        discards += findings.work.discards;
    }
    assert!(protocols > 6 && discards > 20, "{discards}");
}

#[test]
fn cuts_lose_nothing_of_tables() {
    let findings = campaign_over(StoreSubject::Tables, Kind::Seal, Lie::None, 1_500);
    assert_eq!(findings.violations, []);
    let tally = &findings.work;
    assert!(tally.cuts_again > 50 && tally.grouped > 20, "{findings:?}");
    assert!(tally.snapshots > 50, "{findings:?}");
    assert!(tally.collections > 0 && tally.refused > 0, "{findings:?}");
}

/// Runs of `seeds` seeds, in which certain kinds of draws must occur.
fn wide_runs(of: &str, seeds: u64, kinds: fn(&StoreTally) -> Vec<u64>) {
    let mut tally = StoreTally::default();
    for seed in 0..seeds {
        let id: StoreRunId = format!("{of}/n2/s{seed}").parse().expect("a run id");
        let found = id.run();
        assert_eq!(found.first, None, "{id}");
        assert_eq!(id.to_string().parse(), Ok(id));
        tally += found;
    }
    assert_eq!(tally.wide.runs, seeds);
    assert!(kinds(&tally).iter().all(|&times| times > 0), "{tally:?}");
}

#[test]
fn each_kind_of_wide_draw_comes_and_loses_nothing() {
    wide_runs("store.seal.wide", 24, |tally| {
        let wide = &tally.wide;
        let of_stores = [
            wide.large_blocks,
            wide.many_clients,
            wide.roomy,
            wide.whole,
            wide.sparse,
        ];
        let of_use = [wide.large, wide.closes, wide.failures, wide.copies];
        [&of_stores[..], &of_use, &[tally.empties]].concat()
    });
}

#[test]
fn each_kind_of_wide_draw_comes_over_tables_and_loses_nothing() {
    wide_runs("tables.seal.wide", 40, |tally| {
        let wide = &tally.wide;
        let of_stores = [wide.large_blocks, wide.roomy, wide.whole, wide.sparse];
        let of_use = [wide.large, wide.closes, wide.failures, wide.copies];
        let grouped = wide.group.saturating_sub(16);
        let others = [grouped, wide.compactions, tally.moved];
        [&of_stores[..], &of_use, &others].concat()
    });
}

/// Asserts that a lie is detected by a run that its id repeats, and that passes without the lie.
fn finds(subject: StoreSubject, protocol: Kind, (lie, name): (Lie, &str)) {
    let findings = campaign_over(subject, protocol, lie, 20_000);
    let (id, what) = findings.violations.first().expect(name);
    assert_eq!(findings.without_mistake, 0, "{name}");
    let again: StoreRunId = id.to_string().parse().expect("a run id");
    let tally = match lie {
        Lie::Landings => again.run_on_chip(),
        _ => again.run(),
    };
    assert_eq!(tally.first.as_ref(), Some(what), "{id}");
}

fn lies_of(subject: StoreSubject) -> impl Iterator<Item = (Lie, &'static str)> {
    let lies = Lie::all().skip(1);
    lies.filter(move |&(lie, _)| subject.has(lie))
}

#[test]
fn lies_are_found_over_tables_as_well() {
    for lie in lies_of(StoreSubject::Tables) {
        finds(StoreSubject::Tables, Kind::Seal, lie);
    }
}

#[test]
fn every_lie_of_a_medium_is_found() {
    for lie in lies_of(StoreSubject::Pages) {
        // SEAL does not rely on erases: no outcome for marks has ever harmed it.
        let protocol = match lie.0 {
            Lie::SyncsOfMarks | Lie::Discards => Kind::Scc,
            Lie::Roots => Kind::SealR,
            _ => Kind::Seal,
        };
        finds(StoreSubject::Pages, protocol, lie);
    }
}

/// Stores that panic.
struct Panics;

impl World for Panics {
    type State = ();

    const STEPS: [Range<u32>; 2] = [1..2, 1..2];

    fn draw(_: &StoreRunId, _: &mut Pcg64Mcg) -> (Panics, u32) {
        (Panics, 1)
    }

    fn landing(_: u64, _: &mut Pcg64Mcg) -> Landing {
        Landing::Nothing
    }

    fn fill(_: &mut StoreRun<Panics>, _: &Media) -> Done<()> {
        Ok(())
    }

    fn live(run: &mut StoreRun<Panics>, _: &mut Life<()>, _: u32, _: &mut Pcg64Mcg) -> Done<()> {
        run.tally.committed = 7;
        panic!("it is broken")
    }

    fn recover(_: &mut StoreRun<Panics>, _: &Media, _: May<()>) -> Done<Arc<()>> {
        Ok(Arc::default())
    }
}

#[test]
fn a_panic_of_a_store_is_a_violation_and_what_was_done_before_counts() {
    let id = "store.seal/n1/s1".parse().expect("a run id");
    let tally = carry_out::<Panics>(&id, false);
    assert_eq!(tally.first.as_deref(), Some("panic: it is broken"));
    assert_eq!((tally.violations, tally.committed), (1, 7));
}

#[test]
fn a_run_id_is_whole_or_refused() {
    let id = StoreRunId {
        subject: StoreSubject::Pages,
        protocol: Kind::Seal,
        lie: Lie::None,
        encrypted: false,
        filled: false,
        grows: false,
        wide: false,
        depth: 3,
        seed: 17,
    };
    assert_eq!(id.to_string(), "store.seal/n3/s17");
    let filled = StoreRunId { filled: true, ..id };
    assert_eq!(filled.to_string(), "store.seal.filled/n3/s17");
    assert_eq!(filled.to_string().parse(), Ok(filled));
    let grows = StoreRunId {
        grows: true,
        ..filled
    };
    assert_eq!(grows.to_string(), "store.seal.filled.grows/n3/s17");
    assert_eq!(grows.to_string().parse(), Ok(grows));
    let encrypted = StoreRunId {
        encrypted: true,
        ..filled
    };
    let text = encrypted.to_string();
    assert_eq!(text, "store.seal.filled.encrypted/n3/s17");
    assert_eq!(text.parse::<StoreRunId>().is_ok(), ENCRYPTS);
    for text in [
        "",
        "store.seal.filled.filled/n3/s1",
        "store.seal.filled.syncs/n3/s1",
        "seal",
        "store.seal",
        "store.seal/n3",
        "store.seal/n3/s",
        "store.x/n3/s1",
    ] {
        assert!(text.parse::<StoreRunId>().is_err(), "{text}");
    }
    let tables = StoreRunId {
        subject: StoreSubject::Tables,
        lie: Lie::FreedPages,
        ..id
    };
    assert_eq!(tables.to_string(), "tables.seal.freed-pages/n3/s17");
    assert_eq!(tables.to_string().parse(), Ok(tables));
    for text in [
        "tables.scc/n3/s1",
        "tables.seal.grows/n3/s1",
        "tables.seal.filled.none/n3/s1",
        "store.seal.freed-pages/n3/s1",
        "store.seal.none/n3/s1",
        "store.seal/n3/s017",
        "store.seal/n3/s1/",
    ] {
        assert!(text.parse::<StoreRunId>().is_err(), "{text}");
    }
}

/// Regression: the horizon named as open a block that was full at the newest root and had no
/// durable summary. The restart did not read it, as the root had its pages; it took it for blank.
#[test]
fn a_block_that_a_restart_need_not_read_is_not_taken_for_blank() {
    for id in [
        "store.seal-r.filled/n3/s37162100769",
        "store.seal-r.filled/n3/s37162100773",
    ] {
        let tally = id.parse::<StoreRunId>().expect("a run id").run();
        assert_eq!(tally.first, None, "{id}");
    }
}

/// Regression: a cut tears a summary, the next opening rewrites it, and the next cut leaves the
/// first one intact. The campaign took that for the second one.
#[test]
fn a_torn_summary_that_is_whole_after_the_next_cut_is_seen_beside_the_chip() {
    for seed in [2_654_430_784_u64, 2_654_430_168] {
        let id: StoreRunId = format!("store.seal/n3/s{seed}").parse().expect("a run id");
        let tally = id.run_on_chip();
        assert!(tally.on_chip.older > 0, "{id}: {:?}", tally.on_chip);
        assert_eq!(tally.first, None, "{id}");
    }
}
