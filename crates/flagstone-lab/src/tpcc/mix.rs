//! The mix: a client draws transactions from a shuffled deck, runs each to completion, and retries
//! after conflicts.

use super::input::{Delivery, NewOrder, OrderStatus, Payment, StockLevel, Terminal};
use super::random::{Random, Stream};
use super::session::{AccessMode, Error, Session};
use super::{delivery, new_order, order_status, payment, stock_level};

/// The five transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionKind {
    /// Enter an order.
    NewOrder,
    /// Take a payment.
    Payment,
    /// Query a customer's last order.
    OrderStatus,
    /// Deliver ten orders.
    Delivery,
    /// Count items with low stock.
    StockLevel,
}

impl TransactionKind {
    /// All kinds, with their number of cards in a deck of a hundred (clause 5.2.3 requires at least
    /// 43 % Payment and 4 % of each of the last three).
    pub const DECK: [(TransactionKind, usize); 5] = [
        (TransactionKind::NewOrder, 45),
        (TransactionKind::Payment, 43),
        (TransactionKind::OrderStatus, 4),
        (TransactionKind::Delivery, 4),
        (TransactionKind::StockLevel, 4),
    ];

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            TransactionKind::NewOrder => "New-Order",
            TransactionKind::Payment => "Payment",
            TransactionKind::OrderStatus => "Order-Status",
            TransactionKind::Delivery => "Delivery",
            TransactionKind::StockLevel => "Stock-Level",
        }
    }

    /// The shares in the deck as text, `New-Order 45, …`.
    pub fn mix() -> String {
        let cards = TransactionKind::DECK.map(|(kind, cards)| format!("{} {cards}", kind.name()));
        cards.join(", ")
    }
}

/// A deck of cards, dealt to the end and then reshuffled (clause 5.2.4.2).
#[derive(Debug, Clone, Default)]
pub struct Deck(Vec<TransactionKind>);

impl Deck {
    /// Deals the next card.
    pub fn deal(&mut self, random: &mut Random) -> TransactionKind {
        if self.0.is_empty() {
            for (kind, cards) in TransactionKind::DECK {
                self.0.resize(self.0.len() + cards, kind);
            }
            random.shuffle(&mut self.0);
        }
        self.0.pop().expect("just filled")
    }
}

/// A transaction with its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// New-Order.
    NewOrder(NewOrder),
    /// Payment.
    Payment(Payment),
    /// Order-Status.
    OrderStatus(OrderStatus),
    /// Delivery.
    Delivery(Delivery),
    /// Stock-Level.
    StockLevel(StockLevel),
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Whether the transaction committed; otherwise it was rolled back because of an unused item.
    pub committed: bool,
    /// Earlier attempts that were rolled back because of conflicts.
    pub conflicts: u64,
    /// Districts in which a Delivery found nothing to deliver.
    pub passed_over: u64,
}

/// Maximum number of attempts of a request; more indicate an error.
pub const ATTEMPTS: u64 = 1_000;

impl Request {
    /// Draws the input of a transaction at a terminal.
    pub fn draw(kind: TransactionKind, terminal: &Terminal, random: &mut Random) -> Request {
        match kind {
            TransactionKind::NewOrder => Request::NewOrder(terminal.new_order(random)),
            TransactionKind::Payment => Request::Payment(terminal.payment(random)),
            TransactionKind::OrderStatus => Request::OrderStatus(terminal.order_status(random)),
            TransactionKind::Delivery => Request::Delivery(terminal.delivery(random)),
            TransactionKind::StockLevel => Request::StockLevel(terminal.stock_level(random)),
        }
    }

    /// The kind of transaction.
    pub fn kind(&self) -> TransactionKind {
        match self {
            Request::NewOrder(_) => TransactionKind::NewOrder,
            Request::Payment(_) => TransactionKind::Payment,
            Request::OrderStatus(_) => TransactionKind::OrderStatus,
            Request::Delivery(_) => TransactionKind::Delivery,
            Request::StockLevel(_) => TransactionKind::StockLevel,
        }
    }

    /// Runs it as a transaction of its own, and retries after conflicts. `now` is in microseconds
    /// since 1970.
    pub fn run(&self, session: &mut impl Session, now: i64) -> Result<Completion, Error> {
        let mut conflicts = 0;
        loop {
            match self.attempt(session, now) {
                Ok((committed, passed_over)) => {
                    return Ok(Completion {
                        committed,
                        conflicts,
                        passed_over,
                    });
                }
                Err(Error::Conflict { .. }) if conflicts + 1 < ATTEMPTS => {
                    session.rollback()?;
                    conflicts += 1;
                }
                Err(error) => {
                    // Report the first error; the connection may be gone.
                    let _ = session.rollback();
                    return Err(error);
                }
            }
        }
    }

    /// Runs the transaction once. Returns whether it committed, and for Delivery the number of
    /// districts that had no order to deliver.
    fn attempt(&self, session: &mut impl Session, now: i64) -> Result<(bool, u64), Error> {
        let access = match self {
            Request::OrderStatus(_) | Request::StockLevel(_) => AccessMode::ReadOnly,
            _ => AccessMode::ReadWrite,
        };
        session.begin(access)?;
        let mut passed_over = 0;
        match self {
            Request::NewOrder(input) => {
                if new_order::new_order(session, input, now)?.is_none() {
                    session.rollback()?;
                    return Ok((false, 0));
                }
            }
            Request::Payment(input) => {
                payment::payment(session, input, now)?;
            }
            Request::OrderStatus(input) => {
                order_status::order_status(session, input)?;
            }
            Request::Delivery(input) => {
                let delivered = delivery::delivery(session, input, now)?;
                passed_over = super::DISTRICTS as u64 - delivered.len() as u64;
            }
            Request::StockLevel(input) => {
                stock_level::stock_level(session, input)?;
            }
        }
        session.commit()?;
        Ok((true, passed_over))
    }
}

/// A client: a terminal with its own random stream and deck.
#[derive(Debug, Clone)]
pub struct Client {
    terminal: Terminal,
    random: Random,
    deck: Deck,
}

impl Client {
    /// Client number `number`; the seed determines all its requests.
    pub fn new(number: u32, seed: u64, terminal: Terminal) -> Self {
        Client {
            terminal,
            random: Random::new(seed, Stream::Client(number)),
            deck: Deck::default(),
        }
    }

    /// Draws the client's next request.
    pub fn next_request(&mut self) -> Request {
        let kind = self.deck.deal(&mut self.random);
        Request::draw(kind, &self.terminal, &mut self.random)
    }
}

/// Counts for one kind of transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Committed.
    pub committed: u64,
    /// Rolled back because of an unused item.
    pub rolled_back: u64,
    /// Attempts rolled back because of a conflict.
    pub conflicts: u64,
    /// Districts skipped by Deliveries.
    pub passed_over: u64,
}

/// Counts by kind, in the order of [`TransactionKind::DECK`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([Count; 5]);

impl Counts {
    /// The count of one kind.
    pub fn of(&self, kind: TransactionKind) -> &Count {
        &self.0[kind as usize]
    }

    /// All kinds together.
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.0.iter().for_each(|count| total.add(count));
        total
    }

    /// Counts a completion.
    pub fn note(&mut self, kind: TransactionKind, completion: &Completion) {
        let count = &mut self.0[kind as usize];
        count.committed += u64::from(completion.committed);
        count.rolled_back += u64::from(!completion.committed);
        count.conflicts += completion.conflicts;
        count.passed_over += completion.passed_over;
    }

    /// Adds another client's counts.
    pub fn add(&mut self, other: &Counts) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| mine.add(theirs));
    }
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.conflicts += other.conflicts;
        self.passed_over += other.passed_over;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::super::fake::{Fake, names};
    use super::super::random::Constants;
    use super::*;

    fn client(number: u32, seed: u64) -> Client {
        let terminal = Terminal::of_client(number, Scale::standard(5), Constants::load(1));
        Client::new(number, seed, terminal)
    }

    #[test]
    fn every_hundred_cards_hold_the_mix_in_another_order() {
        let mut random = Random::new(1, Stream::Client(0));
        let mut deck = Deck::default();
        let mut deal = || (0..100).map(|_| deck.deal(&mut random)).collect::<Vec<_>>();
        let (first, second) = (deal(), deal());
        assert_ne!(first, second);
        for hundred in [first, second] {
            for (kind, cards) in TransactionKind::DECK {
                let dealt = hundred.iter().filter(|k| **k == kind).count();
                assert_eq!(dealt, cards, "{}", kind.name());
            }
        }
        assert_eq!(
            TransactionKind::DECK
                .iter()
                .map(|(_, cards)| cards)
                .sum::<usize>(),
            100
        );
        for (index, (kind, _)) in TransactionKind::DECK.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }

    #[test]
    fn a_seed_fixes_what_a_client_asks_for() {
        let draw = |number, seed| {
            let mut client = client(number, seed);
            (0..50).map(|_| client.next_request()).collect::<Vec<_>>()
        };
        assert_eq!(draw(3, 1), draw(3, 1));
        assert_ne!(draw(3, 1), draw(3, 2));
        assert_ne!(draw(3, 1), draw(8, 1), "client 8 has the same warehouse");
    }

    fn stock_level(conflicts: Vec<&'static str>) -> (Result<Completion, Error>, Vec<&'static str>) {
        let mut fake = Fake::new(|_, _| vec![vec![30.into()]]);
        fake.conflicts = conflicts;
        let input = StockLevel {
            warehouse: 1,
            district: 1,
            threshold: 10,
        };
        let completion = Request::StockLevel(input).run(&mut fake, 0);
        (completion, names(&fake.log))
    }

    #[test]
    fn a_conflict_is_rolled_back_counted_and_tried_again() {
        let (completion, log) = stock_level(vec!["stock-level low", "commit"]);
        assert_eq!(
            completion,
            Ok(Completion {
                committed: true,
                conflicts: 2,
                passed_over: 0
            })
        );
        let attempt = ["begin to read", "stock-level district", "stock-level low"];
        let mut expected = attempt.to_vec();
        expected.push("rollback");
        expected.extend(attempt);
        expected.extend(["commit", "rollback"]);
        expected.extend(attempt);
        expected.push("commit");
        assert_eq!(log, expected);
    }

    #[test]
    fn what_never_ceases_to_conflict_is_given_up() {
        let (completion, log) = stock_level(vec!["stock-level low"; ATTEMPTS as usize]);
        assert!(matches!(completion, Err(Error::Conflict { .. })));
        assert_eq!(log.last(), Some(&"rollback"));
    }

    #[test]
    fn a_rolled_back_order_is_counted_as_such() {
        let mut fake = Fake::new(|statement, _| match statement.name {
            "new-order warehouse" => vec![vec![0.into()]],
            "new-order district" => vec![vec![3_001.into(), 0.into()]],
            "new-order customer" => vec![vec![0.into(), "A".into(), "GC".into()]],
            _ => vec![],
        });
        let mut client = client(0, 1);
        let request = std::iter::repeat_with(|| client.next_request())
            .find(|request| request.kind() == TransactionKind::NewOrder)
            .unwrap();
        let completion = request.run(&mut fake, 0).unwrap();
        assert!(!completion.committed);
        assert_eq!(names(&fake.log).last(), Some(&"rollback"));
        let mut counts = Counts::default();
        counts.note(TransactionKind::NewOrder, &completion);
        counts.add(&counts.clone());
        let expected = Count {
            rolled_back: 2,
            ..Count::default()
        };
        assert_eq!(counts.of(TransactionKind::NewOrder), &expected);
        assert_eq!(counts.total(), expected);
    }
}
