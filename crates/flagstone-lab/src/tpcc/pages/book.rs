//! State that transactions share: order numbers, undelivered orders, each customer's last order,
//! and the places of newer orders' rows.
//!
//! Loaded orders are computed: orders with equal numbers have the same number of lines and the same
//! customer in all districts, so one table serves all. New orders are kept as long as a transaction
//! can still need them.

use super::super::random::{Constants, Random, Stream, last_name};
use super::super::{DISTRICTS, Scale};
use crate::workload::Rid;
use flagstone::units::Lpn;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What all districts have in common after the load.
#[derive(Debug, Clone)]
pub(super) struct Common {
    /// Total lines of a district's earlier orders, for each order; one element more than orders.
    pub(super) lines_before: Vec<u32>,
    /// The customer of each order, and the order of each customer, from 1.
    pub(super) customer_of: Vec<u32>,
    pub(super) order_of: Vec<u32>,
    /// The customers of each last name by first name, and each customer's rank in that index.
    pub(super) named: Vec<Vec<u32>>,
    pub(super) rank_by_name: Vec<u32>,
    names: FxHashMap<String, usize>,
}

impl Common {
    /// The loaded orders and names, drawn once: all districts have the same ones.
    pub(super) fn new(scale: Scale, seed: u64) -> Common {
        // Streams that no loaded table uses.
        let random = |part: u8| Random::new(seed, Stream::Table(0x40 + part, 0, 0));
        let customers = scale.customers;
        let mut counts = random(0);
        let mut lines_before = vec![0];
        for order in 0..customers as usize {
            lines_before.push(lines_before[order] + counts.uniform(5, 15) as u32);
        }
        let permutation = random(1).permutation(customers);
        let customer_of: Vec<u32> = permutation.iter().map(|&c| c as u32).collect();
        let mut order_of = vec![0; customers as usize];
        for (order, customer) in (1..).zip(&customer_of) {
            order_of[*customer as usize - 1] = order;
        }
        let (constant, most) = (Constants::load(seed).last_name, scale.last_name_max());
        let mut names = random(2);
        let mut named = vec![Vec::new(); most as usize + 1];
        for customer in 1..=customers {
            let name = match customer {
                ..=1_000 => customer - 1,
                _ => names.nurand(255, constant, 0, most),
            };
            named[name as usize].push(customer as u32);
        }
        // First names are random, so the order among customers with the same name is random.
        named.iter_mut().for_each(|same| names.shuffle(same));
        let mut alphabet: Vec<(String, usize)> = (0..named.len())
            .map(|name| (last_name(name as i64), name))
            .collect();
        alphabet.sort();
        let mut rank_by_name = vec![0; customers as usize];
        let in_order = alphabet.iter().flat_map(|(_, name)| &named[*name]);
        for (rank, customer) in (0..).zip(in_order) {
            rank_by_name[*customer as usize - 1] = rank;
        }
        Common {
            lines_before,
            customer_of,
            order_of,
            named,
            rank_by_name,
            names: alphabet.into_iter().collect(),
        }
    }

    /// Number of lines of all loaded orders of a district.
    pub(super) fn lines(&self) -> u64 {
        self.lines_before.last().copied().unwrap_or(0).into()
    }

    /// The customers with a last name, ordered by first name.
    pub(super) fn of_name(&self, name: &str) -> &[u32] {
        &self.named[self.names[name]]
    }
}

/// Adjacent records, as ranges of slots: the first record of each range, and its length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places(Vec<(Rid, u16)>);

impl Places {
    pub(super) fn push(&mut self, at: Rid) {
        if let Some((first, length)) = self.0.last_mut()
            && first.page == at.page
            && first.slot + *length == at.slot
        {
            *length += 1;
            return;
        }
        self.0.push((at, 1));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Rid> {
        let slots = |&(first, length): &(Rid, u16)| {
            (0..length).map(move |n| Rid {
                page: first.page,
                slot: first.slot + n,
            })
        };
        self.0.iter().flat_map(slots)
    }
}

impl FromIterator<Rid> for Places {
    fn from_iter<I: IntoIterator<Item = Rid>>(places: I) -> Places {
        let mut all = Places::default();
        places.into_iter().for_each(|at| all.push(at));
        all
    }
}

/// The places of an order.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) customer: u32,
    /// The order's row, and its entries in the indexes by number and by customer.
    pub(super) row: Rid,
    pub(super) by_number: Rid,
    pub(super) by_customer: Rid,
    /// Row and index entry among the undelivered orders.
    pub(super) waiting: Option<(Rid, Rid)>,
    pub(super) lines: Places,
    pub(super) line_entries: Places,
}

/// The state of a district.
#[derive(Debug, Clone)]
pub(super) struct District {
    /// The next order, and the oldest that is not delivered.
    pub(super) next: u32,
    pub(super) oldest: u32,
    /// Items of the last entered orders, at most twenty.
    pub(super) recent: VecDeque<Vec<u32>>,
    /// The last leaves of the district's part in the indexes by order number: of undelivered
    /// orders, of orders, and of lines.
    pub(super) tails: [Lpn; 3],
}

/// Number of orders that Stock-Level examines.
pub(super) const RECENT: u32 = 20;

/// The state of all orders.
#[derive(Debug, Clone)]
pub(super) struct Book {
    pub(super) districts: Vec<District>,
    /// The last order of each customer.
    last: Vec<u32>,
    customers: usize,
    /// By district and number: orders entered or moved since the load.
    orders: FxHashMap<(u32, u32), Order>,
}

impl Book {
    /// The state after the load. `tails` returns the last leaf of each index by number for a
    /// district.
    pub(super) fn new(scale: Scale, common: &Common, tails: impl Fn(u32) -> [Lpn; 3]) -> Book {
        let count = (scale.warehouses * DISTRICTS) as u32;
        let district = |district| District {
            next: scale.customers as u32 + 1,
            oldest: scale.first_undelivered() as u32,
            recent: VecDeque::new(),
            tails: tails(district),
        };
        Book {
            districts: (0..count).map(district).collect(),
            last: (0..count)
                .flat_map(|_| common.order_of.iter().copied())
                .collect(),
            customers: scale.customers as usize,
            orders: FxHashMap::default(),
        }
    }

    /// A customer's last order.
    pub(super) fn last(&self, district: u32, customer: u32) -> u32 {
        self.last[district as usize * self.customers + customer as usize - 1]
    }

    /// An order, if it was entered or moved since the load.
    pub(super) fn order(&self, district: u32, number: u32) -> Option<&Order> {
        self.orders.get(&(district, number))
    }

    /// Records a new order.
    pub(super) fn entered(&mut self, district: u32, order: Order, items: Vec<u32>) {
        let book = &mut self.districts[district as usize];
        let number = book.next;
        book.next += 1;
        book.recent.push_back(items);
        if book.recent.len() > RECENT as usize {
            book.recent.pop_front();
        }
        let last = district as usize * self.customers + order.customer as usize - 1;
        let before = std::mem::replace(&mut self.last[last], number);
        self.orders.insert((district, number), order);
        self.forget(district, before);
    }

    /// Records the delivery of a district's oldest order, with its new places.
    pub(super) fn delivered(&mut self, district: u32, order: Order) {
        let number = self.districts[district as usize].oldest;
        self.districts[district as usize].oldest += 1;
        self.orders.insert((district, number), order);
        self.forget(district, number);
    }

    /// Drops an order that no transaction can need any more.
    fn forget(&mut self, district: u32, number: u32) {
        let book = &self.districts[district as usize];
        let asked = number >= book.oldest || number + RECENT >= book.next;
        let customer = self
            .orders
            .get(&(district, number))
            .map(|order| order.customer);
        if let Some(customer) = customer
            && !asked
            && self.last(district, customer) != number
        {
            self.orders.remove(&(district, number));
        }
    }

    /// Bytes that the book takes.
    pub(super) fn memory(&self) -> u64 {
        let runs: usize = self
            .orders
            .values()
            .map(|o| 12 * (o.lines.0.capacity() + o.line_entries.0.capacity()))
            .sum();
        let orders = self.orders.capacity() * (size_of::<((u32, u32), Order)>() + 1);
        let recent = self.districts.len() * 20 * (24 + 4 * 10);
        (runs + orders + recent + 4 * self.last.capacity()) as u64
    }
}
