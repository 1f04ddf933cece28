//! The thread that owns the disk. All connections send their requests to it.
//!
//! So all connections see one disk, and a flush on one of them makes the writes of all durable.
//! Requests are executed in the order of their arrival. Flushes that arrive meanwhile share one
//! commit.

use crate::settings::{Serve, Settings};
use flagstone::units::Nanos;
use flagstone_store::{PageStore, Pages, StoreError, Volume};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of requests in a batch. The flushes of a batch share one commit.
const BATCH: usize = 64;

/// Typical delay of a sleeping thread's wake-up.
const OVERSLEEP: Duration = Duration::from_micros(100);

/// Pages that may simulate how long operations take.
pub(crate) trait Timed {
    /// Begins a request that arrives at `at`.
    fn start(&mut self, at: Nanos) {
        let _ = at;
    }

    /// The instant at which the request is done.
    fn done(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// A store's operations take real time.
impl Timed for PageStore {}

/// A request of a connection.
pub(crate) enum What {
    Read {
        at: u64,
        bytes: usize,
    },
    Write {
        at: u64,
        data: Vec<u8>,
    },
    Trim {
        at: u64,
        bytes: u64,
    },
    /// Which parts of a range may hold data: at most `most` parts, from `at` on.
    Parts {
        at: u64,
        bytes: u64,
        most: usize,
    },
    Flush,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Bytes(Vec<u8>),
    /// See [`Volume::parts`].
    Parts(Vec<(u64, u64, bool)>),
}

/// The error of a failed request.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    /// The system's error number.
    pub(crate) errno: i32,
    /// Description of the error.
    pub(crate) why: String,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        let errno = match &error {
            StoreError::Full(_) => libc::ENOSPC,
            StoreError::ReadOnly => libc::EROFS,
            StoreError::Options(_) => libc::EINVAL,
            StoreError::Io { error, .. } => match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => libc::ENOSPC,
                Some(libc::ENOMEM) => libc::ENOMEM,
                // NBD has few error numbers. nbdkit maps others to EINVAL, as if the request were
                // invalid.
                _ => libc::EIO,
            },
            _ => libc::EIO,
        };
        let why = error.to_string();
        Refusal { errno, why }
    }
}

type Reply = (Result<Answer, Refusal>, Nanos);

struct Request {
    what: What,
    /// Whether to answer only when the request is durable.
    is_durable: bool,
    reply: SyncSender<Reply>,
}

/// A handle to the thread.
pub(crate) struct Service {
    requests: Sender<Request>,
    thread: JoinHandle<Result<(), String>>,
    size: u64,
    /// The start of the disk's virtual time, if requests take simulated time.
    began: Option<Instant>,
}

impl Service {
    /// Opens and serves the disk.
    pub(crate) fn start(settings: Settings, readonly: bool) -> Result<Service, String> {
        let (requests, asked) = channel();
        let (opened, size) = sync_channel(1);
        let began = settings.takes_time().then(Instant::now);
        let thread = std::thread::spawn(move || {
            let server = Server {
                asked,
                opened: opened.clone(),
                began,
            };
            settings.open(readonly, server).inspect_err(|why| {
                // If the disk was opened already, nobody receives this.
                let _ = opened.send(Err(why.clone()));
            })
        });
        let size = size
            .recv()
            .map_err(|_| "the thread of the disk ended".to_string())??;
        Ok(Service {
            requests,
            thread,
            size,
            began,
        })
    }

    /// Size of the disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Executes a request and waits for it; with `is_durable`, until it is durable.
    pub(crate) fn ask(&self, what: What, is_durable: bool) -> Result<Answer, Refusal> {
        let (reply, answer) = sync_channel(1);
        let sent = self.requests.send(Request {
            what,
            is_durable,
            reply,
        });
        let gone = || Refusal {
            errno: libc::EIO,
            why: "the disk is no longer served: restart nbdkit".into(),
        };
        sent.map_err(|_| gone())?;
        let (answer, done) = answer.recv().map_err(|_| gone())?;
        if let Some(began) = self.began {
            wait_until(began + Duration::from_nanos(done.0));
        }
        answer
    }

    /// Flushes and closes the disk.
    pub(crate) fn end(self) -> Result<(), String> {
        drop(self.requests);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err("the thread of the disk panicked".into()))
    }
}

fn wait_until(done: Instant) {
    loop {
        let left = done.saturating_duration_since(Instant::now());
        match left.checked_sub(OVERSLEEP) {
            Some(sleep) => std::thread::sleep(sleep),
            None if left.is_zero() => return,
            None => std::thread::yield_now(),
        }
    }
}

/// State of the thread besides the disk.
struct Server {
    asked: Receiver<Request>,
    opened: SyncSender<Result<u64, String>>,
    began: Option<Instant>,
}

impl Server {
    fn now(&self) -> Nanos {
        let since = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        Nanos(since.as_nanos() as u64)
    }
}

impl Serve for Server {
    fn serve<P: Pages + Timed>(self, mut disk: Volume<P>) -> Result<(), String> {
        let _ = self.opened.send(Ok(disk.size()));
        while let Ok(first) = self.asked.recv() {
            let more: Vec<Request> = self.asked.try_iter().take(BATCH - 1).collect();
            let mut to_flush = Vec::new();
            for request in std::iter::once(first).chain(more) {
                disk.pages_mut().start(self.now());
                let flushes = request.is_durable || matches!(request.what, What::Flush);
                let answer = carry_out(&mut disk, request.what).map_err(Refusal::from);
                if flushes && answer.is_ok() {
                    to_flush.push(request.reply);
                } else {
                    // A client that closed its connection needs no answer.
                    _ = request.reply.send((answer, disk.pages().done()));
                }
            }
            if !to_flush.is_empty() {
                disk.pages_mut().start(self.now());
                let flushed = disk.flush().map_err(Refusal::from);
                for reply in to_flush {
                    let answer = flushed.clone().map(|()| Answer::Done);
                    let _ = reply.send((answer, disk.pages().done()));
                }
            }
        }
        disk.close().map_err(|error| error.to_string())
    }
}

/// Executes a request other than a flush.
fn carry_out<P: Pages>(disk: &mut Volume<P>, what: What) -> Result<Answer, StoreError> {
    match what {
        What::Read { at, bytes } => {
            let mut into = vec![0; bytes];
            disk.read(at, &mut into)?;
            return Ok(Answer::Bytes(into));
        }
        What::Parts { at, bytes, most } => {
            let parts = disk.parts(at, bytes)?;
            return Ok(Answer::Parts(parts.take(most).collect()));
        }
        What::Write { at, data } => disk.write(at, &data)?,
        What::Trim { at, bytes } => disk.trim(at, bytes)?,
        What::Flush => {}
    }
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn settings(keys: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in keys {
            settings.set(key, value).expect("a key");
        }
        settings
    }

    /// Threads write to separate parts and flush. Flushed data must survive the death of the
    /// process; here the store is copied in its present state, as after a crash.
    #[test]
    fn a_flush_makes_durable_what_any_connection_wrote() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.flag");
        let name = path.to_str().expect("it is text");
        let served = settings(&[("file", name), ("size", "4M")]);
        let service = Arc::new(Service::start(served, false).expect("it is served"));
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let service = Arc::clone(&service);
                std::thread::spawn(move || {
                    for round in 0..20_u64 {
                        let at = (thread * 20 + round) * 8192 + 512 * thread;
                        let data = vec![(thread * 20 + round + 1) as u8; 5000];
                        service
                            .ask(What::Write { at, data }, round % 5 == 0)
                            .expect("room");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it wrote");
        }
        service.ask(What::Flush, false).expect("room");
        let copy = folder.path().join("copy.flag");
        std::fs::copy(&path, &copy).expect("a copy");
        let copied = settings(&[("file", copy.to_str().expect("text"))]);
        for settings in [settings(&[]), copied] {
            let other = (settings != Settings::default())
                .then(|| Service::start(settings, true).expect("it is served"));
            let from = other.as_ref().unwrap_or(&service);
            for number in 0..80_u64 {
                let at = number * 8192 + 512 * (number / 20);
                let read = from
                    .ask(What::Read { at, bytes: 5000 }, false)
                    .expect("it reads");
                let Answer::Bytes(bytes) = read else {
                    panic!("no bytes")
                };
                assert!(
                    bytes.iter().all(|&byte| byte == number as u8 + 1),
                    "{number}"
                );
            }
            if let Some(other) = other {
                let data = vec![1];
                let refused = other
                    .ask(What::Write { at: 0, data }, false)
                    .expect_err("reading");
                assert_eq!(refused.errno, libc::EROFS);
                other.end().expect("it closes");
            }
        }
        let refused = service.ask(
            What::Read {
                at: 4 << 20,
                bytes: 1,
            },
            false,
        );
        assert_eq!(refused.expect_err("beyond").errno, libc::EINVAL);
        Arc::into_inner(service)
            .expect("the last")
            .end()
            .expect("it closes");
    }

    /// A removed disk is not an error of the request: a client was once told EINVAL.
    #[test]
    fn errors_of_the_medium_are_those_that_a_client_can_be_told() {
        for (errno, expected) in [
            (libc::ENODEV, libc::EIO),
            (libc::ETIMEDOUT, libc::EIO),
            (libc::EIO, libc::EIO),
            (libc::EDQUOT, libc::ENOSPC),
            (libc::ENOSPC, libc::ENOSPC),
        ] {
            let error = std::io::Error::from_raw_os_error(errno);
            let what = "writing a page".to_string();
            let refusal = Refusal::from(StoreError::Io { what, error });
            assert_eq!(refusal.errno, expected, "{}", refusal.why);
        }
    }

    /// Requests take time on a simulated device, and none without `timing`.
    #[test]
    fn requests_wait_as_long_as_the_device_would() {
        for timing in ["on", "off"] {
            let keys = [("device", "small"), ("size", "8M"), ("timing", timing)];
            let service = Service::start(settings(&keys), false).expect("it is served");
            let data = vec![1; 1 << 20];
            let began = Instant::now();
            for _ in 0..10 {
                let data = data.clone();
                service
                    .ask(What::Write { at: 0, data }, true)
                    .expect("room");
            }
            // 2560 pages at 200 us, on sixteen planes.
            let took = began.elapsed();
            let least = Duration::from_millis(2560 / 5 / 16);
            assert!(
                (took >= least) == (timing == "on"),
                "timing={timing}: {took:?}"
            );
            service.end().expect("it closes");
        }
    }
}
