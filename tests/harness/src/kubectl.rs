//! kubectl, and what a test reads of objects without it.

use std::process::Command;

use my_operator_cluster::{Cluster, Process};
use serde_json::Value;

use crate::programs::{Said, run, run_blocking};
use crate::reads::{Changes, Target, print, print_if_any, reader};
use crate::wait::{TIMEOUT, try_wait, wait_for};
use crate::{checkout, kubectl_calls};

/// kubectl in a namespace.
#[derive(Clone)]
pub struct Kubectl {
    pub cluster: &'static Cluster,
    pub namespace: String,
}

impl Kubectl {
    pub fn new(cluster: &'static Cluster, namespace: &str) -> Self {
        Self {
            cluster,
            namespace: namespace.to_owned(),
        }
    }

    /// In a fresh namespace of that name.
    pub async fn fresh(cluster: &'static Cluster, name: &str) -> Self {
        let namespace = cluster.namespace(name).await.unwrap();
        Self { cluster, namespace }
    }

    /// `kubectl ARGS`, split at blanks.
    pub fn run(&self, args: &str) -> impl Future<Output = Said> + use<> {
        self.with(args, "")
    }

    /// `kubectl ARGS` with `input` on its standard input.
    pub fn with(&self, args: &str, input: &str) -> impl Future<Output = Said> + use<> {
        run(&mut self.command(args), input)
    }

    /// `kubectl ARGS` in a `drop`, where nothing can be awaited.
    pub fn run_blocking(&self, args: &str) -> Said {
        run_blocking(&mut self.command(args))
    }

    /// `kubectl ARGS` as a command. It is counted.
    pub fn command(&self, args: &str) -> Command {
        kubectl_calls::count();
        let mut command = self.cluster.kubectl();
        command
            .current_dir(checkout())
            .args(["--namespace", &self.namespace])
            .args(args.split_whitespace());
        command
    }

    /// `kubectl ARGS` as a process that goes on; its output is in its log.
    pub fn spawn(&self, args: &str, name: &str) -> Process {
        self.cluster.spawn(name, &mut self.command(args)).unwrap()
    }

    /// `kubectl apply -f -`.
    pub fn apply(&self, yaml: &str) -> impl Future<Output = Said> + use<> {
        self.with("apply -f -", yaml)
    }

    /// Applies an object as soon as it is accepted: the API server takes a moment to see a changed
    /// webhook configuration.
    pub async fn until_applied(&self, yaml: &str) {
        let mut last = String::new();
        let applied = try_wait(TIMEOUT, async || {
            let said = self.apply(yaml).await;
            last = format!("{}{}", said.out, said.err);
            said.ok.then_some(())
        });
        assert!(applied.await.is_some(), "not accepted: {last}");
    }

    /// Merges fields into the status of an object.
    pub async fn set_status(&self, object: &str, status: &str) {
        let args = format!(
            "patch {object} --subresource=status --type=merge --patch-file=/dev/stdin -o name"
        );
        self.with(&args, &format!("status: {status}")).await.good();
    }

    async fn target(&self, object: &str) -> Target {
        let reader = reader(self.cluster).await;
        reader.target(object, &self.namespace).await
    }

    /// An object (`at/x`), or the list of all of a kind (`ats`); `None` when there is no such object. Not by kubectl.
    ///
    /// # Panics
    ///
    /// Panics if the read fails.
    pub async fn get(&self, object: &str) -> Option<Value> {
        self.target(object).await.get().await
    }

    /// What `kubectl get --raw PATH` prints, read without kubectl.
    pub async fn raw(&self, path: &str) -> String {
        reader(self.cluster).await.raw(path).await
    }

    /// What the API server would say to the creation of an object, asked without kubectl.
    pub async fn dry_run(&self, kind: &str, object: Value) -> Result<Value, String> {
        self.target(kind).await.create(object, true).await
    }

    /// Creates an object without kubectl.
    pub(crate) async fn create(&self, kind: &str, object: Value) {
        let created = self.target(kind).await.create(object, false).await;
        created.unwrap_or_else(|error| panic!("cannot create: {error}"));
    }

    /// Deletes an object without kubectl.
    pub(crate) async fn delete(&self, object: &str) {
        self.target(object).await.delete().await;
    }

    /// The same as [`Kubectl::get`] for an object that must be there.
    pub async fn object(&self, object: &str) -> Value {
        let found = self.get(object).await;
        found.unwrap_or_else(|| panic!("there is no {object} in {}", self.namespace))
    }

    /// The names of all objects of a kind, sorted.
    pub async fn names(&self, kind: &str) -> Vec<String> {
        let list = self.object(kind).await;
        let items = list["items"].as_array().unwrap().iter();
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        items.map(name).collect()
    }

    /// What `kubectl get OBJECT -o jsonpath=PATH` prints, but read without kubectl.
    ///
    /// # Panics
    ///
    /// Panics if there is no such object, or if an expression of the path matches nothing: kubectl prints nothing then,
    /// and a test that compares with "" could not fail. See [`Kubectl::absent`].
    pub async fn field(&self, object: &str, path: &str) -> String {
        let found = self.object(object).await;
        print(&found, path)
            .unwrap_or_else(|path| panic!("{object}: {path} matches nothing in\n{found:#}"))
    }

    /// The same where an expression may match nothing, and then prints nothing. The object must be there.
    pub async fn field_if_any(&self, object: &str, path: &str) -> String {
        print_if_any(&self.object(object).await, path)
    }

    /// Asserts that an object is there and does not have a field. Spell the path as in a [`Kubectl::field`] that finds
    /// it at another time: a typo is absent, too.
    pub async fn absent(&self, object: &str, path: &str) {
        let found = self.field_if_any(object, path).await;
        assert_eq!(found, "", "{object}: {path}");
    }

    /// Waits on a watch until `done` returns something for an object (`None` where there is no such object) or for the
    /// list of all of a kind.
    pub async fn until<T>(
        &self,
        object: &str,
        what: &str,
        done: impl FnMut(Option<&Value>) -> Option<T>,
    ) -> T {
        let found = self.target(object).await.watch(TIMEOUT, done).await;
        found.unwrap_or_else(|last| {
            let last = last.map_or("it does not exist".to_owned(), |last| format!("{last:#}"));
            panic!("timed out waiting for {object} {what}: {last}")
        })
    }

    /// Notices every change of an object, or of all objects of a kind.
    pub async fn changes(&self, object: &str) -> Changes {
        self.target(object).await.changes()
    }

    /// Waits until a field has a value.
    pub async fn until_field(&self, object: &str, path: &str, value: &str) {
        let what = format!("to have {path} = {value:?}");
        self.until(object, &what, |found| {
            (print(found?, path).ok()? == value).then_some(())
        })
        .await;
    }

    /// Waits until an object has a field, and returns it.
    pub async fn until_any(&self, object: &str, path: &str) -> String {
        let what = format!("to have {path}");
        self.until(object, &what, |found| print(found?, path).ok())
            .await
    }

    /// The Events of the objects of a name, each as `TYPE REASON MESSAGE`, in the order in which they were published.
    pub async fn events(&self, name: &str) -> Vec<String> {
        events_of(&self.object("events").await, name)
    }

    /// Waits for an Event of an object of that name, and returns it as [`Kubectl::events`] does.
    pub async fn until_event(
        &self,
        name: &str,
        what: &str,
        mut is: impl FnMut(&str) -> bool,
    ) -> String {
        let what = format!("{what}, about {name}");
        self.until("events", &what, |list| {
            let mut events = events_of(list?, name).into_iter();
            events.find(|event| is(event))
        })
        .await
    }

    /// Waits until an object does not have a field.
    pub async fn until_absent(&self, object: &str, path: &str) {
        let what = format!("to have no {path}");
        self.until(object, &what, |found| {
            print_if_any(found?, path).is_empty().then_some(())
        })
        .await;
    }

    /// Waits until there is no such object, or none of a kind.
    /// Several are divided by commas.
    pub async fn until_gone(&self, what: &str) {
        for one in what.split(',') {
            self.until(one, "to be gone", |found| {
                let items = found.map(|found| found["items"].as_array());
                let gone = items.is_none_or(|items| items.is_some_and(Vec::is_empty));
                gone.then_some(())
            })
            .await;
        }
    }

    /// Waits until the API server calls both webhooks: it sees each of the new configurations by itself. The
    /// bad manifest is rejected then, and the good one is given that field's default.
    pub async fn until_webhooks_are_called(&self, bad: &str, good: &str, default: (&str, &str)) {
        let apply = format!("apply -f {bad}");
        self.until_refused(&apply, "is invalid").await;
        let (path, value) = default;
        let apply = format!("apply --dry-run=server -f {good} -o jsonpath={path}");
        wait_for("a sample to be given defaults", async || {
            (self.run(&apply).await.out == value).then_some(())
        })
        .await;
    }

    /// Waits until `kubectl ARGS` would be rejected in those words: a new quota or policy is not in force at
    /// once, and a quota that has not counted yet rejects in others.
    pub async fn until_refused(&self, args: &str, words: &str) {
        let try_out = format!("{args} --dry-run=server");
        let mut last = String::new();
        let refused = try_wait(TIMEOUT, async || {
            let said = self.run(&try_out).await;
            let refused = !said.ok && said.err.contains(words);
            last = format!("{}{}", said.out, said.err);
            refused.then_some(())
        });
        assert!(
            refused.await.is_some(),
            "{args} is not rejected with {words:?}: {last}"
        );
    }

    /// Waits until the built-in controller has nothing to write into a Deployment any more, and returns
    /// the Deployment as YAML.
    pub async fn deployment_at_rest(&self, name: &str) -> String {
        let reason = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
        let object = format!("deployment/{name}");
        self.until_field(&object, reason, "NewReplicaSetAvailable")
            .await;
        self.run(&format!("get {object} -o yaml")).await.good()
    }
}

/// The Events about objects of that name. Those of this operator are of `events.k8s.io`, and have an `eventTime`.
fn events_of(list: &Value, name: &str) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let about = items.filter(|event| event["involvedObject"]["name"] == name);
    let mut events: Vec<&Value> = about.collect();
    let time = |event: &Value| {
        let times = [&event["eventTime"], &event["firstTimestamp"]];
        let text = times.into_iter().find_map(Value::as_str);
        text.map(crate::time)
    };
    events.sort_by_key(|event| time(event));
    let word = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let line = |event: &Value| {
        ["type", "reason", "message"]
            .map(|field| word(event, field))
            .join(" ")
    };
    events.into_iter().map(line).collect()
}
