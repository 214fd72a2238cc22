//! Tokens to a [`Timespec`], by the grammar of parsetime.y of Debian's at. What POSIX defines beyond it is accepted
//! too, where at rejects it: a bare hour (`16 tomorrow`), four digits with am or pm (`0815am`), spaces around the
//! colon and one digit of minutes (`8 : 5`), `nov 24,2026`, and `next week` as another way to write `+ 1 week`.

use crate::Error;
use crate::error::suggest;
use crate::lexer::{Kind, Period, Token, keywords, tokens};

/// A timespec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timespec {
    pub(crate) base: Base,
    pub(crate) increment: Option<Increment>,
}

impl Timespec {
    /// Whether the time is one of UTC.
    pub(crate) fn is_utc(&self) -> bool {
        matches!(
            self.base,
            Base::At {
                time: Some(Time { utc: true, .. }),
                ..
            }
        )
    }
}

/// What an increment adds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// `now`.
    Now,
    /// A time of day, a date, or both.
    At {
        time: Option<Time>,
        date: Option<Date>,
    },
}

/// A time of day. 24:00 and 15:60 exist, as in at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) utc: bool,
}

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Date {
    /// A day of a month: `month` counts from 0.
    Day {
        year: Option<i64>,
        month: i64,
        day: i64,
    },
    /// The next such day of the week.
    Weekday(i64),
    Today,
    Tomorrow,
    /// One period later.
    Next(Period),
}

/// What is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Increment {
    pub(crate) count: i64,
    pub(crate) period: Period,
}

const TIME_OR_DATE: &str =
    "now, a time such as 16:00 or noon, or a date such as tomorrow, fri or nov 24";
const DATE: &str = "a date such as tomorrow, fri, nov 24 or 2026-11-24";
const DATE_OR_MORE: &str =
    "a date such as tomorrow, fri or nov 24, or + and a period such as + 3 days";
const MORE: &str = "the end, or + and a period such as + 3 days; a time goes before the date";
const PERIOD: &str = "minutes, hours, days, weeks, months or years";

/// The timespec that a text is.
pub(crate) fn parse(text: &str) -> Result<Timespec, Error> {
    let tokens = tokens(text);
    if tokens.is_empty() {
        return Err(Error::Empty);
    }
    // A number may begin a date or a time (`8 nov`, `8 pm`). What at reads as a date is one.
    let mut furthest: Option<Failure> = None;
    for reading in [Reading::Now, Reading::Date, Reading::Time] {
        let mut parser = Parser {
            text,
            tokens: &tokens,
            next: 0,
        };
        match parser.timespec(reading) {
            Ok(timespec) => return Ok(timespec),
            Err(failure) => {
                if furthest
                    .as_ref()
                    .is_none_or(|best| best.rank() < failure.rank())
                {
                    furthest = Some(failure);
                }
            }
        }
    }
    Err(furthest.map_or(Error::Empty, |failure| failure.error(text, &tokens)))
}

/// How a text may begin.
#[derive(Clone, Copy)]
enum Reading {
    Now,
    Date,
    Time,
}

/// Where one reading of the text failed.
enum Failure {
    /// The token of this index is not what is expected.
    Unexpected(usize, &'static str),
    /// The token of this index has an impossible value.
    Invalid(usize, &'static str),
}

impl Failure {
    /// Of several readings, the one is reported that finds a wrong value, else the one that gets furthest.
    fn rank(&self) -> (bool, usize) {
        match self {
            Self::Unexpected(index, _) => (false, *index),
            Self::Invalid(index, _) => (true, *index),
        }
    }

    fn error(self, text: &str, tokens: &[Token]) -> Error {
        match self {
            Self::Invalid(index, problem) => {
                let (start, word) = word(text, tokens.get(index));
                Error::Invalid {
                    word,
                    start,
                    problem,
                }
            }
            Self::Unexpected(0, _) => {
                let (start, word) = word(text, tokens.first());
                let suggestion = suggest(
                    word.trim_start_matches(|c: char| c.is_ascii_digit()),
                    keywords(),
                );
                Error::Unexpected {
                    word,
                    start,
                    expected: TIME_OR_DATE,
                    suggestion,
                }
            }
            Self::Unexpected(index, expected) if index >= tokens.len() => Error::Incomplete {
                word: word(text, tokens.last()).1,
                expected,
            },
            Self::Unexpected(index, expected) => {
                let (start, word) = word(text, tokens.get(index));
                let suggestion = suggest(
                    word.trim_start_matches(|c: char| c.is_ascii_digit()),
                    keywords(),
                );
                Error::Unexpected {
                    word,
                    start,
                    expected,
                    suggestion,
                }
            }
        }
    }
}

/// The word that a token is in, and where it starts: `9am` and `minuts` are words of two tokens and of four.
fn word(text: &str, token: Option<&Token>) -> (usize, String) {
    let Some(span) = token.map(|token| token.span.clone()) else {
        return (0, String::new());
    };
    let (before, inside, after) = (
        text.get(..span.start).unwrap_or_default(),
        text.get(span.clone()).unwrap_or_default(),
        text.get(span.end..).unwrap_or_default(),
    );
    if !inside.starts_with(char::is_alphanumeric) {
        return (span.start, inside.to_owned());
    }
    let start = before.trim_end_matches(char::is_alphanumeric).len();
    let end = text.len() - after.trim_start_matches(char::is_alphanumeric).len();
    (start, text.get(start..end).unwrap_or_default().to_owned())
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    next: usize,
}

impl<'a> Parser<'a> {
    fn timespec(&mut self, reading: Reading) -> Result<Timespec, Failure> {
        let base = match reading {
            Reading::Now => self.now()?,
            Reading::Date => Base::At {
                time: None,
                date: Some(self.date()?),
            },
            Reading::Time => self.time_and_date()?,
        };
        let increment = self.increment()?;
        if self.peek().is_some() {
            let missing = matches!(base, Base::At { date: None, .. }) && increment.is_none();
            return Err(Failure::Unexpected(
                self.next,
                if missing { DATE_OR_MORE } else { MORE },
            ));
        }
        Ok(Timespec { base, increment })
    }

    fn now(&mut self) -> Result<Base, Failure> {
        if self.take(Kind::Now) {
            Ok(Base::Now)
        } else {
            Err(self.unexpected(TIME_OR_DATE))
        }
    }

    fn time_and_date(&mut self) -> Result<Base, Failure> {
        let time = Some(self.time()?);
        let date = match self.peek() {
            None | Some(Kind::Other('+' | '-')) => None,
            // `next week` after a time is a date; at says so, and it is the same as the increment of POSIX.
            Some(_) => Some(self.date().map_err(|failure| match failure {
                Failure::Unexpected(index, DATE) => Failure::Unexpected(index, DATE_OR_MORE),
                other => other,
            })?),
        };
        Ok(Base::At { time, date })
    }

    fn time(&mut self) -> Result<Time, Failure> {
        let start = self.next;
        let utc = false;
        let mut time = match self.peek() {
            Some(Kind::Noon) => Time {
                hour: 12,
                minute: 0,
                utc,
            },
            Some(Kind::Midnight) => Time {
                hour: 0,
                minute: 0,
                utc,
            },
            Some(Kind::Teatime) => Time {
                hour: 16,
                minute: 0,
                utc,
            },
            Some(Kind::Number(1 | 2 | 4) | Kind::HourMinute) => {
                return self.clock(start);
            }
            _ => return Err(self.unexpected(TIME_OR_DATE)),
        };
        self.next += 1;
        time.utc = self.take(Kind::Utc);
        Ok(time)
    }

    /// A time of day in digits.
    fn clock(&mut self, start: usize) -> Result<Time, Failure> {
        let digits = self.text_of_next();
        let bare_hour = matches!(self.peek(), Some(Kind::Number(1 | 2)));
        self.next += 1;
        let (hour, minute) = if bare_hour {
            let minute = if self.take(Kind::Other(':')) {
                match self.peek() {
                    Some(Kind::Number(1 | 2)) => self.take_number(),
                    _ => return Err(self.unexpected("minutes, such as 30")),
                }
            } else {
                0
            };
            (value(digits), minute)
        } else {
            let (hour, minute) = digits
                .split_at_checked(digits.len() - 2)
                .unwrap_or_default();
            (
                value(hour.trim_end_matches(|c: char| !c.is_ascii_digit())),
                value(minute),
            )
        };
        if minute > 60 {
            return Err(Failure::Invalid(start, "minutes are from 0 to 59"));
        }
        if hour > 24 {
            return Err(Failure::Invalid(start, "hours are from 0 to 24"));
        }
        let half = match self.peek() {
            Some(Kind::Am) => Some(0),
            Some(Kind::Pm) => Some(12),
            _ => None,
        };
        let hour = match half {
            Some(_) if hour > 12 => {
                return Err(Failure::Invalid(
                    start,
                    "hours with am or pm are from 1 to 12",
                ));
            }
            Some(half) => {
                self.next += 1;
                hour % 12 + half
            }
            None => hour,
        };
        Ok(Time {
            hour,
            minute,
            utc: self.take(Kind::Utc),
        })
    }

    fn date(&mut self) -> Result<Date, Failure> {
        let index = self.next;
        let Some(kind) = self.peek() else {
            return Err(self.unexpected(DATE));
        };
        let text = self.text_of_next();
        self.next += 1;
        match kind {
            Kind::Today => Ok(Date::Today),
            Kind::Tomorrow => Ok(Date::Tomorrow),
            Kind::Weekday(day) => Ok(Date::Weekday(day)),
            Kind::Next => match self.peek() {
                Some(Kind::Period(period)) => {
                    self.next += 1;
                    Ok(Date::Next(period))
                }
                Some(Kind::Weekday(day)) => {
                    self.next += 1;
                    Ok(Date::Weekday(day))
                }
                _ => Err(self.unexpected("a day such as fri, or week, month or year")),
            },
            Kind::Month(month) => {
                let day = self.day()?;
                let comma = self.take(Kind::Other(','));
                let year = self.year(comma)?;
                Ok(Date::Day { year, month, day })
            }
            Kind::Number(1 | 2) => match self.peek() {
                Some(Kind::Month(month)) => {
                    self.next = index;
                    let day = self.day()?;
                    self.next += 1;
                    Ok(Date::Day {
                        year: self.year(false)?,
                        month,
                        day,
                    })
                }
                Some(Kind::Other('/')) => {
                    let month = month(index, text)?;
                    self.next += 1;
                    let day = self.day()?;
                    if !self.take(Kind::Other('/')) {
                        return Err(self.unexpected("/ and a year, as in 11/24/2026"));
                    }
                    Ok(Date::Day {
                        year: self.year(true)?,
                        month,
                        day,
                    })
                }
                _ => {
                    Err(self.unexpected("am, pm, a month such as nov, or a date such as tomorrow"))
                }
            },
            Kind::Number(len @ 5..=8) => {
                // MMDDYY, or MMDDYYYY; the month may have one digit.
                let (first, rest) = text.split_at_checked(2 - len % 2).unwrap_or_default();
                let (day, digits) = rest.split_at_checked(2).unwrap_or_default();
                date(index, digits, first, day)
            }
            Kind::HyphenDate => {
                let mut parts = text.split('-');
                let mut part = || parts.next().unwrap_or_default();
                let (y, m, d) = (part(), part(), part());
                date(index, y, m, d)
            }
            Kind::DottedDate => {
                let mut parts = text.split('.');
                let mut part = || parts.next().unwrap_or_default();
                let (d, m, y) = (part(), part(), part());
                date(index, y, m, d)
            }
            _ => Err(Failure::Unexpected(index, DATE)),
        }
    }

    /// A day of the month.
    fn day(&mut self) -> Result<i64, Failure> {
        let index = self.next;
        let Some(Kind::Number(1 | 2)) = self.peek() else {
            return Err(self.unexpected("a day of the month, such as 24"));
        };
        let day = self.text_of_next();
        self.next += 1;
        day_of_month(index, day)
    }

    /// A year, if there is one.
    fn year(&mut self, required: bool) -> Result<Option<i64>, Failure> {
        let index = self.next;
        match self.peek() {
            Some(Kind::Number(2 | 4)) => {
                let digits = self.text_of_next();
                self.next += 1;
                year(index, digits).map(Some)
            }
            _ if required => Err(self.unexpected("a year, such as 2026")),
            _ => Ok(None),
        }
    }

    fn increment(&mut self) -> Result<Option<Increment>, Failure> {
        let sign = match self.peek() {
            Some(Kind::Other('+')) => 1,
            Some(Kind::Other('-')) => -1,
            Some(Kind::Next) => {
                self.next += 1;
                let period = self.period()?;
                return Ok(Some(Increment { count: 1, period }));
            }
            _ => return Ok(None),
        };
        self.next += 1;
        let index = self.next;
        let Some(Kind::Number(_)) = self.peek() else {
            return Err(self.unexpected("a number, as in + 3 days"));
        };
        // at reads a number that is too large for an int as another one.
        let count = self
            .text_of_next()
            .parse::<i32>()
            .map_err(|_| Failure::Invalid(index, "the number is too large"))?;
        self.next += 1;
        let period = self.period()?;
        Ok(Some(Increment {
            count: sign * i64::from(count),
            period,
        }))
    }

    fn period(&mut self) -> Result<Period, Failure> {
        match self.peek() {
            Some(Kind::Period(period)) => {
                self.next += 1;
                Ok(period)
            }
            _ => Err(self.unexpected(PERIOD)),
        }
    }

    fn peek(&self) -> Option<Kind> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    fn take(&mut self, kind: Kind) -> bool {
        let found = self.peek() == Some(kind);
        self.next += usize::from(found);
        found
    }

    fn take_number(&mut self) -> i64 {
        let number = value(self.text_of_next());
        self.next += 1;
        number
    }

    fn text_of_next(&self) -> &'a str {
        self.tokens
            .get(self.next)
            .and_then(|token| self.text.get(token.span.clone()))
            .unwrap_or_default()
    }

    fn unexpected(&self, expected: &'static str) -> Failure {
        Failure::Unexpected(self.next, expected)
    }
}

/// The value of at most eight digits.
fn value(digits: &str) -> i64 {
    digits.parse().unwrap_or_default()
}

/// Months after January.
fn month(index: usize, digits: &str) -> Result<i64, Failure> {
    match value(digits) {
        month @ 1..=12 => Ok(month - 1),
        _ => Err(Failure::Invalid(index, "months are from 1 to 12")),
    }
}

/// A date in digits.
fn date(index: usize, y: &str, m: &str, d: &str) -> Result<Date, Failure> {
    Ok(Date::Day {
        year: Some(year(index, y)?),
        month: month(index, m)?,
        day: day_of_month(index, d)?,
    })
}

fn day_of_month(index: usize, digits: &str) -> Result<i64, Failure> {
    match value(digits) {
        day @ 1..=31 => Ok(day),
        _ => Err(Failure::Invalid(index, "days of a month are from 1 to 31")),
    }
}

/// A year: 0 to 69 are those from 2000 on, and 70 to 99 those from 1970 on, however many digits they have.
fn year(index: usize, digits: &str) -> Result<i64, Failure> {
    match value(digits) {
        year @ 0..70 => Ok(2000 + year),
        year @ 70..100 => Ok(1900 + year),
        year if year > 1900 => Ok(year),
        // at counts these from 1900 on: 1850 is the year 3750.
        _ => Err(Failure::Invalid(index, "the year is in the past")),
    }
}
