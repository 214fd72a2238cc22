//! Random schedules of replicas that elect a leader: slow, lost and late calls, processes that are suspended, die,
//! start and release the lease, clocks that drift, leases edited by hand. Two of them must never lead at once, nor two
//! that are candidates for leases which exclude each other.
//!
//! And schedules in which the API server answers and watches deliver, while leaders die or are terminated. The next one
//! must lead as soon as the README promises.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;
use simulated_apiserver::seeds::{cases, given_seed, length};

use super::candidate::{Candidate, Claim, Error, Step, Stored, Turn, after_race};
use super::decision::Record;
use super::periods::Periods;

/// How long things go wrong, in milliseconds of the true time.
const TROUBLE: u64 = 300_000;
/// How long everything works after that.
const PEACE: u64 = 60_000;

const NO_PAUSE: RangeInclusive<Duration> = Duration::ZERO..=Duration::ZERO;
const PERIODS: Periods = periods(15_000, 10_000, 2_000);

const fn periods(lease: u64, renew: u64, retry: u64) -> Periods {
    Periods {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        retry_period: Duration::from_millis(retry),
    }
}

/// The longest time that a message takes to or from a healthy API server, in milliseconds.
const WELL: u64 = 50;
/// How many leaders die or are terminated in one schedule with a healthy API server.
const CHANGES: u32 = 12;

/// The Lease in the API server, which rejects writes over any version but the latest.
#[derive(Clone, Default)]
struct Server {
    stored: Option<Version>,
    writes: u64,
}

/// A version of the Lease.
#[derive(Clone, Debug)]
struct Version {
    number: u64,
    record: Record,
}

impl Stored for Version {
    fn record(&self) -> Record {
        self.record.clone()
    }
}

impl Server {
    fn store(&mut self, mut record: Record) -> Version {
        self.writes += 1;
        record.mark = format!("mark {}", self.writes);
        let number = self.writes;
        self.stored.insert(Version { number, record }).clone()
    }

    fn write(&mut self, over: Option<&Version>, claim: &Claim) -> Result<Version, Error> {
        let number = |version: &Version| version.number;
        if self.stored.as_ref().map(number) != over.map(number) {
            return Err(Error::LostRace);
        }
        let seconds = i64::try_from(claim.seconds).unwrap();
        Ok(self.store(record(&claim.holder, seconds, claim.transitions)))
    }
}

enum Request {
    Get,
    Others,
    Write { over: Option<Version>, claim: Claim },
}

enum Answer {
    Found(Result<Option<Version>, Error>),
    /// The other leases.
    Others(Result<BTreeMap<String, Record>, String>),
    Written(Result<Version, Error>),
}

enum What {
    /// A pause of a replica is over.
    Wake,
    /// It takes the step that it decided on a moment ago.
    Take(Step<Version>),
    /// A request is at the API server.
    Arrive(usize, Request),
    /// Its answer is at the replica, or none came in time.
    Return(Answer),
    /// The replica gets a termination signal.
    Terminate,
    /// The watch of a replica delivers that the lease was written.
    Ring,
    /// A leader dies or is terminated, with a healthy API server.
    Change,
}

/// A process, and the clock of its machine.
struct Replica {
    name: String,
    /// The lease for which it is a candidate.
    lease: usize,
    candidate: Candidate<Version>,
    /// The replica's clock at the true time 0.
    offset: Duration,
    /// How fast its clock goes: near 1.
    rate: f64,
    /// The current step of its work. Events of earlier steps come too late.
    step: u64,
    /// When its latest request was sent, by its own clock.
    sent: Duration,
    leads_until: Option<Duration>,
    /// It waits until its pause ends, or the watch delivers.
    pausing: bool,
    /// How many changes the watch delivered while it did something else.
    rings: u32,
    /// It is suspended until then, in true time.
    stopped_until: u64,
}

impl Replica {
    fn clock(&self, now: u64) -> Duration {
        self.offset + Duration::from_millis(now).mul_f64(self.rate)
    }

    /// How long that takes in milliseconds of the true time, rounded up.
    fn true_time(&self, duration: Duration) -> u64 {
        milliseconds(duration.div_f64(self.rate)) + u64::from(!duration.is_zero())
    }

    fn leads(&self, now: u64) -> bool {
        self.leads_until
            .is_some_and(|until| self.clock(now) < until)
    }
}

/// A time without a leader, after an event that another leader must follow in time.
#[derive(Clone, Copy)]
struct Vacancy {
    since: u64,
    /// The latest time at which another must lead.
    until: u64,
    what: &'static str,
}

struct World {
    random: Rng,
    periods: Periods,
    /// The API server answers, watches deliver, no replica is suspended, and no user edits the lease.
    healthy: bool,
    vacancy: Option<Vacancy>,
    changes: u32,
    /// How long it took until another replica led after a leader died, and after one was terminated.
    longest: [u64; 2],
    /// The leases. A replica is a candidate for one of them, and leads only while no other is held.
    servers: Vec<Server>,
    replicas: Vec<Replica>,
    born: usize,
    /// No replica starts before.
    no_birth_until: u64,
    /// A lease was released by hand: until then, two may lead.
    excused_until: u64,
    /// (true time, number) -> (replica, its step, what).
    events: BTreeMap<(u64, u64), (String, u64, What)>,
    number: u64,
    terms: u64,
    log: Vec<String>,
    wrong: Option<String>,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

impl World {
    /// A world in which everything goes wrong for a while.
    fn in_trouble(seed: u64) -> Self {
        // Half of them with several leases.
        let leases = [1, 1, 2, 3][usize::try_from(seed % 4).unwrap()];
        let mut world = Self::new(seed, PERIODS, false, leases);
        for lease in 0..leases {
            if world.random.bool() {
                let holder = ["", "gone"][world.random.usize(0..2)];
                world.servers[lease].store(record(holder, 15, 7));
            }
        }
        world
    }

    /// A world in which leaders die or are terminated, and nothing else goes wrong. The promises hold for all periods.
    fn healthy(seed: u64) -> Self {
        let all = [
            PERIODS,
            periods(3_000, 2_000, 500),
            periods(120_000, 80_000, 20_000),
        ];
        let periods = all[usize::try_from(seed % 3).unwrap()];
        let mut world = Self::new(seed, periods, true, 1);
        world.plan_change(0);
        world
    }

    fn new(seed: u64, periods: Periods, healthy: bool, leases: usize) -> Self {
        let mut world = Self {
            random: Rng::with_seed(seed),
            periods,
            healthy,
            vacancy: None,
            changes: 0,
            longest: [0, 0],
            servers: vec![Server::default(); leases],
            replicas: Vec::new(),
            born: 0,
            no_birth_until: 0,
            excused_until: 0,
            events: BTreeMap::new(),
            number: 0,
            terms: 0,
            log: Vec::new(),
            wrong: None,
        };
        for _ in 0..world.random.usize(2..5) {
            world.give_birth(0);
        }
        world
    }

    fn give_birth(&mut self, now: u64) {
        let name = format!("r{}", self.born);
        self.born += 1;
        let offset = Duration::from_secs(self.random.u64(0..10_000_000));
        // NTP bounds the drift of a clock to 1 in 2,000.
        let drift = if self.healthy { 0.0005 } else { 0.02 };
        let rate = 1.0 - drift + self.random.f64() * 2.0 * drift;
        let lease = self.random.usize(0..self.servers.len());
        let has_rivals = self.servers.len() > 1;
        self.replicas.push(Replica {
            lease,
            candidate: Candidate::new(name.clone(), lease.to_string(), self.periods, has_rivals),
            offset,
            rate,
            step: 0,
            sent: Duration::ZERO,
            leads_until: None,
            pausing: false,
            rings: 0,
            stopped_until: 0,
            name: name.clone(),
        });
        let at = now.max(self.no_birth_until) + self.random.u64(0..3_000);
        self.plan(at, &name, 0, What::Wake);
    }

    fn plan(&mut self, at: u64, name: &str, step: u64, what: What) {
        self.number += 1;
        self.events
            .insert((at, self.number), (name.to_owned(), step, what));
    }

    fn replica(&self, name: &str) -> Option<usize> {
        self.replicas.iter().position(|r| r.name == name)
    }

    fn note(&mut self, now: u64, text: &str) {
        self.log.push(format!("{now} {text}"));
    }

    /// Whether everything works at that time.
    fn is_healthy(&self, now: u64) -> bool {
        self.healthy || now >= TROUBLE
    }

    /// How long a message takes.
    fn delay(&mut self, now: u64) -> u64 {
        if self.is_healthy(now) {
            return self.random.u64(0..=WELL);
        }
        match self.random.u32(0..20) {
            0 => self.random.u64(0..30_000),
            1..4 => self.random.u64(0..6_000),
            _ => self.random.u64(0..30),
        }
    }

    /// Whether a message is lost.
    fn loses(&mut self, now: u64) -> bool {
        !self.is_healthy(now) && self.random.u32(0..30) == 0
    }

    fn is_over(&mut self, now: u64) -> bool {
        if let Some(vacancy) = self.vacancy.filter(|vacancy| now > vacancy.until) {
            let Vacancy { since, what, .. } = vacancy;
            let late = now - since;
            self.wrong = Some(format!(
                "{late} ms after {what} there is no leader, at {now}"
            ));
        }
        let done = if self.healthy {
            self.changes == CHANGES && self.vacancy.is_none()
        } else {
            now > TROUBLE + PEACE
        };
        done || self.wrong.is_some()
    }

    fn run(&mut self) {
        while let Some(((now, _), (name, step, what))) = self.events.pop_first() {
            if self.is_over(now) {
                return;
            }
            if !self.is_healthy(now) && self.random.u32(0..60) == 0 {
                self.disturb(now);
            }
            match what {
                What::Arrive(lease, request) => {
                    self.serve(now, &name, step, lease, request);
                    continue;
                }
                What::Change => {
                    self.change(now);
                    continue;
                }
                _ => {}
            }
            let Some(index) = self.replica(&name) else {
                continue;
            };
            let stopped_until = self.replicas[index].stopped_until;
            if now < stopped_until {
                // Of what comes meanwhile, anything may be noticed first.
                let at = stopped_until + self.random.u64(0..=1);
                self.plan(at, &name, step, what);
                continue;
            }
            self.advance(now, index, step, what);
        }
    }

    fn serve(&mut self, now: u64, name: &str, step: u64, lease: usize, request: Request) {
        let answer = match request {
            Request::Get => Answer::Found(Ok(self.servers[lease].stored.clone())),
            Request::Others => {
                let others = self.servers.iter().enumerate().filter(|(i, _)| *i != lease);
                let others = others.filter_map(|(i, server)| {
                    let version = server.stored.clone()?;
                    Some((i.to_string(), version.record))
                });
                Answer::Others(Ok(others.collect()))
            }
            Request::Write { over, claim } => {
                let written = self.servers[lease].write(over.as_ref(), &claim);
                let (holder, done) = (claim.holder, written.is_ok());
                let text = format!("{name} writes holder {holder:?} of lease {lease}: {done}");
                self.note(now, &text);
                if done {
                    self.ring(now, lease);
                }
                Answer::Written(written)
            }
        };
        let lost = self.loses(now);
        if self.replica(name).is_some() && !lost {
            let at = now + self.delay(now);
            self.plan(at, name, step, What::Return(answer));
        }
    }

    /// The lease was written: its watches deliver it.
    fn ring(&mut self, now: u64, lease: usize) {
        let watching = self.replicas.iter().filter(|r| r.lease == lease);
        let names: Vec<_> = watching.map(|r| r.name.clone()).collect();
        for name in names {
            if !self.loses(now) {
                let at = now + self.delay(now);
                self.plan(at, &name, 0, What::Ring);
            }
        }
    }

    fn send(&mut self, now: u64, index: usize, request: Request) {
        let (at, lost) = (now + self.delay(now), self.loses(now));
        let silence = || "no answer".to_owned();
        let answer = match request {
            Request::Get => Answer::Found(Err(Error::Other(silence()))),
            Request::Others => Answer::Others(Err(silence())),
            Request::Write { .. } => Answer::Written(Err(Error::Other(silence()))),
        };
        let replica = &mut self.replicas[index];
        replica.sent = replica.clock(now);
        let timeout = replica.true_time(replica.candidate.call_timeout(replica.sent));
        let (name, step, lease) = (replica.name.clone(), replica.step, replica.lease);
        if !lost {
            self.plan(at, &name, step, What::Arrive(lease, request));
        }
        self.plan(now + timeout, &name, step, What::Return(answer));
    }

    fn pause(&mut self, now: u64, index: usize, pause: RangeInclusive<Duration>, then: What) {
        let replica = &self.replicas[index];
        let [least, most] = [pause.start(), pause.end()].map(|pause| replica.true_time(*pause));
        let (name, step) = (replica.name.clone(), replica.step);
        let at = now + self.random.u64(least..=most);
        self.plan(at, &name, step, then);
    }

    /// Pauses. A change that the watch delivers ends it.
    fn watch(&mut self, now: u64, index: usize, pause: RangeInclusive<Duration>) {
        let replica = &mut self.replicas[index];
        let rung = replica.rings > 0;
        replica.rings -= u32::from(rung);
        replica.pausing = !rung;
        let pause = if rung { NO_PAUSE } else { pause };
        self.pause(now, index, pause, What::Wake);
    }

    /// The replica has lost the lease: it stands for election again, or its process does not survive that.
    fn lose(&mut self, now: u64, index: usize, reason: &str) {
        if self.random.u32(0..4) == 0 {
            return self.end(now, index, reason);
        }
        let replica = &mut self.replicas[index];
        replica.candidate.step_down();
        replica.leads_until = None;
        let text = format!("{} steps down: {reason}", replica.name);
        self.note(now, &text);
        self.pause(now, index, NO_PAUSE, What::Wake);
    }

    /// The replica ends, and another process takes its place.
    fn end(&mut self, now: u64, index: usize, reason: &str) {
        let replica = self.replicas.remove(index);
        self.note(now, &format!("{} ends: {reason}", replica.name));
        self.give_birth(now);
    }

    fn advance(&mut self, now: u64, index: usize, step: u64, what: What) {
        match what {
            What::Terminate => return self.terminate(now, index),
            What::Ring => return self.rung(now, index),
            _ => {}
        }
        let replica = &mut self.replicas[index];
        if step != replica.step {
            return;
        }
        replica.step += 1;
        replica.pausing = false;
        let clock = replica.clock(now);
        let candidate = &mut replica.candidate;
        let next = match what {
            What::Wake => candidate.begin(clock),
            What::Take(Step::Write { .. }) if !candidate.may_send(clock) => candidate.too_late(),
            What::Take(step) => return self.take(now, index, step),
            What::Return(answer) => match answer {
                Answer::Found(found) => candidate.read(found, clock),
                Answer::Others(others) => candidate.looked(others, clock),
                Answer::Written(written) => candidate.wrote(written, replica.sent, clock),
            },
            What::Arrive(..) | What::Terminate | What::Ring | What::Change => return,
        };
        self.pause(now, index, NO_PAUSE, What::Take(next));
    }

    fn take(&mut self, now: u64, index: usize, step: Step<Version>) {
        match step {
            Step::Read => self.send(now, index, Request::Get),
            Step::ReadAgain => self.pause(now, index, after_race(), What::Take(Step::Read)),
            Step::Look => self.send(now, index, Request::Others),
            Step::Write { over, claim } => self.send(now, index, Request::Write { over, claim }),
            Step::End(turn) => self.turn(now, index, &turn),
        }
    }

    fn turn(&mut self, now: u64, index: usize, turn: &Turn) {
        let replica = &mut self.replicas[index];
        let pause = replica.candidate.pause(turn, replica.clock(now));
        match (turn, replica.leads_until.is_some()) {
            (Turn::Leads { until }, _) => {
                self.lead(now, index, *until);
                self.pause(now, index, pause, What::Wake);
            }
            (Turn::Ended, _) => self.end(now, index, "has tried to release the lease"),
            (Turn::Lost(loss), true) => self.lose(now, index, &format!("{loss:?}")),
            (Turn::Excluded(_), true) => self.lose(now, index, "excluded"),
            // Its own lease has no news of the rival.
            (Turn::Excluded(_), false) | (_, true) => self.pause(now, index, pause, What::Wake),
            (_, false) => self.watch(now, index, pause),
        }
    }

    fn lead(&mut self, now: u64, index: usize, until: Duration) {
        let replica = &mut self.replicas[index];
        let before = replica.leads_until.replace(until);
        replica.rings = 0;
        if before.is_none() && replica.leads(now) {
            self.terms += 1;
            self.fill(now);
        }
        self.check(now);
    }

    /// A change that the watch delivers ends the pause of a waiting replica.
    fn rung(&mut self, now: u64, index: usize) {
        let replica = &mut self.replicas[index];
        if replica.pausing {
            replica.pausing = false;
            let (name, step) = (replica.name.clone(), replica.step);
            self.plan(now, &name, step, What::Wake);
        } else if replica.leads_until.is_none() {
            replica.rings += 1;
        }
    }

    /// A leader ends its work and releases the lease. Any other replica ends at once.
    fn terminate(&mut self, now: u64, index: usize) {
        if !self.replicas[index].leads(now) {
            return self.end(now, index, "terminated");
        }
        let replica = &mut self.replicas[index];
        replica.leads_until = None;
        replica.step += 1;
        let release = replica.candidate.release();
        self.pause(now, index, NO_PAUSE, What::Take(release));
    }

    fn plan_change(&mut self, now: u64) {
        // A replica started after the previous change has seen the lease by then.
        let at = now + 4_000 + self.random.u64(0..40_000);
        self.plan(at, "", 0, What::Change);
    }

    /// The leader dies or is terminated; or a waiting replica dies, if there is another one.
    fn change(&mut self, now: u64) {
        let leader = self.replicas.iter().position(|r| r.leads(now));
        let Some(leader) = leader.filter(|_| self.vacancy.is_none()) else {
            return self.plan_change(now);
        };
        if self.changes == CHANGES {
            return;
        }
        let lease = milliseconds(self.periods.lease_duration);
        match self.random.u32(0..5) {
            0 if self.replicas.len() > 2 => {
                let other = (leader + 1) % self.replicas.len();
                self.end(now, other, "killed");
            }
            0..3 => {
                self.changes += 1;
                self.vacancy = Some(Vacancy {
                    since: now,
                    until: now + lease + 2_000,
                    what: "the leader died",
                });
                self.end(now, leader, "killed");
            }
            _ => {
                self.changes += 1;
                self.vacancy = Some(Vacancy {
                    since: now,
                    until: now + 999,
                    what: "the leader was terminated",
                });
                self.note(now, "the leader is terminated");
                self.terminate(now, leader);
            }
        }
        self.plan_change(now);
    }

    /// A replica leads again.
    fn fill(&mut self, now: u64) {
        if let Some(vacancy) = self.vacancy.take() {
            let was_terminated = vacancy.what.contains("terminated");
            let longest = &mut self.longest[usize::from(was_terminated)];
            let lease = milliseconds(self.periods.lease_duration);
            let beyond = if was_terminated { 0 } else { lease };
            *longest = (*longest).max((now - vacancy.since).saturating_sub(beyond));
        }
    }

    fn disturb(&mut self, now: u64) {
        let index = self.random.usize(0..self.replicas.len());
        let name = self.replicas[index].name.clone();
        match self.random.u32(0..10) {
            0 => self.end(now, index, "killed"),
            1 => self.plan(now, &name, 0, What::Terminate),
            2..7 => {
                let pause = self.random.u64(0..40_000);
                self.note(now, &format!("{name} is stopped for {pause}"));
                let replica = &mut self.replicas[index];
                replica.stopped_until = replica.stopped_until.max(now + pause);
            }
            _ => self.edit(now),
        }
    }

    /// A user edits the lease. A replica that finds a deleted or shortened lease cannot know the earlier one.
    fn edit(&mut self, now: u64) {
        let lease = self.random.usize(0..self.servers.len());
        let Some(Version { mut record, .. }) = self.servers[lease].stored.clone() else {
            return;
        };
        let known = |replica: &Replica| {
            if replica.lease != lease {
                let rivals = replica.candidate.rivals();
                return rivals.is_some_and(|all| all.has_seen(&lease.to_string(), &record.mark));
            }
            replica.leads(now) || replica.candidate.election().has_seen(&record.mark)
        };
        let everybody_knows = self.replicas.iter().all(known);
        let kind = self.random.u32(0..6);
        if kind > 2 && everybody_knows {
            self.no_birth_until = now + milliseconds(self.periods.lease_duration);
        }
        match kind {
            0 => record.holder = "garbage".to_owned(),
            1 if record.seconds != Some(1) => record.holder = String::new(),
            2 => {
                let garbage = [None, Some(0), Some(-7), Some(1_000_000_000)];
                record.seconds = garbage[self.random.usize(0..4)];
            }
            3 if everybody_knows && !record.holder.is_empty() => record.seconds = Some(1),
            4 if everybody_knows => {
                self.note(now, "deleted by hand");
                self.servers[lease].stored = None;
                return;
            }
            // A leader that lives goes on until its next renewal, or until its time is over.
            5 if self.servers.len() > 1 => {
                record.holder = String::new();
                record.seconds = Some(1);
                self.excused_until = now + milliseconds(self.periods.lease_duration);
            }
            _ => return,
        }
        self.note(now, &format!("edited by hand: {record:?}"));
        self.servers[lease].store(record);
    }

    /// Panics with the end of the log if something went wrong.
    fn assert_ok(&self, seed: u64) {
        if let Some(wrong) = &self.wrong {
            let from = self.log.len().saturating_sub(60);
            panic!("SEED={seed}: {wrong}\n{}", self.log[from..].join("\n"));
        }
    }

    fn check(&mut self, now: u64) {
        let leaders = self.replicas.iter().filter(|r| r.leads(now));
        let leaders: Vec<&str> = leaders.map(|r| r.name.as_str()).collect();
        if leaders.len() > 1 && now >= self.excused_until {
            self.wrong = Some(format!("{leaders:?} lead at {now}"));
        }
    }
}

fn record(holder: &str, seconds: i64, transitions: i64) -> Record {
    Record {
        holder: holder.to_owned(),
        seconds: Some(seconds),
        transitions,
        mark: String::new(),
    }
}

#[test]
fn two_replicas_never_lead_at_the_same_instant() {
    let schedules = length(1_000, 5_000);
    let mut terms = 0;
    cases(schedules, |seed| {
        let mut world = World::in_trouble(seed);
        world.run();
        let now = TROUBLE + PEACE;
        let leaders = world.replicas.iter().filter(|r| r.leads(now)).count();
        if world.wrong.is_none() && leaders != 1 {
            world.wrong = Some(format!("{leaders} lead in the end"));
        }
        world.assert_ok(seed);
        terms += world.terms;
    });
    println!("{schedules} schedules, {terms} terms");
    // Otherwise too little happened.
    assert!(given_seed().is_some() || terms > 5 * schedules, "{terms}");
}

#[test]
fn another_replica_leads_in_the_promised_time_after_a_leader_died_or_was_terminated() {
    let mut longest = [0, 0];
    cases(length(400, 5_000), |seed| {
        let mut world = World::healthy(seed);
        world.run();
        world.assert_ok(seed);
        assert_eq!(world.changes, CHANGES, "SEED={seed}");
        for (all, one) in longest.iter_mut().zip(world.longest) {
            *all = one.max(*all);
        }
    });
    let [killed, terminated] = longest;
    println!(
        "at the longest: {killed} ms beyond the lease duration, {terminated} ms after the signal"
    );
}
