//! What the TLS listener presents to new handshakes, and what the rest of the program may know
//! about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use chrono::{DateTime, Utc};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

/// The certificate that new handshakes get: swapped as a whole, so that no handshake ever sees half
/// of a change. Connections that exist keep the one they began with.
#[derive(Default)]
pub struct ServedCertificate(ArcSwapOption<CertifiedKey>);

impl ServedCertificate {
    /// Serves `key` from the next handshake on.
    pub fn set(&self, key: Arc<CertifiedKey>) {
        self.0.store(Some(key));
    }

    /// What a handshake would get now.
    pub fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl fmt::Debug for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServedCertificate {
    /// One certificate for every name: the API server names the Service, a person who looks with
    /// `openssl s_client` names nothing at all.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// What readiness and metrics may know about the certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// A leaf is being served that is valid by this machine's clock.
    pub leaf_ready: bool,
    /// Why the leaf that is being served is not valid.
    pub leaf_fault: Option<String>,
    /// When the served leaf expires.
    pub leaf_not_after: Option<DateTime<Utc>>,
    /// When the CA that signs expires.
    pub ca_not_after: Option<DateTime<Utc>>,
    /// Every webhook configuration trusts the CA that signed the served leaf (true, too, where the
    /// bundle is somebody else's to write).
    pub bundle_published: bool,
    /// What differs in the webhook configurations beyond the bundle: how many entries, by field.
    pub drift: BTreeMap<&'static str, usize>,
    /// What else is worth knowing about the webhook configurations, and makes nothing unready.
    pub note: Option<String>,
    /// What keeps the certificates from being as they should be, for a person to read.
    pub problem: Option<String>,
}

/// Changes the state with `change`, wakes those who wait only if that made a difference, and logs a
/// problem when its text changes, and not again. `what` they are the certificates of.
pub(super) fn update(
    state: &watch::Sender<State>,
    what: &'static str,
    change: impl FnOnce(&mut State),
) {
    state.send_if_modified(|state| {
        let old = state.clone();
        change(state);
        if state.problem != old.problem {
            if let Some(problem) = &state.problem {
                tracing::warn!(problem, "{what} certificates");
            } else {
                tracing::info!("{what} certificates are in order again");
            }
        }
        *state != old
    });
}
