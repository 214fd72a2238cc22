//! The programs that are compared: how they are built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The top of the checkout.
pub(crate) fn checkout() -> &'static Path {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    benches.parent().unwrap_or(benches)
}

/// A release build of this workspace, by its name.
pub(crate) fn ours(name: &str) -> Result<PathBuf> {
    let release = std::env::current_exe()?;
    let release = release.parent().context("this program has no folder")?;
    Ok(release.join(name))
}

/// The release builds, as users make them: ours, and the `others` that webhooks are compared with.
pub(crate) fn build(others: bool) -> Result<()> {
    const OTHERS: [&str; 2] = [
        "build --release --locked -p my-operator-bench --bin my-operator-bench-bare",
        "build --release --locked -p my-operator-bench --features kube-user --bin my-operator-bench-kube-user",
    ];
    let others = OTHERS.into_iter().filter(|_| others);
    let ours = "build --release --locked --bin my-operator";
    for arguments in std::iter::once(ours).chain(others) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments.split(' ')).current_dir(checkout());
        ensure!(command.status()?.success(), "cannot build the servers");
    }
    Ok(())
}

/// The plugins of kubectl, as users make them.
pub(crate) fn plugins() -> Result<PathBuf> {
    run(Command::new("make").arg("kubectl").current_dir(checkout()))?;
    Ok(checkout().join("target/kubectl/kubectl-at"))
}

/// Builds a program of `peers/controller-runtime`.
pub(crate) fn peer(package: &str, out: &Path) -> Result<()> {
    run(Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(out)
        .arg(package)
        .current_dir(checkout().join("benches/peers/controller-runtime"))
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ]))?;
    Ok(())
}

/// Runs a program of the preparation to its end; shows its output if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}
