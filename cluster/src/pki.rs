//! The cluster's certificate authority, serving certificates, ServiceAccount key and admin token.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use time::{Duration, OffsetDateTime};

use crate::error::Error;

/// The lifetime of certificates: longer than a development cluster runs.
const LIFETIME: Duration = Duration::days(365);

/// What the kubeconfigs need to know of the files that [`fn@write`] made.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// The certificate authority of the API server, PEM.
    pub(crate) ca: String,
    /// The bearer token of the administrator (group `system:masters`).
    pub(crate) token: String,
}

/// Writes `ca.crt`, `apiserver.crt`, `apiserver.key`, `service-account.key`, `service-account.pub` and `tokens.csv`
/// (the arguments of the API server and the controller manager) into `directory`. The API server's certificate is for
/// loopback, the cluster's own names and `address`.
pub(crate) fn write(directory: &Path, address: IpAddr) -> Result<Credentials, Error> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "my-operator-cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    validity(&mut params);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let key = KeyPair::generate()?;
    let names = [
        "127.0.0.1",
        "10.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    let mut names: Vec<_> = names.map(String::from).into();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params);
    let serving = params.signed_by(&key, &authority)?;

    let service_account = KeyPair::generate()?;
    let token = token()?;
    let files = [
        ("ca.crt", authority.pem()),
        ("apiserver.crt", serving.pem()),
        ("apiserver.key", key.serialize_pem()),
        ("service-account.key", service_account.serialize_pem()),
        ("service-account.pub", service_account.public_key_pem()),
        (
            "tokens.csv",
            format!("{token},admin,admin,system:masters\n"),
        ),
    ];
    for (name, content) in files {
        let path = directory.join(name);
        fs::write(&path, content).map_err(Error::file("write", path))?;
    }
    Ok(Credentials {
        ca: authority.pem(),
        token,
    })
}

/// TLS for what listens at `address` and is asked by the API server alone, which does not check the certificate of a
/// kubelet.
pub(crate) fn unchecked(address: IpAddr) -> Result<rustls::ServerConfig, Error> {
    let made = rcgen::generate_simple_self_signed([address.to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            let config = config.with_no_client_auth();
            config.with_single_cert(vec![made.cert.der().clone()], key.into())
        })
        .map_err(|error| Error::Internal(format!("cannot use a new certificate: {error}")))
}

/// From an hour ago, so that a clock which is set back a little does no harm.
fn validity(params: &mut CertificateParams) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + LIFETIME;
}

/// 128 random bits in hexadecimal, from the TLS library's source of randomness.
fn token() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Error::Internal("no randomness for the administrator's token".to_owned()))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
