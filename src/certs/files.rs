//! Certificates that someone else puts into a folder (cert-manager, or a person), and the folder of
//! development certificates.

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

use super::Error;
use super::authority::{self, Anchor, Authority, validity_of};
use super::bundle::{BundleTarget, Writer};
use super::served::{self, ServedCertificate, State};
use crate::clock::Clock;

/// The certificate chain, leaf first.
const CERTIFICATE: &str = "tls.crt";
/// Its private key.
const KEY: &str = "tls.key";
/// Whom to trust, if the folder says so.
const AUTHORITY: &str = "ca.crt";

/// How often the files are read by default. The kubelet swaps a symbolic link of a folder further up, which no
/// file watch sees; a few kilobytes every few seconds cost nothing.
const TICK: Duration = Duration::from_secs(5);

/// How many ticks pass before the bundle is looked at without any sign of a change.
const LOOK_EVERY: u32 = 12;

/// Development certificates are not renewed by anyone.
const DEVELOPMENT_VALIDITY: TimeDelta = TimeDelta::days(365);

/// Serves the pair `tls.crt` and `tls.key` of a folder, whatever becomes of it.
pub struct Files {
    what: &'static str,
    folder: PathBuf,
    tick: Duration,
    clock: Clock,
    writer: Option<Writer>,
    provider: CryptoProvider,
    served: Arc<ServedCertificate>,
    state: watch::Sender<State>,
    /// The bytes that the served pair was made from.
    taken: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    /// Prepares everything; nothing happens before [`run`](Self::run). Where `target` is not `None`,
    /// the folder's `ca.crt` is what gets published; without one, no bundle is. `what` is served with
    /// them, for the log.
    pub fn new(
        client: &Client,
        what: &'static str,
        folder: PathBuf,
        target: &BundleTarget,
        clock: Clock,
    ) -> Self {
        Self {
            what,
            folder,
            tick: TICK,
            clock,
            writer: Writer::new(client, target),
            provider: rustls::crypto::aws_lc_rs::default_provider(),
            served: Arc::default(),
            state: watch::Sender::default(),
            taken: None,
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

    /// How the certificates are, now and at every change.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Keeps at it until `shutdown`. Bad files are waited out, as is trouble with the API server.
    ///
    /// # Errors
    /// None at present; the type leaves room for what cannot be waited out.
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
                Ok(()) => {}
                // It names the file itself.
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
            }
            self.conclude((self.clock)(), problems, &bundle, published.is_some());
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.tick) => ticks += 1,
                Some(()) = changes.next() => published = None,
            }
        }
    }

    /// Reads the pair and serves it if it is new and good.
    async fn take_pair(&mut self) -> Result<(), Error> {
        let pair = (self.read(CERTIFICATE).await?, self.read(KEY).await?);
        if self.taken.as_ref() == Some(&pair) {
            return Ok(());
        }
        let (key, not_after) = parse_pair(&pair.0, &pair.1, &self.provider)?;
        let (now, served) = ((self.clock)(), self.state.borrow().leaf_not_after);
        if not_after <= now && served.is_some_and(|end| end > now) {
            return Err(authority::Error::PairExpired(not_after).into());
        }
        self.served.set(Arc::new(key));
        self.taken = Some(pair);
        self.state
            .send_modify(|state| state.leaf_not_after = Some(not_after));
        tracing::info!(folder = %self.folder.display(), %not_after, "serving certificate read");
        Ok(())
    }

    /// The folder's `ca.crt`. There need not be one.
    async fn bundle(&self) -> Vec<Anchor> {
        self.read(AUTHORITY)
            .await
            .map_or_else(|_| Vec::new(), |pem| Anchor::read_all(&pem))
    }

    /// Publishes `bundle` where it is not published yet, and returns what is missing for it.
    async fn publish(&mut self, bundle: &[Anchor]) -> Result<Vec<String>, Error> {
        let Some(writer) = &mut self.writer else {
            return Ok(Vec::new());
        };
        let snapshot = writer.read().await?;
        writer.publish(&snapshot, bundle).await?;
        // Configurations of our own exist from now on.
        Ok(if writer.creates() {
            Vec::new()
        } else {
            snapshot.missing
        })
    }

    fn conclude(
        &self,
        now: DateTime<Utc>,
        mut problems: Vec<String>,
        bundle: &[Anchor],
        published: bool,
    ) {
        served::update(&self.state, self.what, |state| {
            state.leaf_ready = state.leaf_not_after.is_some_and(|at| at > now);
            if let Some(end) = state.leaf_not_after.filter(|_| !state.leaf_ready) {
                let folder = self.folder.display();
                problems.push(format!(
                    "the certificate expired at {end}: put a new pair into {folder}"
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
    certificate: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, DateTime<Utc>), authority::Error> {
    let unreadable =
        |text: String| authority::Error::NotACertificate(format!("{CERTIFICATE}: {text}"));
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    let leaf = chain
        .first()
        .ok_or_else(|| unreadable("it holds none".to_owned()))?;
    let (_, not_after) = validity_of(leaf)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| authority::Error::NotAKey)?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(pair) => Ok((pair, not_after)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(authority::Error::KeyMismatch),
        Err(error) => Err(error.into()),
    }
}

/// Where [`development`] put its three files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Development {
    /// The CA's certificate. Its key is kept nowhere.
    pub authority: PathBuf,
    /// The serving certificate.
    pub certificate: PathBuf,
    /// Its private key, readable by the owner alone.
    pub key: PathBuf,
}

/// Makes a CA and a serving certificate for `hosts`, valid for a year, and writes them into
/// `folder`, which is made when missing. What is there already is replaced, file by file and each
/// at once; a reader that takes only matching pairs never sees half a change.
///
/// # Errors
/// When a host is no host, or a file cannot be written.
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

/// Writes a file beside `path` and moves it there, so that nobody ever reads half of it.
fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    // A rest of an earlier attempt would keep its own, perhaps wider, permissions.
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

    use rustls::sign::CertifiedKey;
    use tempfile::TempDir;

    use super::*;
    use crate::certs::fake::{Fake, configuration, configuration_path};
    use crate::clock::simulated::second;

    const KIND: &str = "ValidatingWebhookConfiguration";

    fn make(folder: &Path) -> Development {
        development(folder, &["localhost".to_owned()], second(0)).unwrap()
    }

    fn files(folder: &TempDir, target: &BundleTarget) -> (Files, Arc<Fake>) {
        let (fake, client) = Fake::start();
        let folder = folder.path().to_owned();
        let clock = fake.machine.clock();
        let files = Files::new(&client, "webhook", folder, target, clock);
        (files, fake)
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
        let (_, not_after) =
            parse_pair(&read(&made.certificate), &read(&made.key), &provider).unwrap();
        assert!(not_after > second(0) + TimeDelta::days(364));
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
        let (mut files, _fake) = files(&folder, &BundleTarget::None);
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
        assert_eq!(error.category(), "key_mismatch");
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
    async fn a_pair_that_has_expired_does_not_replace_a_good_one() {
        let folder = TempDir::new().unwrap();
        let (mut files, _fake) = files(&folder, &BundleTarget::None);
        make(folder.path());
        files.take_pair().await.unwrap();
        let good = served(&files);
        let then = second(0) - TimeDelta::days(1000);
        development(folder.path(), &["localhost".to_owned()], then).unwrap();
        let error = files.take_pair().await.unwrap_err();
        assert_eq!(error.category(), "certificate_expired");
        assert!(Arc::ptr_eq(&good, &served(&files)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_that_has_expired_says_what_to_do() {
        let folder = TempDir::new().unwrap();
        let (mut files, _fake) = files(&folder, &BundleTarget::None);
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
            let own = BundleTarget::Own(vec![configuration(KIND, "ours", &["a.x"])]);
            let (files, fake) = files(&folder, &own);
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
            let object = fake.get(&configuration_path(KIND, "ours")).unwrap();
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
            let (files, _fake) = files(&folder, &BundleTarget::None);
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
