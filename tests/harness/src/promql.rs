//! What an expression of PromQL asks for, for the tests of alerts and dashboards. Whether Prometheus can read it,
//! promtool says.

use std::collections::BTreeSet;

/// What PromQL has of its own among the words that are not functions (those have a parenthesis behind).
const WORDS: [&str; 10] = [
    "and",
    "or",
    "unless",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "by",
];
/// The words before a list of labels.
const BEFORE_LABELS: [&str; 6] = [
    "by",
    "on",
    "without",
    "ignoring",
    "group_left",
    "group_right",
];

/// What an expression asks for.
#[derive(Debug, Default)]
pub struct Queried {
    /// Its selectors in their order.
    pub selectors: Vec<Selector>,
    /// The labels by which it groups or joins.
    pub grouped: BTreeSet<String>,
    /// The ranges, such as `5m`.
    pub ranges: BTreeSet<String>,
}

/// A selector of series.
#[derive(Debug, Default)]
pub struct Selector {
    /// The metric; empty if only labels select.
    pub metric: String,
    /// The labels that its matchers name.
    pub labels: BTreeSet<String>,
}

impl Queried {
    /// Reads an expression that Prometheus can read.
    pub fn of(expression: &str) -> Self {
        let mut queried = Self::default();
        let mut rest = expression;
        while let Some(c) = rest.chars().next() {
            let read = match c {
                '{' => queried.selector("", rest),
                '[' => {
                    let end = rest.find(']').unwrap();
                    queried.ranges.insert(rest[1..end].to_owned());
                    end + 1
                }
                '"' => rest[1..].find('"').unwrap() + 2,
                c if is_word(c) => queried.word(rest),
                c => c.len_utf8(),
            };
            rest = &rest[read..];
        }
        queried
    }

    /// The names of its metrics.
    pub fn metrics(&self) -> BTreeSet<&str> {
        let names = self.selectors.iter().map(|one| one.metric.as_str());
        names.collect()
    }

    /// Reads what begins with a word. Returns its length.
    fn word(&mut self, text: &str) -> usize {
        let word = &text[..text.find(|c: char| !is_word(c)).unwrap_or(text.len())];
        let behind = &text[word.len()..];
        let after = behind.trim_start();
        let is_list = after.starts_with('(');
        if BEFORE_LABELS.contains(&word) && is_list {
            let (start, end) = (text.find('(').unwrap(), text.find(')').unwrap());
            let labels = text[start + 1..end].split(',').map(str::trim);
            let labels = labels.filter(|label| !label.is_empty());
            self.grouped.extend(labels.map(str::to_owned));
            return end + 1;
        }
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let is_function = is_list || after.starts_with("by (") || after.starts_with("without (");
        if is_number || is_function || WORDS.contains(&word) {
            return word.len();
        }
        word.len() + self.selector(word, behind)
    }

    /// Reads the matchers behind the name of a metric, if there are any. Returns their length.
    fn selector(&mut self, metric: &str, behind: &str) -> usize {
        let end = if behind.starts_with('{') {
            let mut is_quoted = false;
            let mut ends = behind.char_indices().filter(|(_, c)| {
                is_quoted ^= *c == '"';
                *c == '}' && !is_quoted
            });
            ends.next().unwrap().0 + 1
        } else {
            0
        };
        // What is left of `{a=~"x",b="y"}` outside of the quotes: `{a=~` `,b=` `}`.
        let names = behind[..end].split('"').step_by(2);
        let names = names.map(|name| name.trim_matches(|c: char| !is_word(c)));
        let names = names.filter(|name| !name.is_empty());
        self.selectors.push(Selector {
            metric: metric.to_owned(),
            labels: names.map(str::to_owned).collect(),
        });
        end
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}
