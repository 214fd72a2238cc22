//! One control plane per test binary.

use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::options::Options;

/// An `Err` is kept too: a control plane that cannot start would otherwise be tried again by every test.
static SHARED: OnceCell<Result<Cluster, String>> = OnceCell::const_new();

/// The control plane that all tests of this binary share, started by the first call, whose `options` are the ones that
/// count. It ends with the process.
///
/// # Panics
///
/// Panics with the error's text if the control plane cannot be started: no test that needs one can go on.
#[expect(clippy::panic, reason = "for tests, whose way to fail this is")]
pub async fn shared(options: Options) -> &'static Cluster {
    let start = || async {
        Cluster::start(options)
            .await
            .map_err(|error| error.to_string())
    };
    match SHARED.get_or_init(start).await {
        Ok(cluster) => cluster,
        Err(error) => panic!("no control plane for the tests: {error}"),
    }
}
