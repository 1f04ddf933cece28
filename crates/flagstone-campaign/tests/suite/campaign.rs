//! Power-cut campaigns in small: every protocol holds, and every control fails.

use flagstone::commit::{Kind, Mistake};
use flagstone_campaign::campaign::{
    Below, Campaign, Cuts, Detail, Faults, Findings, RunId, Sabotage, Subject, replay, tell,
};
use flagstone_host::Stack;
use flagstone_index::{self as index, IndexKind};

pub(crate) fn campaign(kind: Kind) -> Campaign {
    campaign_on(Subject::Protocol(kind))
}

pub(crate) fn campaign_on(subject: Subject) -> Campaign {
    Campaign {
        cuts: Cuts::Sampled(600),
        depth: 3,
        faults: Faults::ALL,
        seed: 11,
        ..Campaign::new(subject)
    }
}

fn run(campaign: &Campaign) -> Findings {
    campaign.run(&|_| {})
}

/// A few runs, and all of a campaign only if these find nothing: most mistakes show at once.
pub(crate) fn run_until_found(campaign: &Campaign) -> Findings {
    let all = Campaign {
        stop_early: true,
        ..campaign.clone()
    };
    let few = match campaign.cuts {
        Cuts::Sampled(cuts) => Cuts::Sampled(cuts.min(16)),
        cuts => cuts,
    };
    let findings = run(&Campaign {
        cuts: few,
        ..all.clone()
    });
    match findings.violations_total {
        0 if few != campaign.cuts => run(&all),
        _ => findings,
    }
}

/// A mistake made on purpose is found, by runs that hold without it.
pub(crate) fn finds(name: &str, campaign: &Campaign) -> Findings {
    let findings = run_until_found(campaign);
    assert!(findings.violations_total > 0, "{name} passes");
    let (without, first) = (findings.without_mistake, &findings.violations[0]);
    assert_eq!(without, 0, "{name} is not what is found: {first:?}");
    findings
}

/// The run id alone brings the first violation again.
pub(crate) fn comes_again(findings: &Findings) {
    let (id, what) = &findings.violations[0];
    let again = id.to_string().parse().expect("a run id");
    assert_eq!(replay(&again).1.as_ref(), Err(what), "{id}");
}

/// All atomic protocols in all their modes.
pub(crate) fn stacks() -> Vec<(Kind, Option<&'static str>)> {
    let atomic = Kind::ALL.iter().filter(|kind| kind.info().atomic);
    atomic
        .flat_map(|&kind| {
            let others = kind.info().modes.iter().skip(1).map(|mode| Some(mode.name));
            std::iter::once(None)
                .chain(others)
                .map(move |mode| (kind, mode))
        })
        .collect()
}

pub(crate) fn holds(campaign: &Campaign) -> Findings {
    let findings = run(campaign);
    if let Some((id, what)) = findings.violations.first() {
        panic!("{id}: {what}");
    }
    findings
}

#[test]
fn every_protocol_survives_three_cuts_in_a_row_with_every_fault() {
    for (kind, variant) in stacks() {
        let findings = holds(&Campaign {
            variant,
            ..campaign(kind)
        });
        assert!(
            findings.work.cuts >= 600,
            "{kind}: {} cuts",
            findings.work.cuts
        );
        // The campaign does what it is for: collection never rests, blocks are lost.
        assert!(
            findings.work.collections > 200,
            "{kind}: nothing was collected"
        );
        assert!(findings.work.retired > 20, "{kind}: no block was lost");
    }
}

/// One protocol of each family. `.ci/run` has all of them.
#[test]
fn a_protocol_of_each_family_survives_a_cut_at_every_operation() {
    use Kind::{Afc, Aw, GMixSl, LightTx, Scc, Seal};
    let chosen = [Afc, Aw, GMixSl, LightTx, Scc, Seal];
    let torn = Faults {
        torn: true,
        ..Faults::default()
    };
    let chosen = stacks()
        .into_iter()
        .filter(|(kind, _)| chosen.contains(kind));
    for stack in chosen {
        holds(&once(stack, Cuts::Exhaustive, torn));
    }
}

/// One cut a run.
fn once((kind, variant): (Kind, Option<&'static str>), cuts: Cuts, faults: Faults) -> Campaign {
    Campaign {
        variant,
        cuts,
        depth: 1,
        faults,
        ..campaign(kind)
    }
}

#[test]
fn pages_lost_beyond_ecc_are_reported_and_never_made_up() {
    let lost = Faults {
        bits_beyond: true,
        ..Faults::default()
    };
    for stack in stacks() {
        holds(&once(stack, Cuts::Sampled(400), lost));
    }
}

#[test]
fn errors_that_the_ecc_does_not_notice_are_reported_with_checksums_and_do_harm_without() {
    let silent = Faults {
        silent: true,
        ..Faults::default()
    };
    for (kind, variant) in stacks() {
        let checked = once((kind, variant), Cuts::Sampled(150), silent);
        holds(&checked);
        let found = run(&Campaign {
            sabotage: Sabotage::Unchecked,
            ..checked
        });
        assert!(found.violations_total > 0, "{kind} passes");
        assert_eq!(found.without_mistake, 0, "{kind}");
    }
}

/// What indexes are cut on: a device with transactions, and every recovery manager.
const BELOW: [Below; 5] = [
    Below::Protocol(Kind::LightTx),
    Below::Stack(Stack::Wal),
    Below::Stack(Stack::CfcEx),
    Below::Stack(Stack::AfcEx),
    Below::Stack(Stack::Force(Kind::Cfc)),
];

/// Every index on all that it can be on.
fn indexes() -> impl Iterator<Item = Subject> {
    let each = |&index| BELOW.map(|below| Subject::Index(index, below));
    IndexKind::ALL.iter().flat_map(each)
}

#[test]
fn every_index_is_whole_after_three_cuts_in_a_row_with_every_fault() {
    for subject in indexes() {
        let findings = holds(&Campaign {
            cuts: Cuts::Sampled(100),
            ..campaign_on(subject)
        });
        assert!(findings.work.cuts >= 100, "{subject}");
        assert!(findings.work.collections > 0, "{subject}");
    }
}

#[test]
fn indexes_on_a_control_or_on_a_flash_that_lies_fail() {
    for &index in IndexKind::ALL {
        let plain = Subject::Index(index, Below::Stack(Stack::Force(Kind::Plain)));
        let findings = run_until_found(&Campaign {
            cuts: Cuts::Sampled(1_000),
            depth: 1,
            ..campaign_on(plain)
        });
        assert!(findings.violations_total > 0, "{plain} holds");
    }
    for subject in indexes() {
        let findings = run_until_found(&Campaign {
            cuts: Cuts::Sampled(1_000),
            depth: 1,
            faults: Faults::default(),
            sabotage: Sabotage::SyncIgnored,
            ..campaign_on(subject)
        });
        assert!(
            findings.violations_total > 0,
            "{subject} holds on a lying flash"
        );
    }
}

const ROOM_NOT_KEPT: Sabotage = Sabotage::Index(index::Mistake::RoomNotKept);

/// Transactions continue after a full device has refused one of their requests.
#[test]
fn requests_that_a_full_device_refuses_change_nothing() {
    for (kind, mode) in stacks() {
        let campaign = Campaign {
            unusual: true,
            variant: mode,
            faults: Faults::default(),
            ..campaign(kind)
        };
        let work = holds(&campaign).work;
        // Their smallest devices have room for logs and tables, which these runs do not fill.
        let roomy = matches!(kind, Kind::Aw | Kind::MhlM | Kind::MhlD);
        assert_eq!(work.full > 20, !roomy, "{kind}: {} refused", work.full);
    }
}

#[test]
fn indexes_that_are_full_are_whole_after_two_cuts_in_a_row_with_every_fault() {
    let is_on_device = |subject: &Subject| matches!(subject, Subject::Index(_, Below::Protocol(_)));
    for subject in indexes().filter(is_on_device) {
        let full = Campaign {
            cuts: Cuts::Sampled(200),
            depth: 2,
            unusual: true,
            ..campaign_on(subject)
        };
        holds(&full);
        if subject.buffers() {
            let control = Campaign {
                cuts: Cuts::Sampled(2_000),
                faults: Faults::default(),
                sabotage: ROOM_NOT_KEPT,
                ..full
            };
            finds("room-not-kept", &control);
        }
    }
}

/// The others need more cuts: `.ci/run` has them.
#[test]
fn rules_of_seal_that_are_left_out_are_found() {
    let slow = [
        Mistake::CopiesNotWaited,
        Mistake::AwaitedResolved,
        Mistake::DecidedEarly,
        Mistake::CopiesCounted,
        Mistake::XidFromPages,
    ];
    for (mistake, name) in Mistake::ALL {
        if !slow.contains(&mistake) {
            let kind = if mistake.is_of_bounds() {
                Kind::SealR
            } else {
                Kind::Seal
            };
            finds(
                name,
                &Campaign {
                    cuts: Cuts::Sampled(20_000),
                    sabotage: Sabotage::Seal(mistake),
                    ..campaign(kind)
                },
            );
        }
    }
}

/// Collections that do not wait for each other's flags: found at cuts on the way of a run.
#[test]
fn a_flag_that_is_erased_before_another_one_is_durable_is_missed() {
    for stack in [Stack::CfcEx, Stack::AfcEx] {
        let name = "flag-in-flight";
        let campaign = Campaign {
            cuts: Cuts::Sampled(40_000),
            depth: 2,
            faults: Faults::default(),
            sabotage: Sabotage::by_name(name).expect("a name"),
            ..campaign_on(Subject::Stack(stack))
        };
        comes_again(&finds(name, &campaign));
    }
}

#[test]
fn an_index_that_loses_pages_says_so_and_makes_nothing_up() {
    for subject in indexes() {
        loses_pages_and_says_so(Campaign {
            cuts: Cuts::Sampled(60),
            depth: 1,
            ..campaign_on(subject)
        });
    }
}

/// Holds where pages are lost, and does not where the flash hides that.
fn loses_pages_and_says_so(campaign: Campaign) {
    let campaign = Campaign {
        faults: Faults {
            bits_beyond: true,
            ..Faults::default()
        },
        ..campaign
    };
    holds(&campaign);
    let lying = Campaign {
        sabotage: Sabotage::EccIgnored,
        cuts: Cuts::Sampled(3_000),
        ..campaign
    };
    let found = run_until_found(&lying).violations;
    assert!(!found.is_empty(), "{} passes", lying.subject);
}

#[test]
fn the_control_without_transactions_fails() {
    let findings = run(&Campaign {
        depth: 1,
        ..campaign(Kind::Plain)
    });
    assert!(findings.violations_total > 50);
}

#[test]
fn every_form_as_printed_loses_data_and_its_story_is_found() {
    for &kind in Kind::ALL
        .iter()
        .filter(|kind| kind.info().published.is_some())
    {
        let cuts = Cuts::Sampled(200_000);
        let faults = Faults {
            torn: true,
            ..Faults::default()
        };
        let campaign = Campaign {
            published: true,
            cuts,
            faults,
            depth: 2,
            ..campaign(kind)
        };
        let findings = run_until_found(&campaign);
        assert!(
            findings.violations_total > 0,
            "{kind} as printed: nothing found"
        );
        comes_again(&findings);
    }
}

fn atomic_stacks() -> impl Iterator<Item = Stack> {
    let all = Stack::all().into_iter();
    all.filter(|&stack| Subject::Stack(stack).is_atomic())
}

#[test]
fn every_stack_survives_three_cuts_in_a_row_with_every_fault() {
    for stack in atomic_stacks() {
        let subject = Subject::Stack(stack);
        let work = holds(&campaign_on(subject)).work;
        assert!(work.collections > 200, "{stack}: nothing was collected");
        assert!(work.retired > 20, "{stack}: no block was lost");
        // A database writes while it recovers.
        let writes = !matches!(stack, Stack::Force(_));
        assert_eq!(work.cuts_in_recovery > 20, writes, "{stack}");
    }
}

#[test]
fn a_database_on_a_device_without_transactions_or_that_lies_fails() {
    let plain = Subject::Stack(Stack::Force(Kind::Plain));
    assert!(run(&campaign_on(plain)).violations_total > 50);
    for stack in Stack::all() {
        let campaign = Campaign {
            cuts: Cuts::Sampled(20_000),
            depth: 2,
            faults: Faults::default(),
            sabotage: Sabotage::SyncIgnored,
            ..campaign_on(Subject::Stack(stack))
        };
        let found = run_until_found(&campaign).violations_total;
        assert!(found > 0, "{stack} does not notice");
    }
}

#[test]
fn a_database_that_loses_pages_says_so_and_makes_nothing_up() {
    for stack in atomic_stacks() {
        loses_pages_and_says_so(Campaign {
            cuts: Cuts::Sampled(250),
            ..campaign_on(Subject::Stack(stack))
        });
    }
}

#[test]
fn a_violation_shrinks_to_a_shorter_story() {
    let campaign = campaign(Kind::Plain);
    let lines = |id| {
        let (story, violated) = tell(id, Detail::default());
        assert!(violated, "{id} holds");
        let text = flagstone_campaign::explain::text(&story);
        assert!(text.lines().any(|line| line.starts_with("VIOLATED: ")));
        text.lines().count()
    };
    let violations = run(&campaign).violations;
    let longest = violations
        .iter()
        .map(|(id, _)| id)
        .max_by_key(|id| lines(id));
    let longest = longest.expect("a control fails");
    let (before, after) = (lines(longest), lines(&campaign.shrink(longest)));
    assert!(after < before, "{after} lines, {before} before");
}

#[test]
fn every_lie_of_the_flash_is_noticed() {
    let lies = [
        (Sabotage::SyncIgnored, "none"),
        (Sabotage::EccIgnored, "torn"),
        (Sabotage::BlankNotErased, "torn"),
        (Sabotage::ProgramFailureHidden, "program-failure"),
        (Sabotage::EraseFailureHidden, "erase-failure"),
        (Sabotage::BitErrorsSilent, "none"),
    ];
    for kind in [Kind::Aw, Kind::LightTx] {
        for (sabotage, faults) in lies {
            let known = Faults::NAMES.iter().find(|(name, _)| *name == faults);
            let faults = known.expect("a fault by this name").1;
            let cuts = Cuts::Sampled(20_000);
            let campaign = Campaign {
                cuts,
                depth: 2,
                faults,
                sabotage,
                ..campaign(kind)
            };
            finds(&format!("{sabotage:?} on {kind}"), &campaign);
        }
    }
}

#[test]
fn a_campaign_finds_the_same_on_one_thread_and_on_two() {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            run(&Campaign {
                depth: 2,
                ..campaign(Kind::Plain)
            })
        })
    };
    assert_eq!(on(1), on(2));
}

/// The run of docs/power-loss.md that loses an acknowledged commit.
const PAIRED: &str = "seal.pairs-ignored/g0/b0/w1x2/f64/s3040/n2/o2-a0-n/o0-ac-n";

#[test]
fn a_story_ends_with_why_and_leaves_out_what_it_is_not_about() {
    let id: RunId = PAIRED.parse().unwrap();
    let (story, violated) = tell(&id, Detail::default());
    assert!(violated);
    let ending = &story.panes[0].ending;
    let says = |what: &str| ending.why.iter().any(|why| why.contains(what));
    assert!(
        says("an acknowledged commit must be there"),
        "{:?}",
        ending.why
    );
    assert!(says("pairs-ignored"), "the mistake on purpose is named");
    let detail = Detail {
        reads: true,
        everything: true,
    };
    let (whole, _) = tell(&id, detail);
    assert!(whole.panes[0].steps.len() > story.panes[0].steps.len());
    let folded = |story: &flagstone_campaign::explain::Story| {
        let steps = story.panes[0].steps.iter();
        steps.filter_map(|step| step.folded).sum::<u32>()
    };
    assert!(folded(&story) > 0);
    assert_eq!(folded(&whole), 0);
    // Without the mistake the same run holds, and says so.
    let right: RunId = PAIRED.replace(".pairs-ignored", "").parse().unwrap();
    let (story, violated) = tell(&right, Detail::default());
    assert!(!violated && story.panes[0].ending.good);
    assert!(story.panes[0].ending.text.starts_with("holds"));
}
