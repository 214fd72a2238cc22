//! Certificates that cert-manager or a user puts into a folder, and the folder of development certificates.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use kube::Client;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::authority::{self, Anchor, Authority, validity_of};
use super::bundle::{BundleTarget, Snapshot, Writer};
use super::call;
use super::clocks::Clock;
use super::drift;
use super::error::Error;
use super::served::{self, ServedCertificate, State};
use super::verify;

/// The certificate chain, leaf first.
const CERTIFICATE: &str = "tls.crt";
/// Its private key.
const KEY: &str = "tls.key";
/// The CA to trust, if the folder has it.
const AUTHORITY: &str = "ca.crt";

/// How often the files are read by default. The kubelet swaps a symbolic link of a parent folder, which a file watch
/// does not see. Reading a few kilobytes every few seconds costs nothing.
const TICK: Duration = Duration::from_secs(5);

/// After how many ticks the bundle is checked without any sign of a change.
const LOOK_EVERY: u32 = 12;

/// The lifetime of development certificates, which are not renewed.
const DEVELOPMENT_VALIDITY: TimeDelta = TimeDelta::days(365);

/// Serves the pair `tls.crt` and `tls.key` of a folder, such as a mounted Secret of cert-manager's, and follows its
/// changes.
pub struct Files {
    what: &'static str,
    folder: PathBuf,
    tick: Duration,
    clock: Clock,
    writer: Option<Writer>,
    provider: CryptoProvider,
    served: Arc<ServedCertificate>,
    state: watch::Sender<State>,
    /// The names that API servers call; empty if any name will do.
    hosts: Vec<String>,
    /// The pair that is served.
    taken: Option<Pair>,
    /// A problem that does not make the replica unready.
    note: Option<String>,
}

/// A certificate and its key, as read.
struct Pair {
    /// The bytes of certificate and key.
    read: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
    validity: (DateTime<Utc>, DateTime<Utc>),
    /// It is valid for one of the names that API servers call.
    fits: bool,
}

impl Pair {
    /// Why API servers reject it, if they do.
    fn fault(&self, now: DateTime<Utc>) -> Option<String> {
        let unfit = || "is for none of the webhook Service's names".to_owned();
        let fault = authority::time_fault(self.validity, now);
        fault.or_else(|| (!self.fits).then(unfit))
    }

    /// Whether a verifier that trusts `anchors` finds a path from them to this certificate.
    fn is_trusted(&self, anchors: &[Anchor], now: DateTime<Utc>) -> bool {
        verify::is_trusted(&self.key.cert, anchors, now)
    }
}

impl Files {
    /// Does nothing before [`run`](Self::run). If `target` is [`BundleTarget::Own`] or [`BundleTarget::Patch`], the
    /// folder's `ca.crt` is published as the bundle; without one, no bundle is. `what` names the listener, for the log.
    /// API servers call it by `hosts`; if these are empty, a certificate for any name will do. `manager` is the field
    /// manager of the bundle. `clock` is this machine's: `Arc::new(Utc::now)`.
    pub fn new(
        client: &Client,
        manager: &str,
        what: &'static str,
        folder: PathBuf,
        target: &BundleTarget,
        hosts: Vec<String>,
        clock: Clock,
    ) -> Self {
        Self {
            what,
            folder,
            tick: TICK,
            clock,
            writer: Writer::new(client, target, manager),
            provider: rustls::crypto::aws_lc_rs::default_provider(),
            served: Arc::default(),
            state: watch::Sender::default(),
            hosts,
            taken: None,
            note: None,
        }
    }

    /// Reads the files every `tick` instead of every 5 s. The bundle is compared with the cluster every
    /// 12 ticks.
    #[cfg(test)]
    #[must_use]
    fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// What the TLS listener presents. Empty until the first good pair is read.
    pub fn resolver(&self) -> Arc<ServedCertificate> {
        self.served.clone()
    }

    /// The state of the certificates, and every change of it.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Runs until `shutdown`. Bad files and errors of the API server are retried.
    ///
    /// # Errors
    /// None at present; the type allows for errors that a retry cannot fix.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        let mut changes = match &self.writer {
            Some(writer) => writer.changes(),
            None => stream::pending().boxed(),
        };
        let mut published: Option<Vec<Anchor>> = None;
        let mut ticks = 0_u32;
        loop {
            let mut problems = Vec::new();
            match self.take_pair().await {
                Ok(true) => published = None,
                Ok(false) => {}
                // The error names the file.
                Err(error @ Error::File { .. }) => problems.push(error.to_string()),
                Err(error) => problems.push(format!("{}: {error}", self.folder.display())),
            }
            let bundle = self.bundle().await;
            if published.as_ref() != Some(&bundle) || ticks >= LOOK_EVERY {
                ticks = 0;
                published = match self.publish(&bundle).await {
                    Ok(missing) if missing.is_empty() => Some(bundle.clone()),
                    Ok(missing) => {
                        problems.extend(missing);
                        None
                    }
                    Err(error) => {
                        problems.push(error.to_string());
                        None
                    }
                };
                self.state.send_if_modified(|state| {
                    let differs = state.note != self.note;
                    state.note.clone_from(&self.note);
                    differs
                });
            }
            self.conclude((self.clock)(), problems, &bundle, published.is_some());
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.tick) => ticks += 1,
                Some(()) = changes.next() => published = None,
            }
        }
    }

    /// Reads the pair and serves it if it is new and not worse than the one before. Returns whether it does.
    async fn take_pair(&mut self) -> Result<bool, Error> {
        let read = [self.read(CERTIFICATE).await?, self.read(KEY).await?];
        if self.taken.as_ref().is_some_and(|taken| taken.read == read) {
            return Ok(false);
        }
        let pair = parse_pair(read, &self.hosts, &self.provider)?;
        let now = (self.clock)();
        let served_is_good = self.taken.as_ref();
        let served_is_good = served_is_good.is_some_and(|served| served.fault(now).is_none());
        if let Some(fault) = pair.fault(now).filter(|_| served_is_good) {
            return Err(authority::Error::WorsePair(fault).into());
        }
        self.served.set(pair.key.clone());
        let not_after = pair.validity.1;
        self.taken = Some(pair);
        self.state
            .send_modify(|state| state.leaf_not_after = Some(not_after));
        tracing::info!(folder = %self.folder.display(), %not_after, "serving certificate read");
        Ok(true)
    }

    /// The folder's `ca.crt`, if there is one.
    async fn bundle(&self) -> Vec<Anchor> {
        self.read(AUTHORITY)
            .await
            .map_or_else(|_| Vec::new(), |pem| Anchor::read_all(&pem))
    }

    /// Publishes `bundle` where it is not published yet, and returns the missing configurations and entries.
    async fn publish(&mut self, bundle: &[Anchor]) -> Result<Vec<String>, Error> {
        let Some(writer) = &mut self.writer else {
            return Ok(Vec::new());
        };
        if writer.is_foreign() {
            let read = writer.read().await;
            return Ok(self.judge(read));
        }
        let snapshot = writer.read().await?;
        self.note = drift::note(&snapshot.drift);
        let drift = drift::count(&snapshot.drift);
        self.state.send_modify(|state| state.drift = drift);
        writer.publish(&snapshot, bundle).await?;
        // From now on our own configurations exist.
        Ok(if writer.creates() {
            Vec::new()
        } else {
            snapshot.missing
        })
    }

    /// Checks the bundles that another program wrote into the configurations: whether API servers trust the served
    /// certificate. If that cannot be determined, it is noted and assumed to be in order.
    fn judge(&mut self, read: Result<Snapshot, call::Error>) -> Vec<String> {
        let snapshot = match read {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.note = Some(format!(
                    "caBundle cannot be compared with the certificate: {error}"
                ));
                return Vec::new();
            }
        };
        let notes = snapshot
            .missing
            .iter()
            .cloned()
            .chain(drift::note(&snapshot.drift));
        let notes: Vec<_> = notes.collect();
        self.note = (!notes.is_empty()).then(|| notes.join("; "));
        let drift = drift::count(&snapshot.drift);
        self.state.send_modify(|state| state.drift = drift);
        let Some(pair) = &self.taken else {
            return Vec::new();
        };
        let now = (self.clock)();
        let entries = snapshot.distrusting(|anchors| pair.is_trusted(anchors, now));
        if entries.is_empty() {
            return Vec::new();
        }
        let entries = entries.join(", ");
        vec![format!(
            "caBundle of {entries} does not trust the serving certificate yet: its writer (cert-manager's injector) has to put in the CA that signed it"
        )]
    }

    fn conclude(
        &self,
        now: DateTime<Utc>,
        mut problems: Vec<String>,
        bundle: &[Anchor],
        published: bool,
    ) {
        served::update(&self.state, self.what, |state| {
            let pair = self.taken.as_ref();
            state.leaf_fault = pair.and_then(|pair| authority::time_fault(pair.validity, now));
            state.leaf_ready = pair.is_some() && state.leaf_fault.is_none();
            // The Service may have another name than ours, so another certificate does not make the replica unready.
            if let Some(fault) = pair.and_then(|pair| pair.fault(now)) {
                let folder = self.folder.display();
                problems.push(format!(
                    "the certificate {fault}: put a new pair into {folder}"
                ));
            }
            state.ca_not_after = bundle.iter().map(Anchor::not_after).min();
            state.bundle_published = published;
            state.problem = (!problems.is_empty()).then(|| problems.join("; "));
        });
    }

    async fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(name);
        match tokio::fs::read(&path).await {
            Ok(bytes) => Ok(bytes),
            Err(source) => Err(Error::File { path, source }),
        }
    }
}

fn parse_pair(
    read: [Vec<u8>; 2],
    hosts: &[String],
    provider: &CryptoProvider,
) -> Result<Pair, authority::Error> {
    let unreadable =
        |text: String| authority::Error::NotACertificate(format!("{CERTIFICATE}: {text}"));
    let [certificate, key] = &read;
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    let leaf = chain
        .first()
        .ok_or_else(|| unreadable("it holds none".to_owned()))?;
    let validity = validity_of(leaf)?;
    let fits = verify::fits(leaf, hosts);
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| authority::Error::NotAKey)?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(key) => Ok(Pair {
            read,
            key: Arc::new(key),
            validity,
            fits,
        }),
        Err(rustls::Error::InconsistentKeys(_)) => Err(authority::Error::KeyMismatch),
        Err(error) => Err(error.into()),
    }
}

/// The paths of the three files of [`development`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Development {
    /// The CA's certificate. Its key is not stored.
    pub authority: PathBuf,
    /// The serving certificate.
    pub certificate: PathBuf,
    /// Its private key, readable by the owner alone.
    pub key: PathBuf,
}

/// Creates a CA and a serving certificate for `hosts`, valid for a year, and writes them into `folder`, which is
/// created if missing. Existing files are replaced one by one, each atomically. A reader that accepts only matching
/// pairs never sees half a change.
///
/// # Errors
/// When a host is malformed, or a file cannot be written.
pub fn development(
    folder: &Path,
    hosts: &[String],
    now: DateTime<Utc>,
) -> Result<Development, Error> {
    let authority = Authority::generate(now, DEVELOPMENT_VALIDITY)?;
    let leaf = authority.issue(hosts, now, DEVELOPMENT_VALIDITY)?;
    fs::create_dir_all(folder).map_err(|source| Error::File {
        path: folder.to_owned(),
        source,
    })?;
    let put = |name: &str, mode: u32, text: String| {
        let path = folder.join(name);
        match replace(&path, mode, &text) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::File { path, source }),
        }
    };
    Ok(Development {
        authority: put(AUTHORITY, 0o644, authority.certificate_pem())?,
        certificate: put(CERTIFICATE, 0o644, leaf.certificate_pem())?,
        key: put(KEY, 0o600, leaf.key_pem())?,
    })
}

/// Writes a file beside `path` and renames it, so that no reader sees half of it.
fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    // A file left by an earlier attempt would keep its own, perhaps wider, permissions.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use rustls::sign::CertifiedKey;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::Named;
    use crate::simulated::{Cluster, configuration};
    use simulated_apiserver::second;

    const KIND: &str = "ValidatingWebhookConfiguration";

    fn make(folder: &Path) -> Development {
        development(folder, &["localhost".to_owned()], second(0)).unwrap()
    }

    fn files(folder: &TempDir, target: &BundleTarget) -> (Files, Cluster) {
        let cluster = Cluster::new();
        let folder = folder.path().to_owned();
        let clock = cluster.machine.source();
        let hosts = vec!["localhost".to_owned()];
        let client = cluster.client();
        let files = Files::new(&client, "program", "webhook", folder, target, hosts, clock);
        (files, cluster)
    }

    fn served(files: &Files) -> Arc<CertifiedKey> {
        files.served.get().unwrap()
    }

    #[test]
    fn development_certificates_make_a_pair_that_others_cannot_read() {
        let folder = TempDir::new().unwrap();
        let inner = folder.path().join("made/when/missing");
        let made = make(&inner);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let read = |path: &Path| fs::read(path).unwrap();
        let pair = parse_pair([read(&made.certificate), read(&made.key)], &[], &provider).unwrap();
        assert!(pair.validity.1 > second(0) + TimeDelta::days(364));
        assert_eq!(Anchor::read_all(&read(&made.authority)).len(), 1);
        let permissions = fs::metadata(&made.key).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        let names = fs::read_dir(&inner).unwrap().count();
        assert_eq!(names, 3, "nothing else is left behind");
    }

    #[test]
    fn development_certificates_are_replaced_even_where_the_key_was_open_to_all() {
        let folder = TempDir::new().unwrap();
        let first = make(folder.path());
        fs::set_permissions(&first.key, fs::Permissions::from_mode(0o644)).unwrap();
        let old = fs::read(&first.key).unwrap();
        let second = make(folder.path());
        assert_eq!(first, second);
        assert_ne!(fs::read(&second.key).unwrap(), old);
        assert_eq!(
            fs::metadata(&second.key).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_is_taken_only_if_it_matches_and_the_last_good_one_is_kept() {
        let folder = TempDir::new().unwrap();
        let (mut files, _) = files(&folder, &BundleTarget::None);
        let error = files.take_pair().await.unwrap_err().to_string();
        assert!(error.contains("tls.crt"), "{error}");

        let made = make(folder.path());
        files.take_pair().await.unwrap();
        let first = served(&files);
        files.take_pair().await.unwrap();
        assert!(
            Arc::ptr_eq(&first, &served(&files)),
            "the same content is not taken again"
        );

        // The certificate is replaced before its key.
        let elsewhere = TempDir::new().unwrap();
        let other = make(elsewhere.path());
        fs::copy(&other.certificate, &made.certificate).unwrap();
        let error = files.take_pair().await.unwrap_err();
        assert!(matches!(
            error,
            Error::Certificate(authority::Error::KeyMismatch)
        ));
        assert!(Arc::ptr_eq(&first, &served(&files)));
        fs::copy(&other.key, &made.key).unwrap();
        files.take_pair().await.unwrap();
        assert_ne!(first.cert, served(&files).cert);

        for (name, text) in [
            (CERTIFICATE, "nothing"),
            (KEY, "nothing"),
            (CERTIFICATE, ""),
        ] {
            make(folder.path());
            files.take_pair().await.unwrap();
            let good = served(&files);
            fs::write(folder.path().join(name), text).unwrap();
            files.take_pair().await.unwrap_err();
            assert!(Arc::ptr_eq(&good, &served(&files)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_that_is_worse_does_not_replace_a_good_one() {
        let days = TimeDelta::days;
        for (made_after, host, words) in [
            (days(-1000), "localhost", "expired at"),
            (days(10), "localhost", "is not valid before"),
            (
                days(0),
                "elsewhere",
                "is for none of the webhook Service's names",
            ),
        ] {
            let folder = TempDir::new().unwrap();
            let (mut files, cluster) = files(&folder, &BundleTarget::None);
            make(folder.path());
            files.take_pair().await.unwrap();
            let good = served(&files);
            let worse = [host.to_owned()];
            development(folder.path(), &worse, second(0) + made_after).unwrap();
            let error = files.take_pair().await.unwrap_err();
            assert!(matches!(
                error,
                Error::Certificate(authority::Error::WorsePair(_))
            ));
            assert!(error.to_string().contains(words), "{error}");
            assert!(Arc::ptr_eq(&good, &served(&files)));
            // Where the one before is of no use either, it is taken.
            cluster.machine.step(TimeDelta::seconds(800 * 86_400));
            assert!(files.take_pair().await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn not_yet_valid_pair_makes_unready_until_it_is_valid() {
        let folder = TempDir::new().unwrap();
        let (mut files, _) = files(&folder, &BundleTarget::None);
        let hosts = ["localhost".to_owned()];
        development(folder.path(), &hosts, second(0) + TimeDelta::days(2)).unwrap();
        files.take_pair().await.unwrap();
        files.conclude(second(0), Vec::new(), &[], true);
        let state = files.state().borrow().clone();
        assert!(!state.leaf_ready);
        assert!(state.leaf_fault.unwrap().contains("not valid before"));
        files.conclude(second(0) + TimeDelta::days(1), Vec::new(), &[], true);
        assert!(files.state().borrow().leaf_ready);
    }

    /// A configuration whose bundle another program writes.
    fn with_bundle(pem: &str) -> Value {
        let mut object = configuration(KIND, &["a.x"]);
        object["metadata"]["annotations"] = json!({"cert-manager.io/inject-ca-from": "ns/name"});
        if !pem.is_empty() {
            object["webhooks"][0]["clientConfig"]["caBundle"] = BASE64.encode(pem).into();
        }
        object
    }

    fn foreign() -> BundleTarget {
        BundleTarget::Foreign(vec![
            Named::of(&configuration("MutatingWebhookConfiguration", &[])),
            Named::of(&configuration(KIND, &["a.x"])),
        ])
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_waits_until_a_foreign_bundle_trusts_the_certificate() {
        let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let made = make(folder.path());
        let other = make(elsewhere.path());
        let pem = |made: &Development| fs::read_to_string(&made.authority).unwrap();
        let (files, cluster) = files(&folder, &foreign());
        // Applied, and the injector has not come yet; then that of another CA.
        cluster.put(with_bundle(""));
        let mut state = files.state();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(files.run(shutdown.clone()));
        for bundle in ["", &pem(&other)] {
            cluster.put(with_bundle(bundle));
            tokio::time::sleep(TICK * 2).await;
            let state = state.wait_for(|state| state.leaf_ready).await.unwrap();
            assert!(!state.bundle_published);
            let problem = state.problem.clone().unwrap();
            assert!(
                problem.contains("caBundle of a.x does not trust"),
                "{problem}"
            );
        }
        let both = pem(&other) + &pem(&made);
        cluster.put(with_bundle(&both));
        let state = state
            .wait_for(|state| state.bundle_published)
            .await
            .unwrap()
            .clone();
        assert_eq!(state.problem, None);
        // The other configuration does not exist, and it is not ours to make.
        let note = state.note.unwrap();
        assert!(
            note.contains("MutatingWebhookConfiguration ours does not exist"),
            "{note}"
        );
        let requests = cluster.requests(0);
        assert_eq!(Cluster::writes(&requests), 0, "{requests:?}");
        shutdown.cancel();
        task.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unreadable_bundle_is_noted_and_does_not_make_unready() {
        let folder = TempDir::new().unwrap();
        make(folder.path());
        let (files, cluster) = files(&folder, &foreign());
        cluster.fail(403, "no", |_| true);
        let mut state = files.state();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(files.run(shutdown.clone()));
        let ready = state.wait_for(|state| state.leaf_ready && state.bundle_published);
        let note = ready.await.unwrap().note.clone().unwrap();
        assert!(
            note.contains("not allowed to get mutatingwebhookconfigurations"),
            "{note}"
        );
        shutdown.cancel();
        task.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_that_has_expired_says_what_to_do() {
        let folder = TempDir::new().unwrap();
        let (mut files, _) = files(&folder, &BundleTarget::None);
        make(folder.path());
        files.take_pair().await.unwrap();
        let at = |days| second(0) + TimeDelta::days(days);
        files.conclude(at(1), Vec::new(), &[], true);
        assert!(files.state().borrow().leaf_ready);
        files.conclude(at(1000), Vec::new(), &[], true);
        let state = files.state().borrow().clone();
        assert!(!state.leaf_ready);
        let problem = state.problem.unwrap();
        assert!(
            problem.contains("expired at") && problem.contains("put a new pair into"),
            "{problem}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn configurations_of_our_own_get_the_folders_ca_or_none() {
        for with_authority in [true, false] {
            let folder = TempDir::new().unwrap();
            let made = make(folder.path());
            if !with_authority {
                fs::remove_file(&made.authority).unwrap();
            }
            let own = BundleTarget::Own(vec![configuration(KIND, &["a.x"])]);
            let (files, cluster) = files(&folder, &own);
            let mut state = files.state();
            let shutdown = CancellationToken::new();
            let task = tokio::spawn(files.run(shutdown.clone()));
            let ready = state.wait_for(|state| state.leaf_ready && state.bundle_published);
            let ready = tokio::time::timeout(Duration::from_secs(20), ready).await;
            let state = ready.expect("in time").unwrap().clone();
            assert_eq!(
                (state.problem, state.ca_not_after.is_some()),
                (None, with_authority)
            );
            let object = cluster.get(KIND).unwrap();
            let bundle = object.pointer("/webhooks/0/clientConfig/caBundle");
            assert_eq!(bundle.is_some(), with_authority);
            shutdown.cancel();
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_pair_is_served_within_one_tick() {
        for tick in [TICK, Duration::from_millis(500)] {
            let folder = TempDir::new().unwrap();
            make(folder.path());
            let (files, _) = files(&folder, &BundleTarget::None);
            let files = files.with_tick(tick);
            let (resolver, mut state) = (files.resolver(), files.state());
            let shutdown = CancellationToken::new();
            let task = tokio::spawn(files.run(shutdown.clone()));
            state.wait_for(|state| state.leaf_ready).await.unwrap();
            let first = resolver.get().unwrap();
            make(folder.path());
            tokio::time::sleep(tick.saturating_sub(Duration::from_millis(1))).await;
            assert!(Arc::ptr_eq(&first, &resolver.get().unwrap()));
            tokio::time::sleep(Duration::from_millis(2)).await;
            // The files are read on another thread.
            while Arc::ptr_eq(&first, &resolver.get().unwrap()) {
                tokio::task::yield_now().await;
            }
            shutdown.cancel();
            task.await.unwrap().unwrap();
        }
    }
}
