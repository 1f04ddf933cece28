//! The report of a run: flash operations, requests to the device in between, decisions of restarts,
//! and the verdict.

use super::Below;
use super::bases::Base;
use super::run::execute;
use super::run_id::RunId;
use super::sabotage::Sabotage;
use super::scene::Scene;
use crate::explain::{Remark, Story, Tale, Told, What, image};
use flagstone::commit::{Kind, RecordKind};
use flagstone_host::Stack;

/// The level of detail of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Detail {
    /// Include page reads.
    pub reads: bool,
    /// Include what is unrelated to the violation.
    pub everything: bool,
}

/// Repeats a run and reports it. Also returns whether it ended in a violation. If aging the device
/// already ended in one, reports that instead.
pub fn tell(id: &RunId, detail: Detail) -> (Story, bool) {
    let tale = Tale::default();
    let telling = Some(tale.clone());
    let mut base = Base::make(&id.base, &None);
    if base.is_err() {
        base = Base::make(&id.base, &telling);
    }
    if let Ok(base) = &base {
        tale.remark(Remark::Image(image(&base.chip)));
        tale.remark(Remark::Begins);
    }
    let (_, result) = execute(id, &base, &telling);
    let geometry = match &base {
        Ok(base) => base.scene.geometry,
        Err(_) => Scene::new(&id.base).map_or_else(|_| Default::default(), |scene| scene.geometry),
    };
    let violated = result.is_err();
    let told = Told {
        run_id: id.to_string(),
        what: what(id),
        geometry,
        tale: &tale,
        violation: result.err(),
        published: id.base.published,
        sabotage: (id.base.sabotage != Sabotage::None).then(|| id.base.sabotage.name()),
        with_reads: detail.reads,
        whole: detail.everything,
    };
    (told.story(), violated)
}

/// The protocol that writes the spare areas.
fn what(id: &RunId) -> What {
    match id.base.subject.below() {
        Below::Protocol(kind) | Below::Stack(Stack::Force(kind)) => What::Pages(kind),
        Below::Stack(Stack::Wal) => What::Pages(Kind::Plain),
        Below::Stack(Stack::CfcEx) => What::Records(RecordKind::CfcEx),
        Below::Stack(Stack::AfcEx) => What::Records(RecordKind::AfcEx),
    }
}
