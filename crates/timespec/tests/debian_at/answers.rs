//! What at answers: from its program, or from the committed file.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;

use crate::cases::{Case, Form, zone_named};

/// at's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An instant, in seconds since 1970.
    Instant(i64),
    /// "refusing to create job destined in the past"
    Past,
    /// "Garbled time"
    Garbled,
}

/// A case with its answer, and with that to the same in the form that at knows, if it does not know this one.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) case: Case,
    pub(crate) answer: Answer,
    pub(crate) twin: Option<(String, Answer)>,
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "past" => Ok(Self::Past),
            "garbled" => Ok(Self::Garbled),
            number => number
                .parse()
                .map(Self::Instant)
                .map_err(|_| format!("at answered {text:?}")),
        }
    }
}

/// Answers of at's own parser, built by hack/timespec-oracle.
pub(crate) fn ask(oracle: &str, cases: &[Case]) -> Vec<Answer> {
    let mut child = Command::new(oracle)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle starts");
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = cases
        .iter()
        .map(
            |Case {
                 zone,
                 now,
                 form,
                 text,
             }| {
                let form = if *form == Form::Touch { "t" } else { "w" };
                format!("{zone}\t{now}\t{form}\t{text}\n")
            },
        )
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the oracle failed");
    let answers: Vec<Answer> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(answers.len(), cases.len());
    answers
}

/// Asks at about cases, and about their twins where it does not know the form.
pub(crate) fn answered(oracle: &str, cases: Vec<Case>) -> Vec<Answered> {
    let answers = ask(oracle, &cases);
    let twins: Vec<Case> = cases
        .iter()
        .flat_map(|case| {
            crate::posix::in_words_of_at(&case.text).map(|text| Case {
                text,
                ..case.clone()
            })
        })
        .collect();
    let twins: Vec<(Case, Answer)> = twins.iter().cloned().zip(ask(oracle, &twins)).collect();
    cases
        .into_iter()
        .zip(answers)
        .zip(twins.as_chunks::<4>().0)
        .map(|((case, answer), twins)| {
            let unknown = answer == Answer::Garbled && case.form == Form::Words;
            let known = twins
                .iter()
                .find(|(_, answer)| unknown && *answer != Answer::Garbled);
            let twin = known.map(|(twin, answer)| (twin.text.clone(), *answer));
            Answered { case, answer, twin }
        })
        .collect()
}

/// An answer in the file: an instant is counted in seconds from now.
fn short(answer: Answer, now: i64) -> String {
    match answer {
        Answer::Instant(instant) => (instant - now).to_string(),
        Answer::Past => "past".to_owned(),
        Answer::Garbled => "garbled".to_owned(),
    }
}

fn long(text: &str, now: i64) -> Answer {
    match text.parse().unwrap() {
        Answer::Instant(seconds) => Answer::Instant(seconds + now),
        other => other,
    }
}

/// The file's lines, one for each case and one before all of the same zone and "now".
impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            now, form, text, ..
        } = &self.case;
        let flag = if *form == Form::Touch { "-t " } else { "" };
        write!(f, "{}\t{flag}{text}", short(self.answer, *now))?;
        match &self.twin {
            Some((text, answer)) => write!(f, "\t{}\t{text}", short(*answer, *now)),
            None => Ok(()),
        }
    }
}

/// The cases of a file.
pub(crate) fn read(file: &str) -> Vec<Answered> {
    let mut place = None;
    let mut cases = Vec::new();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        if let Some((zone, now)) = line
            .strip_prefix("= ")
            .and_then(|line| line.split_once(' '))
        {
            place = Some((zone_named(zone), now.parse().unwrap()));
            continue;
        }
        let (zone, now) = place.expect("a zone and a time before the first case");
        let mut parts = line.split('\t');
        let answer = long(parts.next().unwrap(), now);
        let text = parts.next().unwrap();
        let (form, text) = text
            .strip_prefix("-t ")
            .map_or((Form::Words, text), |text| (Form::Touch, text));
        let twin = parts
            .next()
            .map(|answer| (parts.next().unwrap().to_owned(), long(answer, now)));
        cases.push(Answered {
            case: Case {
                zone,
                now,
                form,
                text: text.to_owned(),
            },
            answer,
            twin,
        });
    }
    cases
}

/// The file of these cases.
pub(crate) fn write(cases: &[Answered]) -> String {
    let mut file = String::new();
    let mut place = None;
    for answered in cases {
        let here = (answered.case.zone, answered.case.now);
        if place.replace(here) != Some(here) {
            file += &format!("= {} {}\n", here.0, here.1);
        }
        file += &format!("{answered}\n");
    }
    file
}
