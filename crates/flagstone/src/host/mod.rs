//! The host side: what a database does above the transactional device. It sees logical pages and
//! transactions, and never spare areas or physical pages.

pub mod locks;
