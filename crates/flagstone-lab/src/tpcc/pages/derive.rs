//! The five transactions as page accesses: statement by statement as in the driver
//! ([`super::super::new_order`] and its neighbours), with PostgreSQL's query plans.

use super::super::input::{Customer, Delivery, NewOrder, OrderStatus, Payment, StockLevel};
use super::super::mix::Request;
use super::super::{DISTRICTS, Scale};
use super::PagesOptions;
use super::book::{Book, Common, Order, Places, RECENT};
use super::relation::Relation;
use super::space::Space;
use crate::workload::{Access, Rid, Verb};
use flagstone::units::Lpn;
use rustc_hash::FxHashMap;

/// A row that was moved since the load.
#[derive(Debug, Clone, Copy)]
struct Moved {
    row: Rid,
    /// The row's newest entry in each of the table's indexes.
    entries: [Rid; 2],
}

/// Space, orders, and moved rows.
#[derive(Debug, Clone)]
pub(super) struct Database {
    scale: Scale,
    space: Space,
    common: Common,
    book: Book,
    /// By table and row.
    moved: FxHashMap<(Relation, u32), Moved>,
    /// Entries of `moved` before the running transaction.
    undo: Vec<((Relation, u32), Option<Moved>)>,
}

/// A change of the book that a transaction makes if it commits.
enum Effect {
    Entered(u32, Order, Vec<u32>),
    Delivered(u32, Order),
}

const BY_NUMBER: [Relation; 3] = [
    Relation::NewOrderPkey,
    Relation::OrdersPkey,
    Relation::OrderLinePkey,
];

impl Database {
    /// A loaded database.
    pub(super) fn new(options: &PagesOptions) -> Database {
        let scale = options.scale;
        let common = Common::new(scale, options.seed);
        let districts = (scale.warehouses * DISTRICTS) as u64;
        let customers = districts * scale.customers as u64;
        let waiting = (scale.customers - scale.first_undelivered() + 1) as u64;
        let rows = [
            scale.warehouses as u64,
            districts,
            customers,
            customers,
            districts * waiting,
            customers,
            districts * common.lines(),
            scale.items as u64,
            (scale.warehouses * scale.items) as u64,
        ];
        let space = Space::new(
            rows,
            options.page_bytes,
            options.hot_fill,
            options.pages_max,
        );
        let ends = [waiting, scale.customers as u64, common.lines()];
        let tails = |district: u32| {
            let behind = |end: u64| (u64::from(district) + 1) * end - 1;
            [0, 1, 2].map(|n| space.entry(BY_NUMBER[n], behind(ends[n])).page)
        };
        let book = Book::new(scale, &common, tails);
        Database {
            scale,
            space,
            common,
            book,
            moved: FxHashMap::default(),
            undo: Vec::new(),
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.space.pages()
    }

    #[cfg(test)]
    pub(super) fn slots_used(&self) -> Vec<u16> {
        self.space.slots_used()
    }

    #[cfg(test)]
    pub(super) fn is_inner(&self, page: Lpn) -> bool {
        self.space.is_inner(page.0)
    }

    pub(super) fn is_full(&self) -> bool {
        self.space.full
    }

    pub(super) fn relation_of(&self, page: Lpn) -> Relation {
        self.space.relation_of(page.0)
    }

    pub(super) fn memory(&self) -> u64 {
        let moved = self.moved.capacity() * (size_of::<((Relation, u32), Moved)>() + 1);
        self.space.memory() + self.book.memory() + moved as u64
    }

    /// Appends the accesses of a request to `out`. Returns whether it commits; if it does not, rows
    /// are where they were, and orders as they were.
    pub(super) fn derive(
        &mut self,
        client: u32,
        request: &Request,
        roll_back: bool,
        out: &mut Vec<Access>,
    ) -> bool {
        let mut effects = Vec::new();
        let complete = match request {
            Request::NewOrder(input) => self.new_order(client, input, &mut effects, out),
            Request::Payment(input) => self.payment(client, input, out),
            Request::OrderStatus(input) => self.order_status(input, out),
            Request::Delivery(input) => self.delivery(client, input, &mut effects, out),
            Request::StockLevel(input) => self.stock_level(input, out),
        };
        let commits = complete && !roll_back;
        self.space.end(commits);
        if commits {
            self.undo.clear();
            for effect in effects {
                match effect {
                    Effect::Entered(district, order, items) => {
                        self.book.entered(district, order, items);
                    }
                    Effect::Delivered(district, order) => self.book.delivered(district, order),
                }
            }
        }
        while let Some((row, before)) = self.undo.pop() {
            match before {
                Some(before) => self.moved.insert(row, before),
                None => self.moved.remove(&row),
            };
        }
        commits
    }

    fn district(&self, warehouse: i64, district: i64) -> u32 {
        ((warehouse - 1) * DISTRICTS + district - 1) as u32
    }

    fn customer(&self, district: u32, customer: u32) -> u32 {
        district * self.scale.customers as u32 + customer - 1
    }

    fn stock(&self, warehouse: i64, item: i64) -> u32 {
        ((warehouse - 1) * self.scale.items + item - 1) as u32
    }

    /// The place of a row and its entries, in a table that does not grow.
    fn find(&self, table: Relation, row: u32) -> Moved {
        if let Some(&moved) = self.moved.get(&(table, row)) {
            return moved;
        }
        let rank = u64::from(row);
        let mut entries = [self.space.entry(table.indexes()[0], rank); 2];
        if table == Relation::Customer {
            let customers = self.scale.customers as u32;
            let in_district = self.common.rank_by_name[(row % customers) as usize];
            let rank = u64::from(row - row % customers + in_district);
            entries[1] = self.space.entry(Relation::CustomerByName, rank);
        }
        Moved {
            row: self.space.row(table, rank),
            entries,
        }
    }

    /// Selects a row by the table's first index.
    fn select(&self, table: Relation, row: u32, out: &mut Vec<Access>) {
        let place = self.find(table, row);
        self.space
            .look_up(table.indexes()[0], place.entries[0], out);
        read(place.row, out);
    }

    /// Updates a row found by the table's first index.
    fn update(&mut self, table: Relation, row: u32, client: u32, out: &mut Vec<Access>) {
        let mut place = self.find(table, row);
        self.space
            .look_up(table.indexes()[0], place.entries[0], out);
        let Some(to) = self.space.update(table, place.row, client, out) else {
            return;
        };
        place.row = to;
        for (entry, index) in place.entries.iter_mut().zip(table.indexes()) {
            *entry = self.space.add_entry(*index, entry.page, false, out);
        }
        let before = self.moved.insert((table, row), place);
        self.undo.push(((table, row), before));
    }

    /// Selects all customers with a name, and picks the middle one.
    fn pick(&self, district: u32, customer: &Customer, out: &mut Vec<Access>) -> u32 {
        let name = match customer {
            Customer::Id(id) => return *id as u32,
            Customer::LastName(name) => name,
        };
        let same = self.common.of_name(name);
        for (n, customer) in same.iter().enumerate() {
            let place = self.find(Relation::Customer, self.customer(district, *customer));
            if n == 0 {
                self.space
                    .descend(Relation::CustomerByName, place.entries[1].page, out);
            }
            read(place.entries[1], out);
            read(place.row, out);
        }
        same[(same.len() - 1) / 2]
    }

    /// An order, from the book or as it was loaded.
    fn order(&self, district: u32, number: u32) -> Order {
        if let Some(order) = self.book.order(district, number) {
            return order.clone();
        }
        let scale = self.scale;
        let customers = scale.customers as u32;
        let at = number as usize - 1;
        let customer = self.common.customer_of[at];
        let rank = u64::from(district * customers + number - 1);
        let first = scale.first_undelivered() as u32;
        let waiting = (number >= first).then(|| {
            let rank = u64::from(district * (customers + 1 - first) + number - first);
            let entry = self.space.entry(Relation::NewOrderPkey, rank);
            (self.space.row(Relation::NewOrder, rank), entry)
        });
        let before = u64::from(district) * self.common.lines();
        let [from, to] = [0, 1].map(|n| before + u64::from(self.common.lines_before[at + n]));
        let lines = (from..to).map(|rank| self.space.row(Relation::OrderLine, rank));
        let entries = (from..to).map(|rank| self.space.entry(Relation::OrderLinePkey, rank));
        let by_customer = u64::from(self.customer(district, customer));
        Order {
            customer,
            row: self.space.row(Relation::Orders, rank),
            by_number: self.space.entry(Relation::OrdersPkey, rank),
            by_customer: self.space.entry(Relation::OrdersByCustomer, by_customer),
            waiting,
            lines: lines.collect(),
            line_entries: entries.collect(),
        }
    }

    /// Appends an entry at the end of a district's part of an index by order number.
    fn append(&mut self, which: usize, district: u32, out: &mut Vec<Access>) -> Rid {
        let tail = self.book.districts[district as usize].tails[which];
        let entry = self.space.add_entry(BY_NUMBER[which], tail, true, out);
        self.book.districts[district as usize].tails[which] = entry.page;
        entry
    }

    /// The accesses of New-Order. Returns `false` if the last line's item does not exist.
    fn new_order(
        &mut self,
        client: u32,
        input: &NewOrder,
        effects: &mut Vec<Effect>,
        out: &mut Vec<Access>,
    ) -> bool {
        let district = self.district(input.warehouse, input.district);
        let customer = input.customer as u32;
        self.select(Relation::Warehouse, input.warehouse as u32 - 1, out);
        self.update(Relation::District, district, client, out);
        self.select(Relation::Customer, self.customer(district, customer), out);

        let row = self.space.insert(Relation::Orders, client, out);
        let by_number = self.append(1, district, out);
        let last = self.order_entry(district, self.book.last(district, customer));
        let by_customer = self
            .space
            .add_entry(Relation::OrdersByCustomer, last.page, false, out);
        let waiting = self.space.insert(Relation::NewOrder, client, out);
        let waiting = (waiting, self.append(0, district, out));

        let mut items = Vec::with_capacity(input.lines.len());
        let (mut lines, mut line_entries) = (Places::default(), Places::default());
        for line in &input.lines {
            if line.item > self.scale.items {
                // The item does not exist: the search ends at the index's last entry.
                self.look_up_item(self.scale.items, out);
                return false;
            }
            read(self.look_up_item(line.item, out), out);
            let stock = self.stock(line.supplier, line.item);
            self.update(Relation::Stock, stock, client, out);
            lines.push(self.space.insert(Relation::OrderLine, client, out));
            line_entries.push(self.append(2, district, out));
            items.push(line.item as u32);
        }
        let order = Order {
            customer,
            row,
            by_number,
            by_customer,
            waiting: Some(waiting),
            lines,
            line_entries,
        };
        effects.push(Effect::Entered(district, order, items));
        true
    }

    /// The entry of an order in the index by customer.
    fn order_entry(&self, district: u32, number: u32) -> Rid {
        if let Some(order) = self.book.order(district, number) {
            return order.by_customer;
        }
        let customer = self.common.customer_of[number as usize - 1];
        let rank = u64::from(self.customer(district, customer));
        self.space.entry(Relation::OrdersByCustomer, rank)
    }

    /// Looks an item up. Returns its place.
    fn look_up_item(&self, item: i64, out: &mut Vec<Access>) -> Rid {
        let rank = item as u64 - 1;
        let entry = self.space.entry(Relation::ItemPkey, rank);
        self.space.look_up(Relation::ItemPkey, entry, out);
        self.space.row(Relation::Item, rank)
    }

    fn payment(&mut self, client: u32, input: &Payment, out: &mut Vec<Access>) -> bool {
        let district = self.district(input.warehouse, input.district);
        self.update(Relation::Warehouse, input.warehouse as u32 - 1, client, out);
        self.update(Relation::District, district, client, out);
        let of = self.district(input.customer_warehouse, input.customer_district);
        let customer = self.pick(of, &input.customer, out);
        let customer = self.customer(of, customer);
        self.update(Relation::Customer, customer, client, out);
        self.space.insert(Relation::History, client, out);
        true
    }

    fn order_status(&mut self, input: &OrderStatus, out: &mut Vec<Access>) -> bool {
        let district = self.district(input.warehouse, input.district);
        let customer = self.pick(district, &input.customer, out);
        self.select(Relation::Customer, self.customer(district, customer), out);
        let order = self.order(district, self.book.last(district, customer));
        self.space
            .look_up(Relation::OrdersByCustomer, order.by_customer, out);
        read(order.row, out);
        self.scan_lines(&order, true, out);
        true
    }

    /// Reads the lines of an order; with `descend` also the index path to the first one.
    fn scan_lines(&self, order: &Order, descend: bool, out: &mut Vec<Access>) {
        if descend && let Some(first) = order.line_entries.iter().next() {
            self.space.descend(Relation::OrderLinePkey, first.page, out);
        }
        for (entry, line) in order.line_entries.iter().zip(order.lines.iter()) {
            read(entry, out);
            read(line, out);
        }
    }

    /// The accesses of Delivery.
    fn delivery(
        &mut self,
        client: u32,
        input: &Delivery,
        effects: &mut Vec<Effect>,
        out: &mut Vec<Access>,
    ) -> bool {
        for district in 1..=DISTRICTS {
            let district = self.district(input.warehouse, district);
            let book = &self.book.districts[district as usize];
            if book.oldest == book.next {
                continue;
            }
            let order = self.order(district, book.oldest);
            let order = self.deliver(client, district, order, out);
            effects.push(Effect::Delivered(district, order));
        }
        true
    }

    /// Delivers an order: deletes its row of new orders, updates the order, its lines and its
    /// customer. Returns the order with the places of its new versions.
    fn deliver(
        &mut self,
        client: u32,
        district: u32,
        mut order: Order,
        out: &mut Vec<Access>,
    ) -> Order {
        let (row, entry) = order.waiting.take().expect("an undelivered order waits");
        self.space.look_up(Relation::NewOrderPkey, entry, out);
        read(row, out);
        self.space.look_up(Relation::NewOrderPkey, entry, out);
        self.space.delete(Relation::NewOrder, row, out);

        self.space
            .look_up(Relation::OrdersPkey, order.by_number, out);
        if let Some(to) = self.space.update(Relation::Orders, order.row, client, out) {
            order.row = to;
            let (number, customer) = (order.by_number.page, order.by_customer.page);
            order.by_number = self
                .space
                .add_entry(Relation::OrdersPkey, number, false, out);
            order.by_customer =
                self.space
                    .add_entry(Relation::OrdersByCustomer, customer, false, out);
        }

        let (lines, entries) = (
            std::mem::take(&mut order.lines),
            std::mem::take(&mut order.line_entries),
        );
        for (n, (line, entry)) in lines.iter().zip(entries.iter()).enumerate() {
            if n == 0 {
                self.space.descend(Relation::OrderLinePkey, entry.page, out);
            }
            read(entry, out);
            let to = self.space.update(Relation::OrderLine, line, client, out);
            order.lines.push(to.unwrap_or(line));
            order.line_entries.push(match to {
                Some(_) => self
                    .space
                    .add_entry(Relation::OrderLinePkey, entry.page, false, out),
                None => entry,
            });
        }
        let customer = self.customer(district, order.customer);
        self.update(Relation::Customer, customer, client, out);
        order
    }

    /// The accesses of Stock-Level: the lines of a district's last orders, and the stock of each
    /// item.
    fn stock_level(&mut self, input: &StockLevel, out: &mut Vec<Access>) -> bool {
        let district = self.district(input.warehouse, input.district);
        self.select(Relation::District, district, out);
        let book = &self.book.districts[district as usize];
        let (next, known) = (book.next, book.recent.len() as u32);
        let mut items = Vec::new();
        for number in next.saturating_sub(RECENT).max(1)..next {
            let order = self.order(district, number);
            self.scan_lines(&order, number + RECENT == next, out);
            match (number + known).checked_sub(next) {
                // The book has the items of orders since the load; those of others are drawn again.
                Some(recent) => items.extend_from_slice(&book.recent[recent as usize]),
                None => {
                    let lines = order.lines.iter().count() as u32;
                    items.extend((0..lines).map(|n| self.loaded_item(district, number, n)));
                }
            }
        }
        for item in items {
            self.select(
                Relation::Stock,
                self.stock(input.warehouse, item.into()),
                out,
            );
        }
        true
    }

    /// The item of a loaded line: uniformly distributed, from a hash of the line.
    fn loaded_item(&self, district: u32, order: u32, line: u32) -> u32 {
        let line = u64::from(district) << 40 | u64::from(order) << 8 | u64::from(line);
        let mixed = (line + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((mixed >> 32) * self.scale.items as u64) >> 32) as u32 + 1
    }
}

fn read(at: Rid, out: &mut Vec<Access>) {
    out.push(Access {
        verb: Verb::Read,
        at,
    });
}
