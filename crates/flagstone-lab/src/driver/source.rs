//! Where a driver's transactions come from.

use crate::tpcc::pages::{Pages, PagesError, Transaction};

/// Deals transactions to clients.
pub trait Source {
    /// The next transaction for a client, into `into`; `false` if there is none. With `roll_back`
    /// it has to end with a rollback.
    ///
    /// # Errors
    /// A database that cannot grow.
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError>;

    /// For an open loop: when a transaction arrives that is dealt after so many others from here
    /// on, in nanoseconds of the recording; nothing if there is none.
    fn arrival(&self, after: usize) -> Option<u64> {
        let _ = after;
        None
    }

    /// Whether the reads of a transaction are made together, as those of one request of a disk.
    fn reads_together(&self) -> bool {
        false
    }

    /// Pages of the database that it needs, where that is known.
    fn pages(&self) -> u32 {
        0
    }
}

impl<S: Source> Source for &mut S {
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError> {
        (**self).deal(client, roll_back, into)
    }

    fn arrival(&self, after: usize) -> Option<u64> {
        (**self).arrival(after)
    }

    fn reads_together(&self) -> bool {
        (**self).reads_together()
    }

    fn pages(&self) -> u32 {
        (**self).pages()
    }
}

impl Source for Pages {
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError> {
        Pages::deal(self, client, roll_back, into)?;
        Ok(true)
    }
}
