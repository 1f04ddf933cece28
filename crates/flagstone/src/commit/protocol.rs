//! What a commit protocol does for the device and for the collector.

use super::{Found, Ruling, Table, Taken, Way, Write};
use crate::ftl::{Ftl, FtlError, Owner};
use crate::units::{Lpn, Nanos, TxId};

#[cfg(doc)]
use super::{Device, Info, Kind, Options};
#[cfg(doc)]
use crate::ftl::Mounted;

/// A commit protocol.
///
/// `examples/own_protocol.rs` has a protocol outside of this crate, in a hundred lines, and cuts
/// the power under it. [`Device::open_with`] runs it. Databases (`flagstone-host`) and the
/// campaigns of the command line support only the protocols of [`Kind`].
///
/// Before [`Device`] calls any of these methods, it has validated the arguments, made room for a
/// few pages, and enforced the isolation that the protocol supports.
///
/// A protocol without transactions: each write counts as soon as it is durable.
///
/// ```
/// use flagstone::commit::{Found, Info, Protocol, Recovered, Taken, Write};
/// use flagstone::ftl::{Ftl, FtlError, Mounted, Owner, Slot, Stream};
/// use flagstone::prelude::*;
///
/// #[derive(Clone)]
/// struct Direct;
///
/// type Done<T> = Result<T, FtlError>;
///
/// impl Protocol for Direct {
///     fn write(&mut self, ftl: &mut Ftl, now: Nanos, _: TxId, write: Write<'_>) -> Done<Taken> {
///         let (kind, bytes) = (write.content.kind(), write.content.bytes());
///         let (to, page) = ((Stream::Host, None), (kind, write.at, None));
///         let written = ftl.append(now, to, page, &[], bytes, write.cause)?;
///         let durable = ftl.sync(now, written.done)?;
///         if let Some(old) = ftl.set_slot(write.at, Slot::of(kind, written.at)).ppn() {
///             ftl.kill(old);
///         }
///         Ok(Taken::new(durable, written.done))
///     }
///
///     fn find(&self, ftl: &Ftl, _: Option<TxId>, at: Lpn) -> Found<'_> {
///         ftl.slot(at).into()
///     }
///
///     fn commit(&mut self, _: &mut Ftl, now: Nanos, _: TxId) -> Done<Option<Nanos>> {
///         Ok(Some(now))
///     }
///
///     fn abort(&mut self, _: &mut Ftl, now: Nanos, _: TxId) -> Done<Nanos> {
///         Ok(now) // What was written stays.
///     }
///
///     fn memory(&self) -> Vec<(&'static str, u64)> {
///         Vec::new()
///     }
/// }
///
/// impl Owner for Direct {}
///
/// static INFO: Info = Info::new("direct", "each write counts at once");
/// let recover = |ftl: &mut Ftl, mounted: Mounted| {
///     // Enough for a blank device.
///     ftl.finish_mount();
///     Ok(Recovered::new(Box::new(Direct), TxId(0), mounted.done))
/// };
/// let (chip, config) = (Box::new(Chip::default()), Config::default());
/// let options = Options::default();
/// let mut device = Device::open_with(chip, &INFO, recover, config, &options, Nanos::ZERO)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// let now = device.write(Nanos::ZERO, tx, Lpn(3), b"three")?.next;
/// let now = device.abort(now, tx)?;
/// assert_eq!(device.read(now, None, Lpn(3))?.1, Some(&b"three"[..]));
/// # Ok::<(), DeviceError>(())
/// ```
pub trait Protocol: Owner + Duplicate {
    /// Maximum number of live transactions on this device, if it is below that of [`Info`].
    fn live_max(&self) -> Option<u32> {
        None
    }

    /// Whether, once a commit has returned, the mapping table refers to the committed version of
    /// each page and to nothing else. Then a snapshot of the table is one of the device.
    fn allows_snapshots(&self) -> bool {
        false
    }

    /// Number of versions on flash written by live transactions, as far as the protocol knows.
    fn uncommitted(&self) -> u64 {
        0
    }

    /// Minimum number of a transaction's trims that fit into one page.
    fn trims_a_page(&self, _ftl: &Ftl) -> u64 {
        1
    }

    /// Makes everything durable that the tables of a device at rest rely on, and returns the
    /// protocol's own tables, which are appended to those of [`Ftl::rest`]. Recovery takes them
    /// from [`Mounted::rest`]. `None` if not supported.
    ///
    /// # Errors
    /// The power fails.
    fn rest(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<Vec<u8>>, FtlError> {
        let _ = (ftl, now);
        Ok(None)
    }

    /// Called before the device moves or programs anything: gives blocks their summaries that a
    /// restart has found without one, if that is possible at once.
    ///
    /// # Errors
    /// The power fails.
    fn settle(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let _ = (ftl, now);
        Ok(())
    }

    /// Called before the device is closed: gives every block its summary, if the protocol supports
    /// it. Returns the number of the last program if every block has one.
    ///
    /// # Errors
    /// The power fails.
    fn end_blocks(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<u64>, FtlError> {
        let _ = (ftl, now);
        Ok(None)
    }

    /// Called when the device has grown: extends tables with an entry per page.
    fn grown(&mut self, ftl: &Ftl) {
        let _ = ftl;
    }

    /// Begins a transaction.
    fn begin(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<(), FtlError> {
        let _ = (ftl, now, tx);
        Ok(())
    }

    /// Declares that a transaction is one write outside of transactions, before that write. Called
    /// only if [`Info::outside`] says so.
    fn outside(&mut self, tx: TxId) {
        let _ = tx;
    }

    /// The work that the device must do before a transaction writes or commits. Called again after
    /// each piece of work; `round` counts from 0. A protocol does not start the collector itself,
    /// except MixSL when it restarts a full log.
    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        let _ = (ftl, now, tx, round);
        Ok(None)
    }

    /// Writes a page in a transaction.
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError>;

    /// Finds a page: the version of `tx` if it wrote one, otherwise the last committed version.
    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_>;

    /// Commits a transaction. Returns when the commit is durable, or `None` if it waits for other
    /// transactions. [`Protocol::acknowledge`] reports it later.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError>;

    /// Rolls a transaction back. Returns when the device has finished.
    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError>;

    /// Returns waiting commits that became durable since the last call, each with its time. `flush`
    /// commits all waiting transactions.
    fn acknowledge(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        let _ = (ftl, now, flush);
        Ok(Vec::new())
    }

    /// When waiting commits stop waiting.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Memory of each structure in bytes, without mapping and block tables.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Its tables in memory, for display; empty if there is nothing to show.
    fn tables(&self, ftl: &Ftl) -> Vec<Table> {
        let _ = ftl;
        Vec::new()
    }

    /// Checks the protocol's invariants. For tests and campaigns.
    ///
    /// # Errors
    /// Names the invariant that is violated.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let _ = ftl;
        Ok(())
    }
}

/// A protocol that can be copied with its tables, so that a device that was filled once serves
/// several runs.
///
/// A protocol that is `Clone` has this. Example: [`Protocol`].
pub trait Duplicate {
    /// The copy.
    fn duplicate(&self) -> Box<dyn Protocol>;
}

impl<T: Protocol + Clone + 'static> Duplicate for T {
    fn duplicate(&self) -> Box<dyn Protocol> {
        Box::new(self.clone())
    }
}

/// A protocol recovered from flash.
///
/// Example: [`Protocol`].
#[non_exhaustive]
pub struct Recovered {
    /// The protocol, ready for work.
    pub protocol: Box<dyn Protocol>,
    /// The highest transaction identifier on the flash. Identifiers up to it are not used again.
    pub last_tx: TxId,
    /// When recovery ended.
    pub done: Nanos,
    /// What recovery decided and why, if [`Options::tells`] is set.
    pub rulings: Vec<Ruling>,
}

impl Recovered {
    /// Creates the result of a recovery.
    pub fn new(protocol: Box<dyn Protocol>, last_tx: TxId, done: Nanos) -> Recovered {
        Recovered {
            protocol,
            last_tx,
            done,
            rulings: Vec::new(),
        }
    }
}
