//! Drives [`decide`] at random against a model of the API server: two operators whose watches lag,
//! that crash between any two calls and lose answers; calls that arrive hours late; other clients
//! that delete, edit and remove gates. Two things must never happen: that two pods of one At are
//! released, and that a status says what is not true.
//!
//! The seed of a failing run is printed; `SEED=<seed>` runs that one alone.

use my_operator_rounds::{lengths, parallel_cases, seed};

use super::*;

/// How many histories are tried with a broken server. At least one in a thousand finds the fault, so
/// the chance that all of these miss it is 10^-8.
const ENOUGH: usize = 20_000;
const EVENTS: usize = 160;
/// Histories that once failed. In the first, an operator adopts a pod of another one, which its watch
/// shows, and takes the answer to its own, earlier creation for the latest state.
const FOUND: [u64; 1] = [31_892_414_620_213];

/// A broken server, to see that the model finds what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    No,
    /// It writes a status over any version.
    IgnoresVersions,
    /// It shows every deleted pod as it was created, so that an announced end looks final, whatever
    /// became of the pod since.
    ForgetsReleases,
}

/// A call on its way.
#[derive(Clone, Debug)]
enum Call {
    Create(Box<PodView>),
    Status { version: u64, status: Box<AtStatus> },
    Lift { uid: String, gate: usize },
    DeletePod(PodVersion),
    DeleteAt { version: u64 },
}

/// What the API server stores now and stored before: watches deliver old states too.
struct Server {
    version: u64,
    at: Option<AtView>,
    pod: Option<PodView>,
    ats: Vec<Option<AtView>>,
    pods: Vec<Option<PodView>>,
    released: Vec<String>,
    /// Pods that could run: no scheduler binds a pod that is being deleted.
    could_run: Vec<String>,
    /// Pods that a node has accepted.
    bound: Vec<String>,
    /// The first status that is untrue, with the reason.
    lie: Option<String>,
    broken: Broken,
}

impl Server {
    fn new(at: AtView, pod: Option<PodView>, broken: Broken) -> Self {
        let mut server = Self {
            version: 1,
            at: Some(at),
            pod,
            ats: vec![],
            pods: vec![],
            released: vec![],
            could_run: vec![],
            bound: vec![],
            lie: None,
            broken,
        };
        server.stored();
        server
    }

    /// Called after every change.
    fn stored(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        if self.ats.last() != Some(&self.at) {
            if let Some(at) = &mut self.at {
                at.resource_version.clone_from(&version);
            }
            self.ats.push(self.at.clone());
        }
        if self.pods.last() != Some(&self.pod) {
            if let Some(pod) = &mut self.pod {
                pod.resource_version = version;
            }
            self.pods.push(self.pod.clone());
        }
    }

    /// What in the status is untrue.
    fn judge(&self) -> Option<String> {
        let status = &self.at.as_ref()?.status;
        let recorded = status.pod_uid.as_ref();
        let released = recorded.is_some_and(|uid| self.released.contains(uid));
        let started = reason(status, STARTED).is_some_and(|(is, _)| is == "True");
        // Rows D5 and D7: after the end another client released another pod.
        if started && reason(status, STARTED) == Some(("True", GATE_VIOLATED)) && !released {
            let is_second = status.phase == Some(Phase::Done) && !self.released.is_empty();
            return (!is_second).then(|| format!("GateViolated: {status:?}"));
        }
        if started && !released {
            return Some(format!("Started: {status:?}"));
        }
        if started != status.start_time.is_some() {
            return Some(format!("startTime: {status:?}"));
        }
        let true_end = match (status.result?, status.reason.as_deref()?) {
            (Ending::Missed, _) | (Ending::Unknown, NEVER_STARTED) => {
                recorded.is_none_or(|uid| !self.could_run.contains(uid))
            }
            (Ending::Unknown, _) => !self.is_known_end(),
            (_, DEADLINE_EXCEEDED) => {
                let bound = recorded.is_some_and(|uid| self.bound.contains(uid));
                released && started && !bound
            }
            _ => released && started,
        };
        (!true_end).then(|| format!("result: {status:?}"))
    }

    /// Whether an operator has decided the end of the recorded pod, or the pod is there still.
    fn is_known_end(&self) -> bool {
        let recorded = self.at.as_ref().and_then(|at| at.status.pod_uid.as_ref());
        let there = |pod: &PodView| Some(&pod.uid) == recorded && !pod.deleting;
        self.pod.as_ref().is_some_and(there)
    }

    /// Another client removes the gate of a pod: of one that may be the run, not of a second one.
    fn remove_gate(&mut self) {
        let status = self.at.as_ref().map(|at| &at.status);
        let recorded = status.and_then(|status| status.pod_uid.clone());
        let over = status.is_some_and(|status| status.phase == Some(Phase::Done));
        if let Some(pod) = &mut self.pod
            && self.released.is_empty()
            && !over
            && recorded.is_none_or(|uid| uid == pod.uid)
        {
            pod.gate = None;
            let uid = pod.uid.clone();
            self.release(&uid);
        }
    }

    /// The pod with that UID has no gate any more.
    fn release(&mut self, uid: &str) {
        if !self.released.iter().any(|released| released == uid) {
            self.released.push(uid.to_owned());
            if self.pod.as_ref().is_some_and(|pod| !pod.deleting) {
                self.could_run.push(uid.to_owned());
            }
        }
    }

    /// Whether there is a pod without a gate that is not recorded.
    fn is_violated(&self) -> bool {
        let committed = self
            .at
            .as_ref()
            .is_none_or(|at| at.status.pod_uid.is_some());
        !committed && !self.released.is_empty()
    }

    /// Carries a call out, if its precondition holds.
    fn carry_out(&mut self, call: Call) -> Result<(), ()> {
        let carried = match call {
            Call::Create(pod) => {
                let free = self.pod.is_none();
                if free {
                    self.pod = Some(PodView {
                        uid: format!("p-{}", self.version),
                        ..*pod
                    });
                }
                free
            }
            Call::Status { version, status } => {
                let ignores = self.broken == Broken::IgnoresVersions;
                let at = self
                    .at
                    .as_mut()
                    .filter(|at| ignores || at.resource_version == version.to_string());
                let written = at.map(|at| at.status = *status).is_some();
                if written && self.lie.is_none() {
                    self.lie = self.judge();
                }
                written
            }
            Call::Lift { uid, gate } => {
                let pod = self
                    .pod
                    .as_mut()
                    .filter(|pod| pod.uid == uid && pod.gate == Some(gate));
                let lifted = pod.map(|pod| pod.gate = None).is_some();
                if lifted {
                    self.release(&uid);
                }
                lifted
            }
            Call::DeletePod(version) => {
                let same = self
                    .pod
                    .as_ref()
                    .is_some_and(|pod| PodVersion::from_pod(pod) == version);
                if same {
                    self.pod = None;
                }
                same
            }
            Call::DeleteAt { version } => {
                let at = self
                    .at
                    .take_if(|at| at.resource_version == version.to_string());
                at.is_some()
            }
        };
        self.stored();
        if carried { Ok(()) } else { Err(()) }
    }
}

/// One process of the operator, with the states that its watches have delivered.
#[derive(Default)]
struct Operator {
    at: usize,
    pod: usize,
    /// What it is about to do: an operation, then a status.
    calls: Vec<Call>,
    /// What the next step of this pass knows of the pod, and whether by a live read.
    known: Option<(Option<PodView>, bool)>,
    /// The At as its last write left it, otherwise as the watch has it.
    own: Option<AtView>,
    /// The next step follows a live read.
    look: bool,
    /// What it remembers of pods.
    sightings: Sightings,
    /// Its last dry run.
    trial: Option<Trial>,
}

impl Operator {
    fn forget(&mut self) {
        (self.calls, self.known, self.own, self.look) = (vec![], None, None, false);
    }
}

/// What happened: kept when a run that fails is repeated, because the text takes longer than the run.
struct Log(Option<Vec<String>>);

impl Log {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }
}

fn chance(random: &mut fastrand::Rng, percent: u32) -> bool {
    random.u32(0..100) < percent
}

struct World {
    random: fastrand::Rng,
    server: Server,
    operators: [Operator; 2],
    late: Vec<Call>,
    now: DateTime<Utc>,
    /// It begins at the commit and shortly before the deadlines, and is short: a release and a
    /// decision that is based on the state before it cross more often.
    hurried: bool,
    log: Log,
}

impl World {
    fn new(seed: u64, broken: Broken, log: Log) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let hurried = random.bool();
        let committed = hurried.then(|| gated("p-0"));
        let (mut at, now) = match &committed {
            Some(pod) => (running_at(&pod.uid), at_second(random.i64(18..21))),
            // Time for dry runs.
            None if seed.is_multiple_of(16) => (pending_at(), at_second(-66)),
            None => (pending_at(), at_second(-5)),
        };
        let spec = at.spec.as_mut().unwrap();
        let short = if hurried { 2 } else { 30 };
        spec.active_deadline_seconds = Some(if random.bool() { short } else { 1_000 });
        spec.starting_deadline_seconds = random.bool().then_some(20);
        Self {
            random,
            server: Server::new(at, committed, broken),
            operators: Default::default(),
            late: vec![],
            now,
            hurried,
            log,
        }
    }

    fn event(&mut self) {
        match self.random.usize(0..100) {
            0..=54 => self.operate(),
            55..=64 if self.hurried => self.foreign_pod(),
            65..=69 | 94..=98 if self.hurried => {
                self.now += TimeDelta::seconds(self.random.i64(0..3));
            }
            55..=74 => self.deliver(),
            75..=79 => self.arrive_late(),
            80..=85 => self.kubelet(),
            86..=93 => self.foreign_pod(),
            94..=98 => self.now += TimeDelta::seconds(self.random.i64(0..8)),
            _ => self.now -= TimeDelta::seconds(20),
        }
    }

    /// A watch delivers some of the events to an operator: one after the other, or the latest state
    /// of a list after a gap.
    fn deliver(&mut self) {
        let number = self.random.usize(0..2);
        let operator = &mut self.operators[number];
        let (ats, pods) = (self.server.ats.len(), self.server.pods.len());
        if chance(&mut self.random, 50) {
            operator.at += self.random.usize(0..ats - operator.at);
            return;
        }
        let to = operator.pod + self.random.usize(0..pods - operator.pod);
        // Not every watch may miss what another client did: then no operator could know of it.
        let gap = chance(&mut self.random, 20) && !self.server.is_violated();
        self.watch(number, to, gap);
    }

    /// A watch delivers the states of the pod up to that one.
    fn watch(&mut self, number: usize, to: usize, gap: bool) {
        let operator = &mut self.operators[number];
        while operator.pod < to {
            let old = self.server.pods[operator.pod].clone();
            operator.pod = if gap { to } else { operator.pod + 1 };
            let new = self.server.pods[operator.pod].as_ref();
            let same = |old: &&PodView| new.is_some_and(|new| new.uid == old.uid);
            if let Some(old) = old.as_ref().filter(|old| !same(old)) {
                operator.sightings.record_deletion(old, !gap);
            }
            if let Some(new) = new {
                operator.sightings.record(new, self.now);
            }
        }
    }

    fn arrive_late(&mut self) {
        if !self.late.is_empty() {
            let call = self.late.swap_remove(self.random.usize(0..self.late.len()));
            self.log.push(|| format!("late: {call:?}"));
            let _ = self.server.carry_out(call);
        }
    }

    fn kubelet(&mut self) {
        let code = i32::from(chance(&mut self.random, 30));
        if let Some(pod) = &mut self.server.pod
            && pod.gate.is_none()
            && (pod.bound || !pod.deleting)
        {
            if !std::mem::replace(&mut pod.bound, true) {
                self.server.bound.push(pod.uid.clone());
            }
            if self.random.bool() {
                let done = ended("x", code);
                (pod.phase, pod.ended) = (done.phase, done.ended);
            }
            self.server.stored();
        }
    }

    fn foreign_pod(&mut self) {
        let pick = self.random.usize(0..7);
        self.log.push(|| format!("foreign pod {pick}"));
        // A pod that another client released, and that was gone before any operator saw it, cannot
        // be known of: docs/at/exactly-once.md says so.
        let known = |operator: &Operator| operator.sightings.released.is_some();
        let unknown = self.server.is_violated() && !self.operators.iter().all(known);
        let server = &mut self.server;
        let pending = server.at.as_mut().filter(|at| at.phase() == Phase::Pending);
        match pick {
            0 | 1 if unknown => {}
            0 | 1 => server.pod = None,
            6 => server.remove_gate(),
            2 => {
                if let Some(at) = pending {
                    let spec = at.spec.as_mut().unwrap();
                    spec.suspend = spec.suspend.map(|now| !now);
                }
            }
            3 => {
                if let Some(at) = pending {
                    let spec = at.spec.as_mut().unwrap();
                    spec.command = spec.command.as_ref().map(|text| format!("{text}!"));
                }
            }
            4 => {
                if let Some(pod) = &mut server.pod {
                    pod.message.push('.');
                }
            }
            _ => {
                // A pod that is being deleted and kept by another client's finalizer.
                if let Some(pod) = &mut server.pod {
                    pod.deleting = true;
                }
            }
        }
        server.stored();
    }

    fn operate(&mut self) {
        let number = self.random.usize(0..2);
        if chance(&mut self.random, 3) && !self.server.is_violated() {
            // A crash: the new process begins with whole lists.
            self.log.push(|| format!("{number} crashes"));
            let mut sightings = Sightings::default();
            if let Some(pod) = &self.server.pod {
                sightings.record(pod, self.now);
            }
            self.operators[number] = Operator {
                at: self.server.ats.len() - 1,
                pod: self.server.pods.len() - 1,
                sightings,
                ..Operator::default()
            };
            return;
        }
        if self.operators[number].calls.is_empty() {
            self.decide(number);
        } else {
            self.call(number);
        }
    }

    /// A live read of the pod. That of a pod that is gone may find its last state, as long as the
    /// API server has not forgotten it.
    fn look(&mut self, number: usize, at: &AtView) -> Option<PodView> {
        let server = &self.server;
        let sightings = &mut self.operators[number].sightings;
        let pod = server.pod.clone();
        let Some(uid) = at.status.pod_uid.as_ref().filter(|_| at.is_end_announced()) else {
            return pod;
        };
        let is_it = |pod: &PodView| pod.uid == *uid;
        let last = sightings.last.as_deref();
        let is_known = last.is_some_and(|last| last.certain && is_it(&last.pod));
        let forgets_releases = server.broken == Broken::ForgetsReleases;
        if !is_known && !pod.as_ref().is_some_and(is_it) && (forgets_releases || self.random.bool())
        {
            let mut states = server.pods.iter().flatten().filter(|pod| is_it(pod));
            let last = if forgets_releases {
                states.next()
            } else {
                states.next_back()
            };
            sightings.record_deletion(last.expect("a state of the recorded pod"), true);
        }
        pod
    }

    fn decide(&mut self, number: usize) {
        let operator = &mut self.operators[number];
        let cached = &self.server.ats[operator.at];
        let Some(at) = operator.own.clone().or_else(|| cached.clone()) else {
            return;
        };
        let look = std::mem::take(&mut operator.look);
        let (pod, live) = match operator.known.take() {
            _ if look => (self.look(number, &at), true),
            Some(known) => known,
            None => (self.server.pods[operator.pod].clone(), false),
        };
        let operator = &mut self.operators[number];
        if let Some(pod) = &pod {
            operator.sightings.record(pod, self.now);
        }
        let observed = Observed {
            pod: pod.as_ref(),
            live,
            last: operator.sightings.last.as_deref(),
            released: operator.sightings.released.as_ref(),
            trial: operator.trial.as_ref(),
            ..Observed::default()
        };
        let decision = decide(&at, observed, self.now);
        hold_invariants(&at, observed, self.now, &decision);
        self.log.push(|| {
            let (phase, version) = (at.phase() as u8, &at.resource_version);
            let operation = &decision.operation;
            format!("{number} at {phase} version {version} pod {pod:?} live {live}: {operation:?}")
        });
        let version = at.resource_version.parse().unwrap();
        operator.own = Some(at.clone());
        match decision.operation {
            Operation::Nothing => {}
            Operation::GetLive => operator.look = true,
            Operation::Create(_) => {
                let hash = Some(build::hash(UID, at.spec.as_ref().unwrap()));
                let pod = PodView { hash, ..gated("") };
                operator.calls.push(Call::Create(Box::new(pod)));
            }
            Operation::DryRun(_) => {
                let verdict = match self.random.usize(0..3) {
                    0 => Verdict::Accepted,
                    1 => refused(),
                    _ => Verdict::Unknown,
                };
                let (last, now) = (operator.trial.as_ref(), self.now);
                operator.trial = Some(Trial::new(last, at.generation, verdict, None, now));
            }
            Operation::RemoveGate { uid, gate } => operator.calls.push(Call::Lift { uid, gate }),
            Operation::DeletePod(version) => operator.calls.push(Call::DeletePod(version)),
            Operation::DeleteAt => operator.calls.push(Call::DeleteAt { version }),
        }
        if let Some(status) = decision.status {
            operator.calls.push(Call::Status { version, status });
        }
        if operator.calls.is_empty() && !operator.look {
            operator.own = None;
        } else if decision.again {
            operator.known = Some((pod, live));
        }
    }

    fn call(&mut self, number: usize) {
        let operator = &mut self.operators[number];
        let call = operator.calls.remove(0);
        if chance(&mut self.random, 6) {
            // No answer: the call may still arrive.
            self.log
                .push(|| format!("{number} gets no answer to {call:?}"));
            self.late.push(call);
            operator.forget();
            return;
        }
        let carried = self.server.carry_out(call.clone());
        self.log
            .push(|| format!("{number} calls {call:?}: {carried:?}"));
        if chance(&mut self.random, 6) {
            operator.forget();
            return;
        }
        self.answer(number, call, carried);
    }

    /// An operator gets the answer to its call.
    fn answer(&mut self, number: usize, call: Call, carried: Result<(), ()>) {
        let (server, operator) = (&self.server, &mut self.operators[number]);
        if let Call::Status { status, .. } = &call
            && let (Some(own), Some((pod, live))) = (&operator.own, &mut operator.known)
        {
            let known = pod.as_ref().map(|pod| pod.uid.as_str());
            *live &= !status.records_other_pod(&own.status, known);
        }
        match (call, carried) {
            (Call::Create(_) | Call::Lift { .. }, Ok(())) => {
                operator.known = Some((server.pod.clone(), true));
            }
            (Call::DeletePod(version), Ok(())) => {
                operator.known = Some((None, false));
                let mut states = server.pods.iter().rev().flatten();
                let deleted = states.find(|pod| PodVersion::from_pod(pod) == version);
                let sightings = &mut operator.sightings;
                sightings.record_deletion(deleted.expect("a state of the pod"), true);
            }
            (Call::Create(_) | Call::Lift { .. } | Call::DeletePod(_), Err(())) => {
                operator.calls.clear();
                operator.look = true;
            }
            (Call::Status { .. }, Ok(())) => operator.own = server.at.clone(),
            (Call::DeleteAt { .. }, Ok(())) => {}
            (Call::Status { .. } | Call::DeleteAt { .. }, Err(())) => operator.forget(),
        }
    }

    /// Everything works and every watch keeps up: an At that may go on must finish.
    fn calm_down(&mut self) {
        self.late.clear();
        self.now = at_second(500);
        self.watch(0, self.server.pods.len() - 1, false);
        if let Some(pod) = &mut self.server.pod
            && pod.deleting
        {
            self.server.pod = None;
        }
        if let Some(at) = &mut self.server.at {
            at.spec.as_mut().unwrap().suspend = Some(false);
        }
        self.server.stored();
        for _ in 0..60 {
            self.watch(0, self.server.pods.len() - 1, false);
            let operator = &mut self.operators[0];
            operator.at = self.server.ats.len() - 1;
            if operator.calls.is_empty() {
                self.decide(0);
            } else {
                let call = operator.calls.remove(0);
                let carried = self.server.carry_out(call.clone());
                self.answer(0, call, carried);
            }
            self.kubelet();
        }
    }
}

/// Runs one seed; the log if it went wrong.
fn run(seed: u64, broken: Broken) -> Result<(), Vec<String>> {
    if try_run(&mut World::new(seed, broken, Log(None))).is_ok() {
        return Ok(());
    }
    let mut logged = World::new(seed, broken, Log(Some(vec![])));
    let wrong = try_run(&mut logged).expect_err("the same failure again");
    let mut log = logged.log.0.expect("a log");
    log.push(wrong);
    Err(log)
}

/// What goes wrong in this world.
fn try_run(world: &mut World) -> Result<(), String> {
    // A server that ignores versions may make any status untrue.
    let judged = world.server.broken != Broken::IgnoresVersions;
    let events = if world.hurried { EVENTS / 4 } else { EVENTS };
    for _ in 0..events {
        world.event();
        if world.server.released.len() > 1 {
            return Err(format!("released: {:?}", world.server.released));
        }
        if let Some(lie) = world.server.lie.take_if(|_| judged) {
            return Err(format!("not so: {lie}"));
        }
    }
    world.calm_down();
    let server = &world.server;
    let at = server.at.as_ref().unwrap();
    let lies = server.lie.is_some() && judged;
    if at.phase() != Phase::Done || server.released.len() > 1 || lies {
        let (lie, pod) = (&server.lie, &server.pod);
        return Err(format!("not done: {lie:?} {at:#?} {pod:#?}"));
    }
    Ok(())
}

#[test]
fn no_two_pods_are_ever_released_and_every_at_ends() {
    let run = |seed| {
        if let Err(log) = run(seed, Broken::No) {
            panic!("SEED={seed} fails:\n{}", log.join("\n"));
        }
    };
    FOUND.into_iter().for_each(run);
    parallel_cases(lengths::at_model(), run);
}

#[test]
fn the_model_finds_a_second_release_where_versions_are_ignored() {
    let mut lines = last_lines(Broken::IgnoresVersions);
    assert!(lines.any(|line| line.starts_with("released: ")));
}

#[test]
fn the_model_finds_an_untrue_result_where_releases_are_forgotten() {
    let mut lines = last_lines(Broken::ForgetsReleases);
    assert!(lines.any(|line| line.starts_with("not so: result: ")));
}

/// The last lines of the histories that fail with a broken server.
fn last_lines(broken: Broken) -> impl Iterator<Item = String> {
    let mut random = fastrand::Rng::with_seed(seed("the histories"));
    let seeds = std::iter::repeat_with(move || random.u64(..)).take(ENOUGH);
    let failed = seeds.filter_map(move |seed| run(seed, broken).err());
    failed.filter_map(|mut log| log.pop())
}
