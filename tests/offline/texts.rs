//! What the programs read besides reviews: whatever the bytes are, no panic, and no line that does something to a terminal.
//! The fuzz targets (`fuzz/`) are built from this file too.

use admission_rules::text::is_harmful;
use chrono::{DateTime, Utc};
use kube::config::{KubeConfigOptions, Kubeconfig};
use my_operator::kinds::REGISTRY;
use my_operator_admit::annotations;
use my_operator_admit::object::Rulebook;
use my_operator_admit::read::{Source, decode};
use my_operator_admit::report;
use resilient_kube_client as client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use webhook_certs::authority::Authority;
use webhook_certs::inspect::{Bundle, Served};

/// Reads bytes, and holds what comes of it to what must always hold.
type Read = fn(&[u8]);

/// The formats by name.
pub const FORMATS: [(&str, Read); 4] = [
    ("yaml", yaml),
    ("kubeconfig", kubeconfig),
    ("certificate", certificate),
    ("timespec", timespec),
];

thread_local! {
    static BOOKS: Vec<Rulebook> = REGISTRY.iter().map(|kind| kind.rulebook()).collect();
}

fn now() -> DateTime<Utc> {
    let now = DateTime::parse_from_rfc3339("2026-04-12T10:00:00Z");
    now.unwrap().to_utc()
}

/// A message is one line, without what could rewrite a terminal.
fn hold_line(line: &str) {
    assert!(!line.is_empty());
    assert!(!line.chars().any(is_harmful), "{line:?}");
}

/// Files of `admit`, with the rules of every kind.
pub fn yaml(bytes: &[u8]) {
    let source = Source {
        name: "file.yaml".to_owned(),
        text: decode(bytes.to_vec()),
        is_named: true,
    };
    let judged = BOOKS.with(|books| my_operator_admit::judge(&source, books, now()));
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    report::text(&judged, &mut out, &mut errors).unwrap();
    annotations::print(&judged, &mut out).unwrap();
    let said = String::from_utf8([out, errors].concat()).unwrap();
    let lines = said.split('\n').filter(|line| !line.is_empty());
    lines.for_each(hold_line);
}

/// The kubeconfig of the operator and of the plugins, as far as nothing is connected to.
pub fn kubeconfig(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(kubeconfig) = Kubeconfig::from_yaml(text) else {
        return;
    };
    let options = KubeConfigOptions::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let config = client::from_kubeconfig(kubeconfig, &options);
    if let Err(error) = runtime.unwrap().block_on(config) {
        assert!(!error.to_string().is_empty());
    }
}

/// Certificates and keys in PEM, of a Secret or a file, and bundles.
pub fn certificate(bytes: &[u8]) {
    let bundle = Bundle::from_pem(bytes);
    let _ = (bundle.validity(), bundle.contains(&bundle));
    let chain = CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok);
    match Served::new(chain.collect()) {
        Ok(served) => {
            let _ = (
                served.is_trusted_by(&bundle, now()),
                served.is_overdue(now()),
            );
            if let Some(fault) = served.fault("service.namespace.svc", now()) {
                hold_line(&fault);
            }
        }
        Err(error) => hold_line(&error.to_string()),
    }
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Authority::from_pem(&text, &text) {
        hold_line(&error.to_string());
    }
}

/// The words of `kubectl at`, and the form of `-t`.
pub fn timespec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for parsed in [
        at_timespec::parse(&text, &now()),
        at_timespec::parse_touch(&text, &now()),
    ] {
        if let Err(error) = parsed {
            hold_line(&error.to_string());
        }
    }
}
