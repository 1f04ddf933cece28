//! A test session that answers by a function and records its calls.

use super::session::{AccessMode, Error, Row, Session, Statement, Value};

type Answer<'a> = dyn FnMut(&'static Statement, &[Value]) -> Vec<Row> + 'a;

/// The session.
pub(super) struct Fake<'a> {
    answer: Box<Answer<'a>>,
    /// Number of rows that a statement changes; one by default.
    pub changed: fn(&'static Statement, &[Value]) -> u64,
    /// Statements that fail with a conflict when they are first executed.
    pub conflicts: Vec<&'static str>,
    /// All calls with parameters, in order; including begin, commit and rollback.
    pub log: Vec<(&'static str, Vec<Value>)>,
}

impl<'a> Fake<'a> {
    /// A session that answers queries with `answer`.
    pub(super) fn new(answer: impl FnMut(&'static Statement, &[Value]) -> Vec<Row> + 'a) -> Self {
        let changed = |_: &'static Statement, _: &[Value]| 1;
        Fake {
            answer: Box::new(answer),
            changed,
            conflicts: Vec::new(),
            log: Vec::new(),
        }
    }

    fn note(&mut self, name: &'static str, params: &[Value]) -> Result<(), Error> {
        self.log.push((name, params.to_vec()));
        match self.conflicts.iter().position(|conflict| *conflict == name) {
            None => Ok(()),
            Some(at) => {
                self.conflicts.remove(at);
                Err(Error::Conflict {
                    statement: name.to_owned(),
                    message: "as told".to_owned(),
                })
            }
        }
    }
}

/// The names of a log.
pub(super) fn names(log: &[(&'static str, Vec<Value>)]) -> Vec<&'static str> {
    log.iter().map(|(name, _)| *name).collect()
}

impl Session for Fake<'_> {
    fn begin(&mut self, access: AccessMode) -> Result<(), Error> {
        self.note(
            if access == AccessMode::ReadOnly {
                "begin to read"
            } else {
                "begin"
            },
            &[],
        )
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.note("commit", &[])
    }

    fn rollback(&mut self) -> Result<(), Error> {
        self.note("rollback", &[])
    }

    fn execute(&mut self, statement: &'static Statement, params: &[Value]) -> Result<u64, Error> {
        self.note(statement.name, params)?;
        Ok((self.changed)(statement, params))
    }

    fn query(
        &mut self,
        statement: &'static Statement,
        params: &[Value],
    ) -> Result<Vec<Row>, Error> {
        self.note(statement.name, params)?;
        Ok((self.answer)(statement, params))
    }
}
