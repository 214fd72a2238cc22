//! What a cluster does with its real node: images, containers, and waiting for it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use super::names::{PAUSE, socket};
use super::namespaces::run;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::image::Image;
use crate::nodes::{has_taint, is_ready};
use my_operator_programs::needs::program;

impl Cluster {
    /// Brings an image to the real node, whose pods can then have it with `imagePullPolicy: IfNotPresent`.
    ///
    /// # Errors
    ///
    /// If the cluster has no real node, a file of the image cannot be read, or containerd refuses the image.
    pub async fn load_image(&self, image: &Image) -> Result<(), Error> {
        let place = self
            .place()
            .ok_or_else(|| Error::need("this cluster was started without one"))?;
        let archive = tempfile::Builder::new()
            .prefix("image-")
            .suffix(".tar")
            .tempfile_in(self.directory())
            .map_err(Error::file("make a file in", self.directory()))?;
        image.write(archive.path())?;
        let mut command = place.inside(&self.program("ctr"));
        command
            .arg("--address")
            .arg(socket(self.directory()))
            .args(["--namespace", "k8s.io", "images", "import", "--local"])
            .arg(archive.path());
        let action = format!("load the image {}", image.reference());
        tokio::task::spawn_blocking(move || run(&mut command, &action))
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
    }

    /// Where this process finds a file that the real node has at `path`, such as what the kubelet has mounted below
    /// `node/kubelet` of [`Cluster::directory`]: the node's mounts are its own.
    pub fn on_node(&self, path: &Path) -> Option<PathBuf> {
        self.place().map(|place| place.root(path))
    }

    /// Kills every container of the real node, and what watches over them, as a reboot does. Those of its components
    /// that run are killed as well.
    ///
    /// # Errors
    ///
    /// If the cluster has no real node.
    pub async fn end_containers(&self) -> Result<(), Error> {
        let place = self
            .place()
            .ok_or_else(|| Error::need("this cluster was started without one"))?;
        let mut command = place.inside(Path::new("sh"));
        // All that a process can see but itself and the first: the node's.
        command.args(["-c", "kill -s KILL -- -1"]);
        tokio::task::spawn_blocking(move || run(&mut command, "end all containers"))
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
    }

    /// Takes away the socket of a containerd that was killed. It is heard there until it is quite dead, and would be
    /// taken for the one that is started next.
    pub(crate) fn forget_containerd(&self) {
        // Before the first start there is none.
        let _ = std::fs::remove_file(socket(self.directory()));
    }

    /// Waits until containerd takes calls; the kubelet gives up early when it does not.
    pub(crate) async fn until_containerd_answers(&self) -> Result<(), Error> {
        let socket = socket(self.directory());
        self.wait_for("containerd to answer", || async {
            Ok(UnixStream::connect(&socket).is_ok().then_some(()))
        })
        .await
    }

    /// Loads what every pod needs and waits until the node takes pods.
    pub(crate) async fn until_node_is_ready(&self, name: &str) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        self.wait_for(&format!("node {name} to be ready"), || async {
            let found = nodes.get_opt(name).await;
            let found = found.map_err(Error::api(format!("read node {name}")))?;
            Ok(found
                .filter(|node| is_ready(node) && !has_taint(node, "node.kubernetes.io/not-ready")))
        })
        .await
        .map(|_| ())
    }

    /// The image that holds a pod's namespaces: it sleeps.
    pub(crate) async fn load_pause(&self) -> Result<(), Error> {
        let busybox = program("busybox").ok_or_else(|| Error::need("it needs busybox-static"))?;
        let pause = Image::new(PAUSE)
            .file("/bin/busybox", busybox, 0o755)
            .entrypoint(&["/bin/busybox", "sleep", "infinity"])
            .user("65535:65535");
        self.load_image(&pause).await
    }
}
