//! Threads that read and write runs of pages, to keep several requests in flight.

use super::aligned::Aligned;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A request: a buffer and its offset.
pub(super) struct Job {
    pub(super) offset: u64,
    pub(super) buffer: Aligned,
    pub(super) write: bool,
    /// Place of the request's first page among the pages of the call.
    pub(super) index: usize,
}

/// Executes a request. Bytes beyond the end of the file read as zeros.
pub(super) fn carry_out(file: &File, job: &mut Job) -> io::Result<()> {
    if job.write {
        return file.write_all_at(job.buffer.as_slice(), job.offset);
    }
    let into = job.buffer.as_mut();
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], job.offset + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    into[read..].fill(0);
    Ok(())
}

/// A thread pool. The threads end when it is dropped.
pub(super) struct Workers {
    jobs: Option<Sender<Job>>,
    done: Receiver<(Job, io::Result<()>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads that carry out requests for a file.
    pub(super) fn start(file: &Arc<File>, threads: usize) -> Workers {
        let (jobs, todo) = channel::<Job>();
        let (finished, done) = channel();
        let todo = Arc::new(Mutex::new(todo));
        let threads = (0..threads)
            .map(|_| {
                let (file, todo, finished) = (file.clone(), todo.clone(), finished.clone());
                std::thread::spawn(move || {
                    loop {
                        let job = todo.lock().expect("no thread panics here").recv();
                        let Ok(mut job) = job else { return };
                        let result = carry_out(&file, &mut job);
                        if finished.send((job, result)).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        Workers {
            jobs: Some(jobs),
            done,
            threads,
        }
    }

    /// Executes requests concurrently, and passes each to `each` when it is done. Returns the first
    /// error after all have ended.
    pub(super) fn carry_out(&self, jobs: Vec<Job>, mut each: impl FnMut(Job)) -> io::Result<()> {
        let count = jobs.len();
        let sender = self.jobs.as_ref().expect("until it is dropped");
        for job in jobs {
            sender.send(job).expect("the threads wait for jobs");
        }
        let mut outcome = Ok(());
        for _ in 0..count {
            let (job, result) = self.done.recv().expect("the threads answer each job");
            each(job);
            if outcome.is_ok() {
                outcome = result;
            }
        }
        outcome
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic was already reported when it happened.
            let _ = thread.join();
        }
    }
}
