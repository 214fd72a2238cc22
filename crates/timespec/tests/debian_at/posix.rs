//! Forms of POSIX that at rejects, in the words of at: `16 tomorrow` is `16:00 tomorrow`.

/// The text in words of at, in ways that change more and more of it: at knows `8 nov` and `16:00 next day`, and needs
/// help with `8 next day` and with `now next day`.
pub(crate) fn in_words_of_at(text: &str) -> [String; 4] {
    let text = year_after_comma(text.trim_start());
    let with_increment = increment(&text);
    let with_time = time(&text);
    let with_both = increment(&with_time);
    [text, with_increment, with_time, with_both]
}

/// `now next day` is `now + 1 day`.
fn increment(text: &str) -> String {
    match text.to_lowercase().rfind("next") {
        Some(start) => format!("{} + 1 {}", &text[..start], &text[start + 4..]),
        None => text.to_owned(),
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn starts_with(text: &str, words: &[&str]) -> bool {
    let text = text.trim_start().to_lowercase();
    words.iter().any(|word| text.starts_with(word))
}

/// `8` is `8:00`, `8 : 5` is `8:05`, and `0815am` is `08:15am`.
fn time(text: &str) -> String {
    let (hour, rest) = text.split_at(digits(text));
    match hour.len() {
        1 | 2 => {
            if let Some(minute) = rest.trim_start().strip_prefix(':').map(str::trim_start) {
                let (minute, rest) = minute.split_at(digits(minute));
                if matches!(minute.len(), 1 | 2) {
                    return format!("{hour}:{minute:0>2}{rest}");
                }
            } else if !starts_with(rest, &["am", "pm"]) {
                return format!("{hour}:00 {rest}");
            }
            text.to_owned()
        }
        4 if starts_with(rest, &["am", "pm"]) => format!("{}:{}{rest}", &hour[..2], &hour[2..]),
        _ => text.to_owned(),
    }
}

/// `nov 24,2027` is `nov 24, 2027`.
fn year_after_comma(text: &str) -> String {
    let Some((date, year)) = text.rsplit_once(',') else {
        return text.to_owned();
    };
    let month = date.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_date = month.len() < date.len() && month.trim_end().ends_with(char::is_alphabetic);
    if is_date {
        format!("{date}, {year}")
    } else {
        text.to_owned()
    }
}
