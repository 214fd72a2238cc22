//! A log that is read in several pieces, since connections break: without a line lost or shown twice.
//!
//! The API can begin a log at a time, in whole seconds, and put the time of each line before it. So a piece is requested
//! from the second of the last line that was seen, and what was seen is left out again: earlier lines, as many lines of the
//! very same time as were seen, and as much of an unfinished line.

use jiff::Timestamp;

/// No time is longer than this.
const MAX_STAMP: usize = 64;

/// How far a log was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The time of the last line.
    last: Option<Timestamp>,
    /// How many complete lines of this time there were.
    complete: usize,
    /// How many bytes of an incomplete line after them.
    partial: usize,
}

impl Progress {
    /// From when on the next piece is requested.
    pub(super) fn since(&self) -> Option<Timestamp> {
        let last = self.last?;
        Timestamp::from_second(last.as_second()).ok()
    }
}

/// Where in a piece the next byte is.
#[derive(Debug)]
enum Place {
    /// In the time before a line.
    Stamp(Vec<u8>),
    /// In a line that was seen.
    Seen,
    /// In a line of which so many bytes were seen.
    HalfSeen(usize),
    /// In a new line.
    New,
}

/// One piece of the log.
#[derive(Debug)]
pub(super) struct Piece {
    from: Progress,
    /// Lines of the time of `from` in this piece.
    equal: usize,
    place: Place,
}

impl Piece {
    /// A piece that was requested after `progress`.
    pub(super) fn new(progress: &Progress) -> Self {
        Self {
            from: progress.clone(),
            equal: 0,
            place: Place::Stamp(Vec::new()),
        }
    }

    /// The new text in these bytes.
    pub(super) fn read(&mut self, bytes: &[u8], progress: &mut Progress) -> Vec<u8> {
        let mut new = Vec::new();
        for &byte in bytes {
            let ends = byte == b'\n';
            match &mut self.place {
                Place::Stamp(stamp) if byte == b' ' || ends || stamp.len() >= MAX_STAMP => {
                    let text = std::mem::take(stamp);
                    let time = std::str::from_utf8(&text)
                        .ok()
                        .and_then(|it| it.parse().ok());
                    self.place = self.begin(time, progress);
                    if time.is_none() {
                        // No time, so this is text.
                        new.extend_from_slice(&text);
                        new.push(byte);
                    } else if ends && !matches!(self.place, Place::Seen) {
                        // An empty line, of which some kubelets cut off the blank.
                        new.push(byte);
                        progress.complete += 1;
                    }
                }
                Place::Stamp(stamp) => {
                    stamp.push(byte);
                    continue;
                }
                Place::Seen => {}
                Place::HalfSeen(left) if *left > 0 => *left -= 1,
                Place::HalfSeen(_) | Place::New => {
                    new.push(byte);
                    progress.partial += 1;
                    if ends {
                        (progress.complete, progress.partial) = (progress.complete + 1, 0);
                    }
                }
            }
            if ends {
                self.place = Place::Stamp(Vec::new());
            }
        }
        new
    }

    /// What to do with the line of this time.
    fn begin(&mut self, time: Option<Timestamp>, progress: &mut Progress) -> Place {
        let Some(time) = time else {
            return Place::New;
        };
        if let Some(last) = self.from.last {
            if time < last {
                return Place::Seen;
            }
            if time == last {
                self.equal += 1;
                if self.equal <= self.from.complete {
                    return Place::Seen;
                }
                if self.equal == self.from.complete + 1 && self.from.partial > 0 {
                    return Place::HalfSeen(self.from.partial);
                }
            }
        }
        if progress.last != Some(time) {
            *progress = Progress {
                last: Some(time),
                ..Progress::default()
            };
        }
        Place::New
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Lines of a log with their times, as the API sends them from `since` on.
    fn sent(log: &[(u32, &str)], since: Option<Timestamp>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tenths, line) in log {
            let time = format!("2026-11-27T12:47:{:02}.{}Z", tenths / 10, tenths % 10);
            if since.is_none_or(|since| time.parse::<Timestamp>().unwrap() >= since) {
                bytes.extend_from_slice(format!("{time} {line}\n").as_bytes());
            }
        }
        bytes
    }

    #[test]
    fn wherever_a_connection_breaks_the_whole_log_is_shown_once() {
        let log = [
            (10, "one"),
            (10, "one"),
            (10, ""),
            (12, "two"),
            (12, "two"),
            (19, "three is longer"),
            (20, "four"),
            (20, "four"),
            (35, "five"),
        ];
        let lines: Vec<&str> = log.iter().map(|(_, line)| *line).collect();
        let whole = lines.join("\n") + "\n";
        let len = sent(&log, None).len();
        for first in 0..=len {
            for second in (first % 13..=len).step_by(13) {
                let (mut progress, mut shown) = (Progress::default(), Vec::new());
                for limit in [first, second, len] {
                    let bytes = sent(&log, progress.since());
                    let mut piece = Piece::new(&progress);
                    for part in bytes[..limit.min(bytes.len())].chunks(7) {
                        shown.extend(piece.read(part, &mut progress));
                    }
                }
                assert_eq!(String::from_utf8(shown).unwrap(), whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn what_has_no_time_is_shown_as_it_is() {
        let mut progress = Progress::default();
        let mut piece = Piece::new(&progress);
        let text = format!(
            "unable to retrieve container logs\n{}\nx\n",
            "y".repeat(200)
        );
        let shown = piece.read(text.as_bytes(), &mut progress);
        assert_eq!(String::from_utf8(shown).unwrap(), text);
    }

    #[test]
    fn a_stored_log_in_another_zone_is_in_order_all_the_same() {
        let mut progress = Progress::default();
        let mut piece = Piece::new(&progress);
        let shown = piece.read(b"2026-11-27T13:47:01.5+01:00 a\n", &mut progress);
        assert_eq!(shown, b"a\n");
        assert_eq!(
            progress.since().unwrap().to_string(),
            "2026-11-27T12:47:01Z"
        );
        let mut piece = Piece::new(&progress);
        let again = b"2026-11-27T12:47:01.5Z a\n2026-11-27T12:47:02Z b\n";
        assert_eq!(piece.read(again, &mut progress), b"b\n");
    }
}
