//! Long campaigns: many chunks over subjects and seeds. Each chunk's result is saved in its own
//! file, so that a campaign can be stopped at any time and resumed.
//!
//! ```text
//! DIR/plan.json       what the chunks have in common, and the version of the code
//! DIR/000042.json     what chunk 42 did and found
//! ```
//!
//! Chunk `n` of a campaign with `k` subjects tests subject `n` modulo `k`, with the campaign's seed
//! plus `n` divided by `k`. So all subjects progress equally, and the campaign can be extended.
//! Runs of a database take longer than those of a protocol, and runs of an index longer still.
//! Their chunks have fewer cuts, so that all chunks take about the same time.

use super::{Campaign, Cuts, Faults, Findings, Sabotage, Subject, Work};
use flagstone_lab::output::{Output, OutputError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Power cuts per chunk of a protocol: a few seconds of work, which is lost when the campaign is
/// stopped.
pub const CHUNK_CUTS: u64 = 30_000;
/// The cost of a cut of a database and of an index, in cuts of a protocol.
const DATABASE_COSTS: u64 = 3;
const INDEX_COSTS: u64 = 15;

/// The task of a long campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongCampaign {
    /// The subjects, each with one of its modes or the default.
    pub subjects: Vec<(Subject, Option<&'static str>)>,
    /// Minimum total number of power cuts; a campaign with fewer continues.
    pub cuts: u64,
    /// Power cuts per chunk of a protocol.
    pub chunk_cuts: u64,
    /// Power cuts per run, in sequence.
    pub depth: u32,
    /// Faults other than cuts.
    pub faults: Faults,
    /// The first seed.
    pub seed: u64,
    /// A deliberate mistake, for controls only.
    pub sabotage: Sabotage,
}

/// A violation found by a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counterexample {
    /// The violated run.
    pub run_id: String,
    /// What is wrong.
    pub what: String,
}

/// Counts and findings of one chunk, or of all chunks of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// The subject.
    pub subject: String,
    /// Runs executed.
    pub runs: u64,
    /// Power cuts that occurred.
    pub cuts: u64,
    /// Cuts during recovery.
    pub cuts_in_recovery: u64,
    /// Recoveries that were checked.
    pub recoveries: u64,
    /// Flash operations issued.
    pub flash_operations: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Runs that ended in a violation.
    pub violations: u64,
    /// The first few violations.
    pub first: Vec<Counterexample>,
}

/// Settings shared by all chunks of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PlanFile {
    /// A fingerprint of the sources.
    version: String,
    subjects: Vec<String>,
    chunk_cuts: u64,
    depth: u32,
    faults: Vec<String>,
    seed: u64,
    sabotage: String,
}

/// Why a long campaign cannot continue.
#[derive(Debug, Error)]
pub enum LongError {
    /// The folder is unusable.
    #[error("{}: {why}", path.display())]
    Folder {
        /// The folder or a file in it.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A file of the record is damaged.
    #[error("{} is not a record of a campaign ({why}); remove it to repeat its chunk",
        path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The folder holds the record of another campaign.
    #[error("{} holds a campaign with another {what}; use another folder, or remove this one",
        path.display())]
    Another {
        /// The folder.
        path: PathBuf,
        /// The setting that differs.
        what: &'static str,
    },
    /// A result could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Tally {
    /// The counts and findings of a chunk.
    fn of(subject: String, findings: &Findings) -> Tally {
        let Work {
            cuts,
            cuts_in_recovery,
            recoveries,
            operations,
            collections,
            ..
        } = findings.work;
        let first = findings.violations.iter().map(|(id, what)| Counterexample {
            run_id: id.to_string(),
            what: what.clone(),
        });
        Tally {
            subject,
            runs: findings.runs,
            cuts,
            cuts_in_recovery,
            recoveries,
            flash_operations: operations,
            collections,
            violations: findings.violations_total,
            first: first.collect(),
        }
    }

    /// Adds other counts and findings.
    pub fn add(&mut self, other: Tally) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.recoveries += other.recoveries;
        self.flash_operations += other.flash_operations;
        self.collections += other.collections;
        self.violations += other.violations;
        self.first.extend(other.first);
    }
}

impl LongCampaign {
    /// The subject with an index in `subjects`, and its mode.
    fn name(&self, index: usize) -> String {
        match self.subjects[index] {
            (subject, Some(variant)) => format!("{subject}.{variant}"),
            (subject, None) => subject.to_string(),
        }
    }

    /// The settings that all chunks share.
    fn settings(&self) -> PlanFile {
        let all = Faults::NAMES.iter();
        let faults = all.filter(|(_, one)| *one != Faults::default() && self.faults.has(*one));
        PlanFile {
            version: env!("FLAGSTONE_MODEL").into(),
            subjects: (0..self.subjects.len()).map(|at| self.name(at)).collect(),
            chunk_cuts: self.chunk_cuts,
            depth: self.depth,
            faults: faults.map(|(name, _)| (*name).into()).collect(),
            seed: self.seed,
            sabotage: format!("{:?}", self.sabotage),
        }
    }

    /// The index of a chunk's subject, its minimum number of cuts, and its campaign.
    fn campaign(&self, chunk: u64) -> (usize, u64, Campaign) {
        let subjects = self.subjects.len() as u64;
        let index = (chunk % subjects) as usize;
        let (subject, variant) = self.subjects[index];
        let costs = match subject {
            Subject::Protocol(_) => 1,
            Subject::Stack(_) => DATABASE_COSTS,
            Subject::Index(..) => INDEX_COSTS,
        };
        let cuts = self.chunk_cuts.div_ceil(costs);
        let campaign = Campaign {
            variant,
            cuts: Cuts::Sampled(cuts),
            depth: self.depth,
            faults: self.faults,
            seed: self.seed.wrapping_add(chunk / subjects),
            sabotage: self.sabotage,
            ..Campaign::new(subject)
        };
        (index, cuts, campaign)
    }

    /// Executes the chunks that the record in a folder, which may be new, still lacks. Returns one
    /// result per subject for all chunks. `progress` receives the number of cuts, including those
    /// already in the record.
    ///
    /// # Errors
    /// [`LongError`]. Finished chunks are kept.
    pub fn run(
        &self,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Tally>, LongError> {
        self.open(folder)?;
        let subjects = 0..self.subjects.len();
        let mut all: Vec<Tally> = subjects
            .map(|index| Tally {
                subject: self.name(index),
                ..Tally::default()
            })
            .collect();
        let (mut chunk, mut drawn) = (0, 0);
        while drawn < self.cuts {
            let path = folder.join(format!("{chunk:06}.json"));
            let (index, cuts, campaign) = self.campaign(chunk);
            (chunk, drawn) = (chunk + 1, drawn + cuts);
            let record = match read(&path)? {
                Some(record) => {
                    progress(cuts);
                    record
                }
                None => {
                    let record = Tally::of(self.name(index), &campaign.run(progress));
                    write(&path, &record)?;
                    record
                }
            };
            all[index].add(record);
        }
        Ok(all)
    }

    /// Creates the folder of a new campaign, or checks that it belongs to this one.
    fn open(&self, folder: &Path) -> Result<(), LongError> {
        fs::create_dir_all(folder).map_err(|why| LongError::Folder {
            path: folder.into(),
            why,
        })?;
        let path = folder.join("plan.json");
        let ours = self.settings();
        let Some(theirs) = read::<PlanFile>(&path)? else {
            return write(&path, &ours);
        };
        let differs = [
            (theirs.version != ours.version, "version of the code"),
            (theirs.subjects != ours.subjects, "list of subjects"),
            (theirs.depth != ours.depth, "depth"),
            (theirs.faults != ours.faults, "list of faults"),
            (theirs.seed != ours.seed, "seed"),
            (theirs.sabotage != ours.sabotage, "sabotage"),
            (theirs.chunk_cuts != ours.chunk_cuts, "size of chunks"),
        ];
        match differs.iter().find(|(differs, _)| *differs) {
            Some(&(_, what)) => Err(LongError::Another {
                path: folder.into(),
                what,
            }),
            None => Ok(()),
        }
    }
}

/// Reads a file of the record, if it exists.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, LongError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => {
            let path = path.into();
            return Err(LongError::Folder { path, why });
        }
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| LongError::Damaged {
        path: path.into(),
        why: error.to_string(),
    })
}

/// Writes a file of the record atomically.
fn write(path: &Path, what: &impl Serialize) -> Result<(), LongError> {
    let text = serde_json::to_vec_pretty(what).expect("records are JSON");
    Ok(Output::new(path, &[])?.write(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::Kind;
    use flagstone_host::Stack;

    fn campaign(cuts: u64) -> LongCampaign {
        LongCampaign {
            subjects: vec![
                (Subject::Protocol(Kind::by_name("scc").unwrap()), None),
                (Subject::Stack(Stack::CfcEx), None),
            ],
            cuts,
            chunk_cuts: 60,
            depth: 3,
            faults: Faults::default(),
            seed: 7,
            sabotage: Sabotage::None,
        }
    }

    #[test]
    fn a_campaign_that_was_stopped_goes_on_and_ends_as_one_that_was_not() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let whole = campaign(400).run(one.path(), &|_| ()).expect("it runs");
        campaign(70).run(two.path(), &|_| ()).expect("it begins");
        let kept = |name: &str| two.path().join(name).exists();
        assert!(kept("000001.json") && !kept("000002.json"));
        let resumed = campaign(400).run(two.path(), &|_| ()).expect("it goes on");
        assert_eq!(whole, resumed);
        assert!(whole.iter().all(|record| record.cuts >= 60));
        assert!(whole.iter().all(|record| record.violations == 0));
    }

    #[test]
    fn what_is_kept_is_of_this_campaign_and_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let small = campaign(60);
        small.run(folder.path(), &|_| ()).expect("it runs");
        let other = LongCampaign {
            seed: 8,
            ..campaign(60)
        };
        let refused = other.run(folder.path(), &|_| ()).expect_err("another seed");
        assert!(refused.to_string().contains("another seed"), "{refused}");
        let chunk = folder.path().join("000000.json");
        let text = fs::read(&chunk).expect("it is there");
        fs::write(&chunk, &text[..text.len() / 2]).expect("it is cut short");
        let refused = small.run(folder.path(), &|_| ()).expect_err("half a file");
        assert!(refused.to_string().contains("000000.json"), "{refused}");
        fs::remove_file(&chunk).expect("it can be removed");
        small.run(folder.path(), &|_| ()).expect("it is made anew");
        assert_eq!(fs::read(&chunk).expect("it is there"), text);
    }

    /// Control: violations are saved, and counted again when the campaign resumes.
    #[test]
    fn violations_stay_in_the_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let lying = LongCampaign {
            sabotage: Sabotage::SyncIgnored,
            ..campaign(600)
        };
        let found = lying.run(folder.path(), &|_| ()).expect("it runs");
        assert!(found.iter().any(|record| record.violations > 0));
        let again = lying.run(folder.path(), &|_| ()).expect("it is there");
        assert_eq!(found, again);
        let first = found.iter().find_map(|record| record.first.first());
        let id = first
            .expect("a violation")
            .run_id
            .parse()
            .expect("a run id");
        assert!(super::super::replay(&id).1.is_err());
    }
}
