//! Follows one object, across connections.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource as _;
use kube::core::params::WatchParams;
use kube::core::{Request, WatchEvent};
use my_operator_at::crd::{At, AtObject};
use resilient_kube_client::backoff::Exponential;
use tokio::sync::mpsc::Sender;
use tokio::time;

use super::News;
use crate::at::object::{self, Item};
use crate::connection::{Connection, Failure};

/// The server ends a watch after this time, so that a silent one is noticed.
const WATCH_SECONDS: u32 = 60;
const SILENCE: Duration = Duration::from_secs(75);
const PAUSES: Exponential = Exponential {
    first: Duration::from_millis(500),
    max: Duration::from_secs(10),
};

/// Reports every state of the object, until it is gone or over, or the receiver is.
pub(super) async fn run(connection: Connection, name: String, sender: Sender<News>) {
    let mut uid: Option<String> = None;
    let mut failures = 0;
    loop {
        let failure = match look(&connection, &name, &mut uid, &sender).await {
            Ok(Next::End) => return,
            Ok(Next::Again) => {
                failures = 0;
                continue;
            }
            Err(failure) => failure,
        };
        let news = if failure.is_passing() {
            News::Broken(failure.to_string())
        } else {
            News::Failed(failure)
        };
        let ended = matches!(news, News::Failed(_));
        if sender.send(news).await.is_err() || ended {
            return;
        }
        time::sleep(PAUSES.after(failures)).await;
        failures += 1;
    }
}

enum Next {
    Again,
    End,
}

/// Reads the object, and watches it as long as the connection lasts.
async fn look(
    connection: &Connection,
    name: &str,
    uid: &mut Option<String>,
    sender: &Sender<News>,
) -> Result<Next, Failure> {
    let item = match object::get(connection, name).await {
        Ok(text) => Item::read(&text)?,
        // It was there: an object that never was is a failure.
        Err(failure) if failure.is_not_found() && uid.is_some() => {
            let _ = sender.send(News::Gone(None)).await;
            return Ok(Next::End);
        }
        Err(failure) => return Err(failure),
    };
    if uid.get_or_insert_with(|| item.uid.clone()) != &item.uid {
        // Another one of the same name.
        let _ = sender.send(News::Gone(None)).await;
        return Ok(Next::End);
    }
    let version = item.resource_version.clone();
    if report(item, sender).await {
        return Ok(Next::End);
    }
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    let request = Request::new(At::url_path(&(), Some(&connection.namespace)));
    let request = request.watch(&params, &version);
    let request = request.map_err(|error| error.to_string())?;
    let events = connection.client.request_events::<AtObject>(request);
    let events = connection.answer(events).await?;
    let mut events = pin!(events);
    while let Ok(Some(event)) = time::timeout(SILENCE, events.next()).await {
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                if report(Item::new(&object), sender).await {
                    return Ok(Next::End);
                }
            }
            Ok(WatchEvent::Deleted(object)) => {
                let item = Item::new(&object);
                let _ = sender.send(News::Gone(Some(Box::new(item)))).await;
                return Ok(Next::End);
            }
            Ok(WatchEvent::Bookmark(_)) => {}
            // The version is too old, or the connection broke: read it again.
            Ok(WatchEvent::Error(_)) | Err(_) => break,
        }
    }
    Ok(Next::Again)
}

/// Whether that was the last state.
async fn report(item: Item, sender: &Sender<News>) -> bool {
    let over = item.status.result.is_some();
    sender.send(News::Item(Box::new(item))).await.is_err() || over
}
