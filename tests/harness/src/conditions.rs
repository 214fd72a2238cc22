//! Waits that are more than the value of one field: conditions, Events, replaced objects.

use serde_json::Value;

use crate::Kubectl;

impl Kubectl {
    /// Waits as `kubectl wait --for=condition=TYPE=STATUS` does: a condition of an earlier generation does not count.
    pub async fn until_condition(&self, object: &str, condition: &str, status: &str) {
        let what = format!("to have condition {condition}={status}");
        self.until(object, &what, |found| {
            let found = found?;
            let mut conditions = found["status"]["conditions"].as_array()?.iter();
            let condition = conditions.find(|it| it["type"] == condition)?;
            let generation = |object: &Value| object["observedGeneration"].as_i64();
            let observed = generation(condition).or(generation(&found["status"]));
            let is_current = observed
                .is_none_or(|observed| Some(observed) >= found["metadata"]["generation"].as_i64());
            (is_current && condition["status"] == status).then_some(())
        })
        .await;
    }

    /// How often Events with that reason were published about objects of that name, repetitions included.
    pub async fn published(&self, name: &str, reason: &str) -> u64 {
        published(&self.object("events").await, name, reason)
    }

    /// Waits until Events with that reason were published at least so many times about objects of that name.
    pub async fn until_published(&self, name: &str, reason: &str, times: u64) {
        let what = format!("{reason} about {name}, {times} times");
        self.until("events", &what, |list| {
            (published(list?, name, reason) >= times).then_some(())
        })
        .await;
    }

    /// Waits until an object of that name has another UID than this one.
    pub async fn until_replaced(&self, object: &str, uid: &str) {
        self.until(object, &format!("to be another than {uid}"), |found| {
            (found?["metadata"]["uid"] != uid).then_some(())
        })
        .await;
    }
}

/// A repeated Event is one object with a count.
fn published(list: &Value, name: &str, reason: &str) -> u64 {
    let events = list["items"].as_array().unwrap().iter();
    let events = events.filter(|it| it["involvedObject"]["name"] == name && it["reason"] == reason);
    events
        .map(|event| event["series"]["count"].as_u64().unwrap_or(1))
        .sum()
}
