//! The control planes of an executable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

/// An `Err` is kept: a control plane that cannot start would otherwise be tried again by every test.
type Cell = Arc<OnceCell<Result<&'static Cluster, String>>>;

/// The control plane of that name, shared by all tests that ask for it. The first one starts it, with its options. It
/// ends with the process.
///
/// # Panics
///
/// Panics with the error's text if the control plane cannot be started.
pub async fn shared_plane(name: &'static str, options: Options) -> &'static Cluster {
    static PLANES: Mutex<BTreeMap<&str, Cell>> = Mutex::new(BTreeMap::new());
    let cell = Arc::clone(PLANES.lock().unwrap().entry(name).or_default());
    let plane = cell.get_or_init(|| start(options)).await;
    plane
        .clone()
        .unwrap_or_else(|error| panic!("no control plane for the tests: {error}"))
}

async fn start(options: Options) -> Result<&'static Cluster, String> {
    // Tests record every change of some objects, and compaction would cut holes into the records.
    let options = Options {
        keep_history: true,
        ..options
    };
    let cluster = Cluster::start(options)
        .await
        .map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(cluster)))
}

/// A control plane for one test. Its processes end with [`OwnPlane::stop`]; those of a test that fails, with the
/// executable.
pub struct OwnPlane {
    pub cluster: &'static Cluster,
}

impl OwnPlane {
    pub async fn start(options: Options) -> Self {
        let cluster = start(options).await;
        let cluster = cluster.unwrap_or_else(|error| panic!("no control plane: {error}"));
        Self { cluster }
    }

    pub async fn stop(self) {
        self.cluster.stop_components().await;
    }
}
