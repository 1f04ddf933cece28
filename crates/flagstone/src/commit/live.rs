//! The live transactions of a device, in the order of their begin. Usually a single one. Entries
//! are reused, so that new transactions allocate nothing.

use crate::units::{Lpn, TxId};

/// State of a live transaction in the device.
#[derive(Debug, Clone)]
pub(super) struct Live {
    tx: TxId,
    /// Pages that the transaction has written, if the protocol needs them.
    pub(super) pages: Vec<Lpn>,
    pub(super) committing: bool,
}

/// Live transactions, by ascending identifier.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveTable {
    list: Vec<Live>,
    emptied: Vec<Vec<Lpn>>,
}

impl LiveTable {
    #[inline]
    fn place(&self, tx: TxId) -> Option<usize> {
        match self.list.last() {
            Some(last) if last.tx == tx => Some(self.list.len() - 1),
            _ => self.list.binary_search_by_key(&tx, |live| live.tx).ok(),
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, tx: TxId) {
        debug_assert!(self.list.last().is_none_or(|last| last.tx < tx));
        let pages = self.emptied.pop().unwrap_or_default();
        self.list.push(Live {
            tx,
            pages,
            committing: false,
        });
    }

    #[inline]
    pub(super) fn get_mut(&mut self, tx: TxId) -> Option<&mut Live> {
        self.place(tx).map(|place| &mut self.list[place])
    }

    /// Ends a transaction. Passes each page that it had written to `see`.
    #[inline]
    pub(super) fn end(&mut self, tx: TxId, see: impl FnMut(Lpn)) {
        let place = self.place(tx).expect("only live transactions end");
        let mut pages = self.list.remove(place).pages;
        pages.drain(..).for_each(see);
        self.emptied.push(pages);
    }

    pub(super) fn holds(&self, tx: TxId) -> bool {
        self.place(tx).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TxId> + '_ {
        self.list.iter().map(|live| live.tx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_end_in_any_order_and_show_their_pages() {
        let mut live = LiveTable::default();
        for tx in [3, 5, 9] {
            live.begin(TxId(tx));
            live.get_mut(TxId(tx)).unwrap().pages.push(Lpn(tx as u32));
        }
        assert!(!live.holds(TxId(4)));
        let mut seen = Vec::new();
        for tx in [5, 9, 3] {
            live.end(TxId(tx), |page| seen.push(page.0));
        }
        assert_eq!(seen, [5, 9, 3]);
        assert_eq!(live.len(), 0);
        live.begin(TxId(10));
        assert!(live.get_mut(TxId(10)).unwrap().pages.is_empty());
    }
}
