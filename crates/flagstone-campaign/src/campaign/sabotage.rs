//! The controls of a campaign: lying devices, and mistakes in collection and recovery. On each such
//! device every protocol must fail; otherwise the campaign would miss real faults of that kind.

use super::scene::Stack as Stacked;
use super::{Below, Subject};
use flagstone::commit::{Kind, Mistake};
use flagstone::forward_flash;
use flagstone::mistakes::{COMPILED, Mistaken};
use flagstone::nand::{Flash, FlashError, Read};
use flagstone::units::{Nanos, Pbn, Ppn};
use flagstone_host::{self as host, Stack};
use flagstone_index as index;

/// A lie of the flash, or a mistake above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// A sync returns without waiting for durability.
    SyncIgnored,
    /// A torn or damaged page reads as if its ECC were valid.
    EccIgnored,
    /// A failed program is reported as done.
    ProgramFailureHidden,
    /// A failed erase is reported as done.
    EraseFailureHidden,
    /// A block that looks blank is not erased again.
    BlankNotErased,
    /// Uncorrected bit errors reach the reader without an error.
    BitErrorsSilent,
    /// The flash is honest, but the device lacks the checksums that it needs.
    Unchecked,
    /// The flash is honest, but the device ignores pages that share cells.
    PairsIgnored,
    /// The flash is honest, but the device never refreshes a page.
    Unscrubbed,
    /// The flash is honest, but transactions of a buffering index make a mistake.
    Index(index::Mistake),
    /// The flash is honest, but the database makes a mistake.
    Host(host::Mistake),
    /// The flash is honest, but SEAL omits a rule.
    Seal(Mistake),
}

impl Sabotage {
    /// All lies and mistakes that this build can make, with their command names.
    pub fn all() -> impl Iterator<Item = (Sabotage, &'static str)> + Clone {
        let of_host = host::Mistake::ALL.map(|(mistake, name)| (Sabotage::Host(mistake), name));
        let of_index = index::Mistake::ALL.map(|(mistake, name)| (Sabotage::Index(mistake), name));
        let rules = Mistake::ALL.map(|(mistake, name)| (Sabotage::Seal(mistake), name));
        let others = Sabotage::OTHERS.into_iter().chain(of_index);
        let all = others.chain(of_host).chain(rules);
        all.filter(|(sabotage, _)| COMPILED || !sabotage.is_mistake())
    }

    /// Whether it is a mistake of our own code, which is compiled only with the feature `mistakes`.
    fn is_mistake(self) -> bool {
        matches!(
            self,
            Sabotage::Index(_) | Sabotage::Host(_) | Sabotage::Seal(_)
        )
    }

    /// Sabotage other than mistakes of an index, a database, or SEAL.
    const OTHERS: [(Sabotage, &'static str); 10] = [
        (Sabotage::None, "none"),
        (Sabotage::SyncIgnored, "sync-ignored"),
        (Sabotage::EccIgnored, "ecc-ignored"),
        (Sabotage::ProgramFailureHidden, "program-failure-hidden"),
        (Sabotage::EraseFailureHidden, "erase-failure-hidden"),
        (Sabotage::BlankNotErased, "blank-not-erased"),
        (Sabotage::BitErrorsSilent, "bit-errors-silent"),
        (Sabotage::Unchecked, "unchecked"),
        (Sabotage::PairsIgnored, "pairs-ignored"),
        (Sabotage::Unscrubbed, "unscrubbed"),
    ];

    /// The lie or mistake with this command name.
    pub fn by_name(name: &str) -> Option<Sabotage> {
        let mut all = Sabotage::all();
        all.find(|&(_, other)| other == name)
            .map(|(sabotage, _)| sabotage)
    }

    /// The command name.
    pub fn name(self) -> &'static str {
        let mut all = Sabotage::all();
        all.find(|&(sabotage, _)| sabotage == self)
            .expect("all are named")
            .1
    }

    /// Whether it applies to a subject.
    pub fn suits(self, subject: Subject) -> bool {
        match self {
            Sabotage::Index(_) => subject.buffers(),
            Sabotage::Host(mistake) => match subject.below() {
                Below::Stack(stack) => mistake.is_of(stack),
                Below::Protocol(_) => false,
            },
            Sabotage::Seal(mistake) => match subject.protocol() {
                Some(Kind::Seal) => !mistake.is_of_bounds(),
                Some(Kind::SealR) => true,
                _ => false,
            },
            _ => true,
        }
    }

    /// Describes the subjects to which it applies.
    pub fn wants(self) -> &'static str {
        match self {
            Sabotage::Index(_) => "indexes with buffers: use --index lazy-bptree, bw-delta or sal",
            Sabotage::Host(host::Mistake::EarlyAcknowledgement) => "databases: name a --stack",
            Sabotage::Host(mistake) if mistake.is_of(Stack::Wal) => "WAL: use --stack wal",
            Sabotage::Host(mistake) if mistake.is_of(Stack::AfcEx) => {
                "CFC_ex or AFC_ex: use --stack cfc-ex or afc-ex"
            }
            Sabotage::Host(_) => "CFC_ex: use --stack cfc-ex",
            Sabotage::Seal(_) => "SEAL: use --protocol seal-r or seal",
            _ => "anything",
        }
    }

    /// The mistake of the database.
    pub(super) fn of_host(self) -> Mistaken<host::Mistake> {
        let made = match self {
            Sabotage::Host(mistake) => Some(mistake),
            _ => None,
        };
        crate::made(made)
    }

    /// The rule that SEAL omits.
    pub(super) fn of_protocol(self) -> Mistaken<Mistake> {
        let made = match self {
            Sabotage::Seal(mistake) => Some(mistake),
            _ => None,
        };
        crate::made(made)
    }

    /// The mistake of the index.
    pub(super) fn of_index(self) -> Mistaken<index::Mistake> {
        let made = match self {
            Sabotage::Index(mistake) => Some(mistake),
            _ => None,
        };
        crate::made(made)
    }
}

/// A lying flash.
pub(super) struct Sabotaged {
    inner: Stacked,
    how: Sabotage,
}

impl Sabotaged {
    pub(super) fn new(inner: Stacked, how: Sabotage) -> Self {
        Sabotaged { inner, how }
    }

    /// Whether all pages of a block read as blank.
    fn looks_blank(&self, block: Pbn) -> bool {
        let geometry = *self.inner.geometry();
        self.inner.look(|aging| {
            let chip = aging.inner().inner().chip();
            (0..geometry.pages_per_block).all(|page| {
                let at = geometry.page(block, page);
                !chip.is_programmed(at) && chip.peek_spare(at).iter().all(|&b| b == 0xff)
            })
        })
    }
}

impl Flash for Sabotaged {
    forward_flash!([inner] but read program erase sync);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.inner.read(now, at, data, spare);
        match (self.how, read) {
            // The spare area as it is, and no data.
            (Sabotage::EccIgnored, Err(FlashError::Uncorrectable { done, .. })) => {
                self.inner.look(|aging| {
                    let chip = aging.inner().inner().chip();
                    spare.copy_from_slice(&chip.peek_spare(at)[..spare.len()]);
                });
                Ok(Read {
                    done,
                    data_bytes: 0,
                    corrected: 0,
                })
            }
            // One bit of every fifth page is wrong.
            (Sabotage::BitErrorsSilent, Ok(read)) if at.0 % 5 == 3 => {
                if let Some(byte) = data[..read.data_bytes].last_mut() {
                    *byte ^= 0x40;
                }
                Ok(read)
            }
            (_, read) => read,
        }
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        match self.inner.program(now, at, data, spare) {
            Err(FlashError::ProgramFailed { done, .. })
                if self.how == Sabotage::ProgramFailureHidden =>
            {
                Ok(done)
            }
            other => other,
        }
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        if self.how == Sabotage::BlankNotErased && self.looks_blank(block) {
            return Ok(now);
        }
        match self.inner.erase(now, block) {
            Err(FlashError::EraseFailed { done, .. })
                if self.how == Sabotage::EraseFailureHidden =>
            {
                Ok(done)
            }
            other => other,
        }
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        match self.how {
            Sabotage::SyncIgnored => Ok(now),
            _ => self.inner.sync(now, until),
        }
    }
}
