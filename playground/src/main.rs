//! What the playground of the documentation runs (docs/playground.md): it reads a question from standard input, and writes
//! the answer to standard output, both as JSON.
//!
//! [`admit`] has manifests judged as `my-operator admit` does it, [`at`] has times read as `kubectl at` does it. Nothing is
//! decided here. In a browser, `playground.mjs` runs this program as a command of WASI, whose standard streams and clock it
//! provides: so there is no glue to generate, and no unsafe code.

mod admit;
mod at;

use std::io::{self, Read as _, Write as _};

use serde::Deserialize;

/// What the page asks. `now` is the browser's clock, in milliseconds since 1970.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Question {
    /// What `my-operator admit -f -` says of this text.
    Admit { manifest: String, now: i64 },
    /// When `kubectl at` would have a command run in this time zone.
    At {
        timespec: String,
        zone: String,
        now: i64,
    },
    /// The samples of all kinds.
    Samples,
}

fn main() -> io::Result<()> {
    let mut question = String::new();
    io::stdin().read_to_string(&mut question)?;
    let answer = match serde_json::from_str(&question)? {
        Question::Admit { manifest, now } => {
            serde_json::to_string(&admit::answer(&manifest, now)?)?
        }
        Question::At {
            timespec,
            zone,
            now,
        } => serde_json::to_string(&at::answer(&timespec, &zone, now))?,
        Question::Samples => serde_json::to_string(&admit::samples())?,
    };
    io::stdout().write_all(answer.as_bytes())
}
