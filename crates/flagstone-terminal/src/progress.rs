//! Progress of long commands on stderr: a bar on a terminal, and occasional plain lines in a file
//! or pipe, for later reading.

use crate::inside;
use indicatif::{
    FormattedDuration, HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
    TermLike,
};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two updates on a terminal.
const TICK: Duration = Duration::from_millis(250);
/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(10);

/// No estimate before this time: the first steps say little about the others.
const SETTLED: Duration = Duration::from_secs(1);

/// Progress by count. A length of 0 means unknown.
pub fn progress_bar(length: u64, what: &str) -> ProgressBar {
    let bar = progress("{msg:12} {bar:32} {human_pos}/{human_len} {elapsed} {left}");
    bar.set_length(length);
    bar.set_message(what.to_string());
    bar
}

/// Progress as a percentage, for work whose unit means little to a reader. The message says what is
/// being done.
pub fn share_bar(what: &str) -> ProgressBar {
    let bar = shown("{bar:32} {share:>5} {elapsed} {left}  {msg}", share);
    bar.set_length(0);
    bar.set_message(what.to_string());
    bar
}

/// Progress with a `template` for terminals. `{left}` is the remaining time, once it can be
/// estimated.
pub fn progress(template: &str) -> ProgressBar {
    shown(template, count)
}

/// Formats the amount done.
type Amount = fn(&ProgressState) -> String;

/// The amount done, and the total.
fn count(state: &ProgressState) -> String {
    let all = state.len().filter(|&all| all > 0);
    let of = all.map_or(String::new(), |all| format!(" of {}", HumanCount(all)));
    format!("{}{of}", HumanCount(state.pos()))
}

/// The share done.
fn share(state: &ProgressState) -> String {
    match state.len().filter(|&all| all > 0) {
        Some(all) => format!("{} %", state.pos() * 100 / all),
        None => String::new(),
    }
}

fn shown(template: &str, amount: Amount) -> ProgressBar {
    if let Some(program) = inside::program() {
        return program.bar();
    }
    if !io::stderr().is_terminal() {
        let bar = plain(EVERY, amount, Box::new(io::stderr()));
        bar.enable_steady_tick(EVERY);
        return bar;
    }
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let share = move |state: &ProgressState, text: &mut dyn fmt::Write| {
        let _ = text.write_str(&amount(state));
    };
    bar.set_style(style.with_key("left", left).with_key("share", share));
    // Keeps the clock running during long steps.
    bar.enable_steady_tick(TICK);
    bar
}

/// The estimated remaining time.
fn left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if let Some(left) = time_left(state.pos(), state.len().unwrap_or(0), state.elapsed()) {
        let _ = write!(text, "about {} left", FormattedDuration(left));
    }
}

/// The estimated remaining time in whole seconds, at least one; `None` before the rate is known,
/// and when all is done.
fn time_left(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || done >= all || elapsed < SETTLED {
        return None;
    }
    let rest = (all - done) as f64 / done as f64;
    let seconds = elapsed.mul_f64(rest).as_secs_f64().ceil();
    Some(Duration::from_secs(seconds.max(1.0) as u64))
}

/// Plain lines, at most one per `every`, the first after that time.
fn plain(every: Duration, amount: Amount, out: Box<dyn Write + Send>) -> ProgressBar {
    let lines = Lines {
        every,
        page: Mutex::new(Page {
            line: String::new(),
            written: Instant::now(),
            out,
        }),
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::term_like(Box::new(lines)));
    let style = ProgressStyle::with_template("{msg} {so_far}").expect("a constant template");
    let so_far = move |state: &ProgressState, text: &mut dyn fmt::Write| {
        let elapsed = FormattedDuration(state.elapsed());
        let _ = write!(text, "{} in {elapsed}", amount(state));
        let (done, all) = (state.pos(), state.len().unwrap_or(0));
        if time_left(done, all, state.elapsed()).is_some() {
            let _ = text.write_str(", ");
            left(state, text);
        }
    };
    bar.with_style(style.with_key("so_far", so_far))
}

/// A terminal for progress bars that prints plain lines, for output to a file or pipe.
#[derive(Debug)]
struct Lines {
    every: Duration,
    page: Mutex<Page>,
}

struct Page {
    line: String,
    written: Instant,
    out: Box<dyn Write + Send>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("line", &self.line).finish()
    }
}

impl Lines {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TermLike for Lines {
    fn width(&self) -> u16 {
        160
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.page().line.push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut page = self.page();
        let line = std::mem::take(&mut page.line);
        let line = line.trim();
        if line.is_empty() || page.written.elapsed() < self.every {
            return Ok(());
        }
        page.written = Instant::now();
        writeln!(page.out, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn text(&self) -> String {
            let bytes = self.0.lock().expect("nobody panics").clone();
            String::from_utf8(bytes).expect("text")
        }
    }

    fn work(every: Duration, amount: Amount, length: u64) -> String {
        let written = Written::default();
        let bar = plain(every, amount, Box::new(written.clone()));
        // As if it had begun earlier.
        let bar = bar.with_elapsed(2 * SETTLED);
        bar.set_length(length);
        bar.set_message("counting");
        bar.inc(1_000);
        bar.tick();
        bar.finish_and_clear();
        written.text()
    }

    #[test]
    fn a_pipe_gets_plain_lines_with_what_is_left() {
        let text = work(Duration::ZERO, count, 4_000);
        let last = text.lines().last().expect("a line");
        assert!(last.starts_with("counting 1,000 of 4,000 in "), "{text:?}");
        // Three times the two seconds of the first quarter, plus the duration of this test.
        let (_, left) = last.split_once(", about ").expect("what is left");
        let seconds = left
            .strip_prefix("00:00:")
            .and_then(|left| left.strip_suffix(" left"));
        let seconds: u64 = seconds.and_then(|s| s.parse().ok()).expect("seconds");
        assert!((6..30).contains(&seconds), "{text:?}");
        assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
    }

    #[test]
    fn nothing_is_promised_of_an_unknown_length() {
        let text = work(Duration::ZERO, count, 0);
        assert!(text.contains("counting 1,000 in "), "{text:?}");
        assert!(!text.contains("left"), "{text:?}");
    }

    #[test]
    fn a_share_says_nothing_of_its_unit() {
        let text = work(Duration::ZERO, share, 4_000);
        let last = text.lines().last().expect("a line");
        assert!(last.starts_with("counting 25 % in "), "{text:?}");
    }

    #[test]
    fn no_time_is_promised_that_is_none_or_too_soon() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(1, 1_000_000, second / 2), None);
        assert_eq!(time_left(0, 1_000_000, second), None);
        assert_eq!(time_left(999_999, 1_000_000, second), Some(second));
        assert_eq!(time_left(1, 4, second), Some(3 * second));
        assert_eq!(time_left(4, 4, second), None);
    }

    #[test]
    fn nothing_is_promised_before_the_first_step() {
        let written = Written::default();
        let bar = plain(Duration::ZERO, count, Box::new(written.clone()));
        bar.set_length(4_000);
        bar.tick();
        bar.finish_and_clear();
        let text = written.text();
        assert!(text.contains("0 of 4,000"), "{text:?}");
        assert!(!text.contains("left"), "{text:?}");
    }

    #[test]
    fn what_is_soon_over_says_nothing() {
        assert_eq!(work(Duration::from_secs(3600), count, 4_000), "");
    }
}
