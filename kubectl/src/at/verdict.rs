//! What the operator finds of the pod of a new At while there is time to correct it.

use std::io::{self, Write as _};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use my_operator::kinds::at::POD_ACCEPTED;
use tokio::time;

use super::object::{self, Item};
use crate::connection::{Connection, Failure};
use crate::terminal;

/// The operator dry-runs the pod of what is due later than in a minute.
const MIN_TIME_LEFT: SignedDuration = SignedDuration::from_secs(65);
/// It usually does within a second.
const TIMEOUT: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(200);

/// Warns if the pod of this At would be refused, as far as the operator says so at once.
pub(super) async fn warn(
    connection: &Connection,
    name: &str,
    due: Timestamp,
) -> Result<(), Failure> {
    if due.duration_since(Timestamp::now()) < MIN_TIME_LEFT {
        return Ok(());
    }
    let refusal = time::timeout(TIMEOUT, refusal(connection, name)).await;
    if let Some(message) = refusal.ok().flatten() {
        writeln!(
            io::stderr(),
            "Warning: the pod of at/{} would be refused: {}",
            terminal::harmless(name),
            terminal::harmless(&message)
        )?;
    }
    Ok(())
}

/// What the dry run of the pod has shown, unless it succeeded. A user who may create Ats need not be allowed to read them.
async fn refusal(connection: &Connection, name: &str) -> Option<String> {
    loop {
        let text = object::get(connection, name).await.ok()?;
        let status = Item::read(&text).ok()?.status;
        let mut conditions = status.conditions.into_iter();
        let refused = conditions.find(|condition| condition.type_ == POD_ACCEPTED);
        if refused.is_some() || status.dry_run_generation.is_some() {
            return refused.map(|refused| refused.message);
        }
        time::sleep(INTERVAL).await;
    }
}
