//! Joins several events of `blktrace` to one request: requeues, partial completions, requests that
//! one device passes to another, and zones.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::blkparse::Action;

/// A position on a device: device number as text (`8,0`), and sector.
type Place = (String, u64);

/// An event of a request, in sectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) device: &'a str,
    pub(super) sector: u64,
    pub(super) sectors: u64,
}

impl Event<'_> {
    fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }

    /// The keys of `map` that lie within the event.
    fn places<V>(&self, map: &BTreeMap<Place, V>) -> Vec<Place> {
        let from = (self.device.to_string(), self.sector);
        let within = map.range(from..(self.device.to_string(), self.end()));
        within.map(|(place, _)| place.clone()).collect()
    }
}

/// How an event of the imported action relates to its request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The event represents the request: first sector, and number of sectors.
    Request(u64, u64),
    /// Another event already represents the request, for this reason.
    Counted(&'static str),
}

/// Joins the events of one action to requests. Keeps track of requests in flight.
#[derive(Debug)]
pub(super) struct Join {
    action: Action,
    /// Issued and requeued requests: first sector, and number of sectors.
    requeued: BTreeMap<Place, u64>,
    /// Issued but not completed requests, for completions: by the first remaining sector, with
    /// first sector and number of all.
    under_way: HashMap<Place, (u64, u64)>,
    /// Devices with requests of their own, to tell them from partitions.
    devices: HashSet<String>,
    /// Positions to which requests of an upper device were passed.
    handed_down: BTreeMap<Place, ()>,
    /// Number of sectors appended to each zone.
    appended: HashMap<Place, u64>,
}

impl Join {
    pub(super) fn new(action: Action) -> Join {
        Join {
            action,
            requeued: BTreeMap::new(),
            under_way: HashMap::default(),
            devices: HashSet::default(),
            handed_down: BTreeMap::new(),
            appended: HashMap::default(),
        }
    }

    /// Processes an event of a request, whatever its action. Returns a result if the action is the
    /// imported one.
    pub(super) fn see(&mut self, what: &str, event: Event<'_>) -> Option<Joined> {
        let taken = what == self.action.letter();
        // A device with completions also has queue events; a device with queue events need not have
        // issue events.
        let own = taken || (self.action == Action::Complete && what == "Q");
        if own && !self.devices.contains(event.device) {
            self.devices.insert(event.device.to_string());
        }
        if what == "R" {
            self.requeue(event);
        }
        if what == "D" && self.action == Action::Complete {
            let place = (event.device.to_string(), event.sector);
            self.under_way.insert(place, (event.sector, event.sectors));
        }
        if !taken {
            return None;
        }
        Some(self.take(event))
    }

    /// The result of an event with the imported action. A request that was handed down by another
    /// device is only counted: that device's request is the one to import.
    fn take(&mut self, event: Event<'_>) -> Joined {
        if !self.handed_down.is_empty() {
            let places = event.places(&self.handed_down);
            if !places.is_empty() {
                for place in &places {
                    self.handed_down.remove(place);
                }
                return Joined::Counted("requests of another device, handed down");
            }
        }
        match self.action {
            Action::Queue => Joined::Request(event.sector, event.sectors),
            Action::Issue => self.issue(event),
            Action::Complete => self.complete(event),
        }
    }

    /// Records that a request was requeued and will be issued again.
    fn requeue(&mut self, event: Event<'_>) {
        if self.action == Action::Issue {
            let place = (event.device.to_string(), event.sector);
            self.requeued.insert(place, event.sectors);
        }
    }

    fn issue(&mut self, event: Event<'_>) -> Joined {
        if self.requeued.is_empty() {
            return Joined::Request(event.sector, event.sectors);
        }
        let place = (event.device.to_string(), event.sector);
        match self.requeued.remove(&place) {
            // Other requests may have been merged with the requeued one.
            Some(before) if before < event.sectors => {
                Joined::Request(event.sector + before, event.sectors - before)
            }
            Some(_) => Joined::Counted("requests issued again after a requeue"),
            None => Joined::Request(event.sector, event.sectors),
        }
    }

    fn complete(&mut self, event: Event<'_>) -> Joined {
        let place = (event.device.to_string(), event.sector);
        let Some((first, all)) = self.under_way.remove(&place) else {
            return Joined::Request(event.sector, event.sectors);
        };
        if event.end() >= first.saturating_add(all) {
            return Joined::Request(first, all);
        }
        self.under_way.insert((place.0, event.end()), (first, all));
        Joined::Counted("completions of a part of a request")
    }

    /// Processes a remap: `from_sector` of device `from` is at the event's position. Requests of an
    /// upper device are counted there; a partition has no requests of its own.
    pub(super) fn remap(&mut self, event: Event<'_>, from: &str, from_sector: u64) {
        let before = [event.device, from].map(|device| (device.to_string(), from_sector));
        let moved = before
            .iter()
            .any(|place| self.handed_down.remove(place).is_some());
        if moved || (from != event.device && self.devices.contains(from)) {
            let place = (event.device.to_string(), event.sector);
            self.handed_down.insert(place, ());
        }
    }

    /// The sector that an append writes: until completion the event has the start of the zone.
    pub(super) fn append(&mut self, event: Event<'_>) -> u64 {
        if self.action == Action::Complete {
            return event.sector;
        }
        let place = (event.device.to_string(), event.sector);
        let appended = self.appended.entry(place).or_default();
        let sector = event.sector.saturating_add(*appended);
        *appended = appended.saturating_add(event.sectors);
        sector
    }

    /// Records that a zone was reset.
    pub(super) fn reset(&mut self, event: Event<'_>) {
        self.appended
            .remove(&(event.device.to_string(), event.sector));
    }
}
