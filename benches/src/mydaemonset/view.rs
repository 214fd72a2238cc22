//! `kubectl mydaemonset get -w` in a terminal, while the image changes on all nodes.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pty_process::Size;
use pty_process::blocking;

use super::writes::{CHANGED, Kind};
use super::{OPERATOR, Plan};
use crate::plane::{Plane, TIMEOUT};
use crate::sightings::Pod;
use crate::table::{Aim, Figures};
use crate::{programs, usage};

const NAME: &str = "web";
/// Columns and lines: 2,000 nodes have a mark each.
const SIZE: (u16, u16) = (200, 50);
/// How long it is watched while nothing changes.
const REST: Duration = Duration::from_secs(10);
/// Less than this is not the first frame of many nodes.
const FRAME_BYTES: usize = 1_000;
const LIMIT: &[Aim] = &[Aim::Most(5.0)];

pub(super) async fn measure(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let program = programs::plugins()?;
    let plane = Plane::start(plan.nodes, &[]).await?;
    let running = OPERATOR.start(&plane).await?;
    let ready = plane.watch_pods(plan.nodes, [Pod::is_ready]).await?;
    plane.create_set(Kind::MyDaemonSet, NAME).await?;
    ready.all().await?;
    plane.settle().await?;

    let view = View::start(&plane, &program)?;
    view.until_drawn().await?;
    let title = format!("view of {} nodes", plan.nodes);
    let rest = async {
        tokio::time::sleep(REST).await;
        Ok(())
    };
    let rest = view.percent_of_a_core(rest).await?;
    let name = format!("{title}, nothing changes: processor, hundredths of a core");
    figures.add(name, rest, LIMIT);
    let changed: [crate::sightings::Predicate; 1] = [|pod| pod.runs(CHANGED) && pod.is_ready()];
    let pods = plane.watch_pods(plan.nodes, changed).await?;
    let change = async {
        plane.change_set(Kind::MyDaemonSet, NAME).await?;
        pods.all().await
    };
    let during = view.percent_of_a_core(change).await?;
    let name = format!("{title}, change of the image: processor, hundredths of a core");
    figures.add(name, during, LIMIT);

    drop(view);
    running.stop().await;
    plane.stop().await;
    Ok(())
}

/// The program in its terminal.
struct View {
    child: Child,
    /// How many bytes it has written.
    written: Arc<AtomicUsize>,
}

impl View {
    fn start(plane: &Plane, program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg0("kubectl-mydaemonset")
            .args(["get", NAME, "-w"])
            .envs([("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")])
            .env("KUBECONFIG", plane.cluster.kubeconfig());
        let (mut pty, pts) = blocking::open()?;
        pty.resize(Size::new(SIZE.1, SIZE.0))?;
        let child = blocking::Command::from(command).spawn(pts)?;
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(bytes @ 1..) = pty.read(&mut buffer) {
                count.fetch_add(bytes, Ordering::Relaxed);
            }
        });
        Ok(Self { child, written })
    }

    async fn until_drawn(&self) -> Result<()> {
        let begin = Instant::now();
        while self.written.load(Ordering::Relaxed) < FRAME_BYTES {
            if begin.elapsed() > TIMEOUT {
                bail!("the view is not drawn");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The part of a core that it uses until then.
    async fn percent_of_a_core<T>(&self, until: impl Future<Output = Result<T>>) -> Result<f64> {
        let (begin, before) = (Instant::now(), usage::cpu(self.child.id())?);
        until.await?;
        let used = usage::cpu(self.child.id())?.saturating_sub(before);
        Ok(used.as_secs_f64() * 100.0 / begin.elapsed().as_secs_f64())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
