//! CFDC: clean pages go first, and dirty pages by clusters of neighbours.
//!
//! Paper       [CFDC], from its public code and from what later papers say of it: the body was not
//!             at hand.
//! Idea        The working region is an LRU list. What overflows from it enters the priority
//!             region: clean pages a queue, dirty pages the cluster of their neighbours, page
//!             number divided by the cluster size. Any hit brings a page back to the working
//!             region. The victim is the oldest clean page of the queue; if there is none, the
//!             oldest page of the cluster with the smallest P(c), which is then drained. Writing
//!             neighbours one after the other suits translation layers that map blocks, and leaves
//!             scattered hot pages alone.
//! Symbols     P(c) = IPD / (n² · (globaltime - ts)), where n pages of the cluster have the
//!             distance IPD = Σ |p_i - p_i-1| in the order in which they came, 1 for a single page;
//!             ts is globaltime when the cluster was made or last lost a page to a hit; globaltime
//!             counts dirty pages that entered the priority region.
//! Cost        An access is logarithmic in the clusters of one shape (n, IPD), and constant outside
//!             the priority region. A choice looks at the oldest cluster of each shape:
//!             dozens, and thousands in a pool of a million frames; and not while a cluster is
//!             drained.
//!
//! Departures  D1. P(c) depends on globaltime and is compared as it is at the choice, exactly, in
//!                 integers. Kept as of the last change, a cluster that nothing touches would not
//!                 age. Ties go to the smaller ts, then to the smaller page numbers.
//!             D2. A globaltime that equals ts counts as one later: no division by zero.
//!             D3. IPD is what the paper defines. Public code sets it to 1 always.
//!             D4. A page that is written out while it stays goes to the young end of the clean
//!                 queue; one that becomes dirty without a hit enters its cluster. Neither counts
//!                 as a promotion. The paper knows no such pages.
//!             D5. If nothing in the priority region may go, the working region is asked, oldest
//!                 page first. The paper assumes that there is always one.

mod clusters;
#[cfg(test)]
mod tests;

use super::FrameId;
use super::Policy;
use super::PolicyInfo;
use super::list::Links;
use super::list::List;
use clusters::Clusters;
use flagstone::settings::{BadSetting, Settings, settings};
use flagstone::units::Lpn;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "cfdc",
    idea: "the oldest clean page outside the working region, else a page of the cheapest cluster",
    paper: "CFDC",
    settings: settings! {
        cluster_pages: "16",
            "pages per cluster of adjacent logical addresses; 16 in public code, 64 in other \
             sources";
        priority: "50", "size of the priority region, in percent of the frames";
    },
};

struct Cfdc {
    links: Links,
    working: List,
    working_max: usize,
    clean: List,
    clusters: Clusters,
    pages: Vec<Page>,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    at: Lpn,
    dirty: bool,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Working,
    Clean,
    Cluster,
}

pub(super) fn start(frames: usize, settings: &Settings) -> Result<Box<dyn Policy>, BadSetting> {
    Ok(Box::new(Cfdc::new(frames, settings)?))
}

impl Cfdc {
    fn new(frames: usize, settings: &Settings) -> Result<Cfdc, BadSetting> {
        let priority = frames * settings.number(&INFO, "priority", 0, 100)? / 100;
        let cluster_pages = settings.number(&INFO, "cluster_pages", 1, u32::MAX)?;
        let nothing = Page {
            at: Lpn(0),
            dirty: false,
            place: Place::Nowhere,
        };
        Ok(Cfdc {
            links: Links::new(frames),
            working: List::EMPTY,
            working_max: (frames - priority).max(1),
            clean: List::EMPTY,
            clusters: Clusters::new(frames, cluster_pages),
            pages: vec![nothing; frames],
        })
    }

    /// Inserts a page at the young end of the working region. Demotes its oldest page if full.
    fn enter(&mut self, frame: FrameId) {
        self.pages[frame.index()].place = Place::Working;
        self.links.push_back(&mut self.working, frame);
        if self.working.len() > self.working_max {
            let oldest = self.working.front().expect("it is too full");
            self.links.remove(&mut self.working, oldest);
            self.demote(oldest);
        }
    }

    /// Moves a page into the priority region: to the clean queue or to its cluster.
    fn demote(&mut self, frame: FrameId) {
        let page = &mut self.pages[frame.index()];
        if page.dirty {
            page.place = Place::Cluster;
            self.clusters.push(frame, page.at);
        } else {
            page.place = Place::Clean;
            self.links.push_back(&mut self.clean, frame);
        }
    }

    /// Removes a page from its region. `promoted` is `true` if a hit moves it to the working
    /// region.
    fn leave(&mut self, frame: FrameId, promoted: bool) {
        let page = self.pages[frame.index()];
        match page.place {
            Place::Working => self.links.remove(&mut self.working, frame),
            Place::Clean => self.links.remove(&mut self.clean, frame),
            Place::Cluster => self.clusters.remove(frame, page.at, promoted),
            Place::Nowhere => unreachable!("the frame is free"),
        }
        self.pages[frame.index()].place = Place::Nowhere;
    }
}

impl Policy for Cfdc {
    fn inserted(&mut self, frame: FrameId, page: Lpn, write: bool) {
        let held = &mut self.pages[frame.index()];
        held.at = page;
        held.dirty = write;
        self.enter(frame);
    }

    fn touched(&mut self, frame: FrameId, write: bool) {
        self.leave(frame, true);
        self.pages[frame.index()].dirty |= write;
        self.enter(frame);
    }

    fn marked(&mut self, frame: FrameId, dirty: bool) {
        let in_working = self.pages[frame.index()].place == Place::Working;
        if !in_working {
            self.leave(frame, false);
        }
        self.pages[frame.index()].dirty = dirty;
        if !in_working {
            self.demote(frame);
        }
    }

    fn removed(&mut self, frame: FrameId) {
        self.leave(frame, false);
    }

    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        let clean = self.links.iter(&self.clean).find(|&frame| may(frame));
        clean
            .or_else(|| self.clusters.victim(may))
            .or_else(|| self.links.iter(&self.working).find(|&frame| may(frame)))
    }

    /// Checks that each list has the pages that say so, and then the clusters.
    fn check(&self) -> Result<(), String> {
        for (place, list) in [(Place::Working, &self.working), (Place::Clean, &self.clean)] {
            let misplaced = self.links.iter(list).find(|frame| {
                let page = self.pages[frame.index()];
                page.place != place || (place == Place::Clean && page.dirty)
            });
            if let Some(FrameId(frame)) = misplaced {
                return Err(format!("frame {frame} does not belong in {place:?}"));
            }
        }
        if self.working.len() > self.working_max {
            return Err(format!(
                "the working region has {} pages",
                self.working.len()
            ));
        }
        self.clusters.check()
    }
}
