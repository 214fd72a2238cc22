//! The certificate that the TLS listener presents to new handshakes, and its state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use chrono::{DateTime, Utc};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

/// The certificate for new handshakes, as a resolver of rustls. It is replaced atomically. Open connections keep the
/// one that they started with.
#[derive(Default)]
pub struct ServedCertificate(ArcSwapOption<CertifiedKey>);

impl ServedCertificate {
    /// Serves `key` from the next handshake on.
    pub fn set(&self, key: Arc<CertifiedKey>) {
        self.0.store(Some(key));
    }

    /// The certificate that a handshake would get now.
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
    /// One certificate for every name: the API server sends the name of the Service, `openssl s_client` none at all.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// The state of the certificates, for readiness and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The served leaf is valid by this machine's clock.
    pub leaf_ready: bool,
    /// Why the served leaf is not valid.
    pub leaf_fault: Option<String>,
    /// When the served leaf expires.
    pub leaf_not_after: Option<DateTime<Utc>>,
    /// When the CA that signs expires.
    pub ca_not_after: Option<DateTime<Utc>>,
    /// Every webhook configuration trusts the CA that signed the served leaf. Also true where another program writes
    /// the bundle.
    pub bundle_published: bool,
    /// What differs in the webhook configurations beyond the bundle: how many entries, by field.
    pub drift: BTreeMap<&'static str, usize>,
    /// A note about the webhook configurations that does not affect readiness.
    pub note: Option<String>,
    /// The current problem with the certificates, for users to read.
    pub problem: Option<String>,
}

/// Changes the state with `change`, and notifies receivers only if that made a difference. Logs a problem once, when
/// its text changes. `what` names the listener of the certificates.
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
                tracing::info!("{what} certificates are valid again");
            }
        }
        *state != old
    });
}
