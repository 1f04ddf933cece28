//! The clients of a recording. Each runs in a thread with its own connection, until the limit or an
//! error.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::postgres::Config;

use super::{Limit, Observer, Options, RecordError, now};
use crate::postgres::PostgresSession;
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::input::Terminal;
use flagstone_lab::tpcc::mix::{Client, Counts};
use flagstone_lab::tpcc::random::Constants;
use flagstone_lab::tpcc::session::Error;

/// The result of a run of all clients.
pub(super) struct ClientsRun {
    pub(super) counts: Counts,
    pub(super) elapsed: Duration,
}

/// The state that the clients share.
struct Shared {
    stop: AtomicBool,
    /// The number of transactions begun.
    begun: AtomicU64,
    /// The number of transactions ended.
    ended: AtomicU64,
    failure: Mutex<Option<(u32, Error)>>,
    limit: Limit,
    started: Instant,
}

impl Shared {
    /// Whether a client may begin another transaction. If so, counts it.
    fn go_on(&self) -> bool {
        let within_limit = match self.limit {
            Limit::Time(time) => self.started.elapsed() < time,
            Limit::Transactions(count) => self.begun.fetch_add(1, Ordering::Relaxed) < count,
        };
        within_limit && !self.stop.load(Ordering::Relaxed)
    }

    fn fail(&self, client: u32, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failure = self
            .failure
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        failure.get_or_insert((client, error));
    }
}

/// Connects all clients, calls `start` to begin the recording, and then runs the clients.
pub(super) fn run<T>(
    config: &Config,
    options: &Options,
    scale: Scale,
    constants: Constants,
    observer: &dyn Observer,
    start: impl FnOnce() -> Result<T, RecordError>,
) -> Result<(ClientsRun, T), RecordError> {
    observer.step("connecting the clients");
    let connect = |client| {
        PostgresSession::connect(config, options.isolation)
            .map_err(|error| RecordError::Client { client, error })
    };
    let sessions: Vec<PostgresSession> = (0..options.clients)
        .map(connect)
        .collect::<Result<_, _>>()?;

    let watch = start()?;
    observer.step("running");
    let shared = Shared {
        stop: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        failure: Mutex::new(None),
        limit: options.limit,
        started: Instant::now(),
    };
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(sessions)
            .map(|(number, session)| {
                let terminal = Terminal::of_client(number, scale, constants);
                let client = Client::new(number, options.seed, terminal);
                let shared = &shared;
                scope.spawn(move || serve(shared, number, client, session))
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            observer.running(
                shared.ended.load(Ordering::Relaxed),
                shared.started.elapsed(),
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut counts = Counts::default();
        for thread in threads {
            match thread.join() {
                Ok(count) => counts.add(&count),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        counts
    });
    let elapsed = shared.started.elapsed();
    observer.running(shared.ended.load(Ordering::Relaxed), elapsed);
    match shared
        .failure
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
    {
        Some((client, error)) => Err(RecordError::Client { client, error }),
        None => Ok((ClientsRun { counts, elapsed }, watch)),
    }
}

/// The loop of one client's thread.
fn serve(shared: &Shared, number: u32, mut client: Client, mut session: PostgresSession) -> Counts {
    let mut counts = Counts::default();
    while shared.go_on() {
        let request = client.next_request();
        match request.run(&mut session, now()) {
            Ok(outcome) => counts.note(request.kind(), &outcome),
            Err(error) => {
                shared.fail(number, error);
                break;
            }
        }
        shared.ended.fetch_add(1, Ordering::Relaxed);
    }
    counts
}
