//! A self-signed certificate, for a listener without a configured one.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio_util::sync::CancellationToken;

use super::authority::{Authority, BACKDATE, Error};
use super::clocks::Clock;
use super::served::ServedCertificate;

/// How long it is good for; it is renewed at half of it.
const VALIDITY: TimeDelta = TimeDelta::days(90);
/// How often the wall clock is read. A timer alone would sleep with the machine.
const TICK: Duration = Duration::from_secs(60);

/// A self-signed certificate for a listener of metrics, say, as in kubebuilder's projects. It encrypts the connection,
/// but its callers must be configured not to verify it. It is good for 90 days; [`run`](Self::run) renews it.
pub struct SelfSigned {
    hosts: Vec<String>,
    what: &'static str,
    clock: Clock,
    served: Arc<ServedCertificate>,
    signed_at: DateTime<Utc>,
}

impl SelfSigned {
    /// Signs the first certificate for those hosts (DNS names or IP addresses). `what` names the listener, for the log.
    /// `clock` is this machine's: `Arc::new(Utc::now)`.
    ///
    /// # Errors
    /// When a host is malformed, or the system has no random numbers.
    pub fn new(hosts: Vec<String>, what: &'static str, clock: Clock) -> Result<Self, Error> {
        let now = clock();
        let mut own = Self {
            hosts,
            what,
            clock,
            served: Arc::default(),
            signed_at: now,
        };
        own.sign(now)?;
        Ok(own)
    }

    /// The certificate for a TLS listener.
    pub fn resolver(&self) -> Arc<ServedCertificate> {
        self.served.clone()
    }

    /// Signs another certificate, with a CA that is discarded at once.
    fn sign(&mut self, now: DateTime<Utc>) -> Result<(), Error> {
        let leaf = Authority::generate(now, VALIDITY)?.issue(&self.hosts, now, VALIDITY)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        self.served.set(leaf.certified_key(&provider)?);
        self.signed_at = now;
        Ok(())
    }

    /// Renews the certificate after half its life, until `until` is cancelled.
    pub async fn run(mut self, until: CancellationToken) {
        loop {
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let now = (self.clock)();
            if !due(self.signed_at, now) {
                continue;
            }
            match self.sign(now) {
                Ok(()) => tracing::info!("the {} have a new self-signed certificate", self.what),
                Err(error) => tracing::warn!(%error, "the certificate of the {} stays", self.what),
            }
        }
    }
}

/// Whether a certificate must be renewed: half of its lifetime is over, or the clock was set back so far that it is not
/// valid yet.
fn due(signed_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    now >= signed_at + VALIDITY / 2 || now < signed_at - BACKDATE
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_half_its_time_and_when_the_clock_went_back() {
        let signed = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        for (days, expected) in [(0, false), (44, false), (45, true), (90, true), (-2, true)] {
            assert_eq!(
                due(signed, signed + TimeDelta::days(days)),
                expected,
                "{days}"
            );
        }
        assert!(!due(signed, signed - BACKDATE));
    }

    #[test]
    fn a_renewed_certificate_is_another_one() {
        let now = Utc::now();
        let hosts = vec!["localhost".to_owned()];
        let mut own = SelfSigned::new(hosts, "metrics", Arc::new(Utc::now)).unwrap();
        let first = own.served.get().unwrap();
        own.sign(now).unwrap();
        assert_ne!(first.cert, own.served.get().unwrap().cert);
    }
}
