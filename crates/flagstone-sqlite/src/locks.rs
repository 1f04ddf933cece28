//! SQLite's locks on a database file, between the connections of one process.
//!
//! | level | who may have it beside | where readers have snapshots |
//! |---|---|---|
//! | shared | any number, and one reserved | any number, and one writer |
//! | reserved | shared ones; whoever has it means to write | the same |
//! | pending | shared ones that are there already; no new ones | nobody waits for readers |
//! | exclusive | nobody | shared ones |
//!
//! The store itself excludes other processes.

/// The lock level of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    /// No lock.
    #[default]
    None,
    /// Holds a shared lock: reads.
    Shared,
    /// Holds the reserved lock: intends to write.
    Reserved,
    /// Holds the pending lock: waits for readers to end.
    Pending,
    /// Holds the exclusive lock: writes.
    Exclusive,
}

impl Level {
    /// The level for SQLite's number.
    pub(crate) fn of(number: i32) -> Option<Level> {
        let levels = [
            Level::None,
            Level::Shared,
            Level::Reserved,
            Level::Pending,
            Level::Exclusive,
        ];
        levels.get(usize::try_from(number).ok()?).copied()
    }
}

/// The locks on one file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Connections with any lock.
    readers: Vec<u64>,
    /// The connection above the shared level.
    writer: Option<(u64, Level)>,
}

impl Locks {
    /// Whether no connection holds a lock.
    pub(crate) fn is_idle(&self) -> bool {
        self.readers.is_empty()
    }

    /// Whether this connection holds a lock.
    pub(crate) fn has(&self, who: u64) -> bool {
        self.readers.contains(&who)
    }

    /// Whether a connection intends to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.writer.is_some()
    }

    /// The connection that intends to write.
    pub(crate) fn writer(&self) -> Option<u64> {
        self.writer.map(|(who, _)| who)
    }

    /// Whether a connection is writing, or waits for readers to end. New readers then need a
    /// snapshot.
    pub(crate) fn is_pending(&self) -> bool {
        self.writer
            .is_some_and(|(_, level)| level >= Level::Pending)
    }

    /// Whether a connection writes.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.writer
            .is_some_and(|(_, level)| level == Level::Exclusive)
    }

    /// The other connections that hold a lock.
    pub(crate) fn others(&self, who: u64) -> impl Iterator<Item = u64> + '_ {
        self.readers
            .iter()
            .copied()
            .filter(move |&reader| reader != who)
    }

    /// Raises the lock of connection `who` from `has` to `wants`. With `apart`, readers have
    /// snapshots: they and a writer do not wait for each other. Returns the resulting level, which
    /// is below `wants` if other connections are in the way.
    pub(crate) fn raise(&mut self, who: u64, has: Level, wants: Level, apart: bool) -> Level {
        if wants <= has {
            return has;
        }
        let other = self.writer.filter(|(writer, _)| *writer != who);
        if has == Level::None {
            if other.is_some_and(|(_, level)| level >= Level::Pending) && !apart {
                return Level::None;
            }
            self.readers.push(who);
            return match wants {
                Level::Shared => Level::Shared,
                more => self.raise(who, Level::Shared, more, apart),
            };
        }
        if other.is_some() {
            return has;
        }
        let gets = match wants {
            Level::Exclusive if self.readers.len() > 1 && !apart => Level::Pending,
            level => level,
        };
        self.writer = Some((who, gets));
        gets
    }

    /// Lowers the lock of a connection from `has` to shared or none.
    pub(crate) fn lower(&mut self, who: u64, has: Level, to: Level) {
        if to < Level::Reserved && self.writer() == Some(who) {
            self.writer = None;
        }
        if to == Level::None && has > Level::None {
            self.readers.retain(|&reader| reader != who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Level::{Exclusive, None as Nothing, Pending, Reserved, Shared};

    #[test]
    fn readers_and_one_writer() {
        let mut locks = Locks::default();
        let raise = |locks: &mut Locks, who, has, wants| locks.raise(who, has, wants, false);
        assert_eq!(raise(&mut locks, 1, Nothing, Shared), Shared);
        assert_eq!(raise(&mut locks, 2, Nothing, Shared), Shared);
        assert_eq!(raise(&mut locks, 1, Shared, Reserved), Reserved);
        assert_eq!(raise(&mut locks, 2, Shared, Reserved), Shared);
        // A new reader may come while a writer is reserved, but not while it is pending.
        assert_eq!(raise(&mut locks, 3, Nothing, Shared), Shared);
        assert_eq!(raise(&mut locks, 1, Reserved, Exclusive), Pending);
        assert_eq!(raise(&mut locks, 4, Nothing, Shared), Nothing);
        locks.lower(3, Shared, Nothing);
        assert_eq!(raise(&mut locks, 1, Pending, Exclusive), Pending);
        locks.lower(2, Shared, Nothing);
        assert_eq!(raise(&mut locks, 1, Pending, Exclusive), Exclusive);
        assert!(locks.is_reserved() && !locks.is_idle());
        locks.lower(1, Exclusive, Shared);
        assert!(!locks.is_reserved());
        assert_eq!(raise(&mut locks, 4, Nothing, Shared), Shared);
        locks.lower(1, Shared, Nothing);
        locks.lower(4, Shared, Nothing);
        assert!(locks.is_idle());
    }

    #[test]
    fn nobody_waits_for_readers_that_have_snapshots() {
        let mut locks = Locks::default();
        locks.raise(2, Nothing, Shared, true);
        let writer = locks.raise(1, Nothing, Exclusive, true);
        assert_eq!((writer, locks.is_exclusive()), (Exclusive, true));
        assert_eq!(
            locks.raise(3, Nothing, Reserved, true),
            Shared,
            "one writer"
        );
        assert_eq!(locks.others(1).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn two_readers_that_want_to_write_do_not_both() {
        let mut locks = Locks::default();
        locks.raise(1, Nothing, Shared, false);
        locks.raise(2, Nothing, Shared, false);
        assert_eq!(locks.raise(1, Shared, Exclusive, false), Pending);
        assert_eq!(locks.raise(2, Shared, Exclusive, false), Shared);
    }
}
