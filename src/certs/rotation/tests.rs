//! Every decision, one by one.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use super::*;

const PERIODS: Periods = Periods {
    leaf_validity: TimeDelta::days(7),
    ca_validity: TimeDelta::days(365),
    propagation: TimeDelta::seconds(60),
};

static START: LazyLock<DateTime<Utc>> = LazyLock::new(|| "2026-01-01T00:00:00Z".parse().unwrap());

/// A CA made on this day after the start.
fn made_on(day: i64) -> Arc<Authority> {
    Arc::new(Authority::generate(on(day), PERIODS.ca_validity).unwrap())
}

fn on(day: i64) -> DateTime<Utc> {
    *START + TimeDelta::days(day)
}

fn published(anchors: &[&Arc<Authority>]) -> Published {
    let anywhere: Vec<_> = anchors.iter().map(|a| a.anchor().clone()).collect();
    let everywhere = anywhere.iter().map(Anchor::fingerprint).collect();
    Published {
        everywhere,
        anywhere,
        stray: false,
    }
}

fn leaf(authority: &Authority, issued_at: DateTime<Utc>) -> LeafFacts {
    let issuer = authority.anchor().fingerprint();
    LeafFacts {
        issuer,
        issued_at,
        not_after: issued_at + PERIODS.leaf_validity,
    }
}

/// What is observed, with everything in order; each test changes what it is about.
struct World {
    held: Held,
    published: Option<Published>,
    trusted_since: Option<DateTime<Utc>>,
    next_trusted_since: Option<DateTime<Utc>>,
    leaf: Option<LeafFacts>,
}

impl World {
    fn of(authorities: Authorities) -> Self {
        let bundle = authorities.bundle();
        Self {
            published: Some(Published {
                everywhere: bundle.iter().map(Anchor::fingerprint).collect(),
                anywhere: bundle,
                stray: false,
            }),
            trusted_since: None,
            next_trusted_since: Some(on(-999)),
            leaf: None,
            held: Held::Authorities(authorities),
        }
    }

    fn decide(&self, now: DateTime<Utc>) -> Step {
        let mut trusted = BTreeMap::new();
        if let Held::Authorities(authorities) = &self.held {
            let current = authorities.current.anchor().fingerprint();
            trusted.extend(self.trusted_since.map(|since| (current, since)));
            let next = authorities.next.as_ref();
            let next = next.map(|next| next.authority.anchor().fingerprint());
            trusted.extend(next.zip(self.next_trusted_since));
        }
        let observed = Observed {
            held: &self.held,
            published: self.published.as_ref(),
            trusted: &trusted,
            leaf: self.leaf,
        };
        decide(observed, now, &PERIODS)
    }

    fn change(&self, now: DateTime<Utc>) -> Option<Change> {
        self.decide(now).change
    }

    fn after(&self, change: Change, now: DateTime<Utc>) -> Authorities {
        change.apply(&self.held, now, &PERIODS).unwrap().unwrap()
    }
}

fn alone(current: &Arc<Authority>) -> Authorities {
    Authorities {
        current: current.clone(),
        next: None,
        previous: None,
    }
}

fn with_next(
    current: &Arc<Authority>,
    next: &Arc<Authority>,
    published_at: Option<DateTime<Utc>>,
) -> Authorities {
    let next = Some(Next {
        authority: next.clone(),
        published_at,
    });
    Authorities {
        next,
        ..alone(current)
    }
}

fn with_previous(
    current: &Arc<Authority>,
    previous: &Arc<Authority>,
    drop_at: DateTime<Utc>,
) -> Authorities {
    let previous = Some(Previous {
        anchors: vec![previous.anchor().clone()],
        drop_at,
    });
    Authorities {
        previous,
        ..alone(current)
    }
}

#[test]
fn without_a_secret_a_ca_is_begun_and_nothing_else_is_done() {
    for published in [None, Some(Published::default())] {
        let world = World {
            held: Held::Missing,
            published,
            trusted_since: None,
            next_trusted_since: Some(on(-999)),
            leaf: None,
        };
        let step = world.decide(on(0));
        let change = Some(Change::Begin { keep: Vec::new() });
        assert_eq!(
            step,
            Step {
                change,
                sign: false,
                publish: None,
                look_again: on(0)
            }
        );
    }
}

#[test]
fn a_lost_secret_is_begun_anew_beside_what_is_trusted_and_has_not_expired() {
    let (old, dead) = (made_on(0), made_on(-400));
    let published = Some(published(&[&old, &dead]));
    let world = World {
        held: Held::Missing,
        published,
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let change = world.change(on(1)).unwrap();
    assert_eq!(
        change,
        Change::Begin {
            keep: vec![old.anchor().clone()]
        }
    );
    let authorities = world.after(change, on(1));
    let previous = authorities.previous.as_ref().unwrap();
    assert_eq!(previous.drop_at, on(8) + PERIODS.propagation);
    assert_eq!(authorities.bundle().len(), 2);
    assert_eq!(authorities.current.anchor().not_after(), on(366));
}

#[test]
fn garbage_is_replaced_beside_the_certificate_that_can_be_read() {
    let (read, trusted) = (made_on(0), made_on(1));
    let world = World {
        held: Held::Garbage {
            fault: "no key".into(),
            readable: vec![read.anchor().clone()],
        },
        published: Some(published(&[&trusted, &read])),
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let keep = vec![trusted.anchor().clone(), read.anchor().clone()];
    assert_eq!(world.change(on(2)), Some(Change::Begin { keep }));
}

#[test]
fn a_secret_that_keeps_breaking_does_not_grow_the_bundle_without_bound() {
    let all: Vec<_> = (0..12).map(made_on).collect();
    let published = Some(published(&all.iter().collect::<Vec<_>>()));
    let world = World {
        held: Held::Missing,
        published,
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let Some(Change::Begin { keep }) = world.change(on(20)) else {
        unreachable!()
    };
    assert_eq!(keep.len(), KEPT_AT_MOST);
    assert_eq!(keep.first(), Some(all[11].anchor()));
}

#[test]
fn the_first_leaf_is_signed_at_once_and_the_bundle_published() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    world.published = Some(Published::default());
    let step = world.decide(on(0));
    let publish = Some(vec![current.anchor().clone()]);
    assert_eq!(
        step,
        Step {
            change: None,
            sign: true,
            publish,
            look_again: on(0)
        }
    );
}

#[test]
fn in_order_nothing_is_done_and_a_look_is_due_after_the_propagation_time() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&current, on(0)));
    let look_again = on(1) + PERIODS.propagation;
    let expected = Step {
        change: None,
        sign: false,
        publish: None,
        look_again,
    };
    assert_eq!(world.decide(on(1)), expected);
    world.published = None;
    assert_eq!(world.decide(on(1)), expected);
}

#[test]
fn a_look_is_due_when_something_comes_true_sooner() {
    let (current, next) = (made_on(0), made_on(1));
    let soon = on(2) + TimeDelta::seconds(7);
    let at = |world: &World| world.decide(on(2)).look_again;

    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&current, soon - PERIODS.leaf_validity / 2));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_next(&current, &next, Some(soon - PERIODS.propagation)));
    world.leaf = Some(leaf(&current, on(2)));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_previous(&next, &current, soon));
    world.leaf = Some(leaf(&next, on(2)));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_previous(&next, &current, on(5)));
    world.leaf = Some(leaf(&current, on(2)));
    world.trusted_since = Some(soon - PERIODS.propagation);
    assert_eq!(at(&world), soon);
}

#[test]
fn a_leaf_is_renewed_at_half_its_life() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    let half = on(10) + PERIODS.leaf_validity / 2;
    world.leaf = Some(leaf(&current, on(10)));
    assert!(!world.decide(half - TimeDelta::seconds(1)).sign);
    assert!(world.decide(half).sign);
}

#[test]
fn a_leaf_of_another_ca_is_kept_until_the_current_one_is_known_everywhere() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.leaf = Some(leaf(&old, on(1)));
    let now = on(2);
    for (since, sign) in [
        (None, false),
        (Some(now), false),
        (
            Some(now - PERIODS.propagation + TimeDelta::seconds(1)),
            false,
        ),
        (Some(now - PERIODS.propagation), true),
    ] {
        world.trusted_since = since;
        assert_eq!(world.decide(now).sign, sign, "{since:?}");
    }
}

#[test]
fn a_leaf_that_nobody_trusts_or_that_has_expired_is_replaced_at_once() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&old, on(1)));
    assert!(world.decide(on(2)).sign, "its CA is in no bundle");
    world.published = None;
    assert!(
        world.decide(on(2)).sign,
        "whom others trust is not ours to know"
    );
    let mut world = World::of(with_previous(&current, &old, on(90)));
    world.leaf = Some(leaf(&old, on(1)));
    assert!(world.decide(on(8)).sign, "expired");
}

#[test]
fn a_bundle_that_differs_in_any_way_is_published_again() {
    let (old, current, stranger) = (made_on(0), made_on(1), made_on(2));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.leaf = Some(leaf(&current, on(2)));
    assert_eq!(world.decide(on(2)).publish, None);
    let good = world.published.clone().unwrap();
    let one = published(&[&current]);
    for (what, published) in [
        ("emptied", Published::default()),
        ("one is missing", one.clone()),
        ("one is too many", published(&[&old, &current, &stranger])),
        (
            "one is missing in one entry",
            Published {
                everywhere: one.everywhere,
                ..good.clone()
            },
        ),
        (
            "text that is no certificate",
            Published {
                stray: true,
                ..good
            },
        ),
    ] {
        world.published = Some(published);
        let step = world.decide(on(2));
        let bundle = vec![old.anchor().clone(), current.anchor().clone()];
        assert_eq!(step.publish, Some(bundle), "{what}");
        assert_eq!(step.look_again, on(2), "{what}");
    }
}

#[test]
fn the_order_of_a_bundle_does_not_matter() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.published = Some(published(&[&current, &old]));
    assert_eq!(world.decide(on(2)).publish, None);
}

#[test]
fn the_ca_changes_in_three_steps() {
    let current = made_on(0);
    let world = World::of(alone(&current));
    let due = change_due(&current);
    assert_eq!(due, on(0) + PERIODS.ca_validity * 2 / 3);
    assert_eq!(world.change(due - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(due), Some(Change::AddNext));

    // Step 1: both are to be published; the wait begins once they are.
    let step_1 = world.after(Change::AddNext, due);
    let next = step_1.next.clone().unwrap();
    assert_eq!(next.published_at, None);
    assert_eq!(step_1.current.anchor(), current.anchor());
    let mut world = World::of(step_1);
    world.published = Some(published(&[&current]));
    assert_eq!(world.change(due), None);
    assert_eq!(world.decide(due).publish.unwrap().len(), 2);
    world.published = Some(published(&[&current, &next.authority]));
    assert_eq!(world.change(due), Some(Change::MarkPublished));
    let marked = world.after(Change::MarkPublished, due);
    assert_eq!(marked.next.as_ref().unwrap().published_at, Some(due));

    // Step 2: after the propagation time, the next one signs.
    let world = World::of(marked);
    let known = due + PERIODS.propagation;
    assert_eq!(world.change(known - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(known), Some(Change::Promote));
    let step_2 = world.after(Change::Promote, known);
    assert_eq!(step_2.current.anchor(), next.authority.anchor());
    assert!(step_2.next.is_none());
    assert_eq!(step_2.bundle().len(), 2);
    let drop_at = step_2.previous.as_ref().unwrap().drop_at;
    assert_eq!(drop_at, known + PERIODS.leaf_validity + PERIODS.propagation);

    // Step 3: once no old leaf can be valid, the old one goes.
    let world = World::of(step_2);
    assert_eq!(world.change(drop_at - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(drop_at), Some(Change::DropPrevious));
    let step_3 = world.after(Change::DropPrevious, drop_at);
    assert_eq!(step_3.bundle(), vec![next.authority.anchor().clone()]);
    assert_eq!(World::of(step_3).change(drop_at), None);
}

#[test]
fn the_wait_begins_anew_when_the_next_ca_vanishes_from_a_bundle() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    world.published = Some(published(&[&current]));
    assert_eq!(world.change(on(241)), Some(Change::MarkUnpublished));
    let authorities = world.after(Change::MarkUnpublished, on(241));
    assert_eq!(authorities.next.unwrap().published_at, None);
}

#[test]
fn a_mark_from_a_wrong_clock_is_not_waited_for() {
    let (current, next) = (made_on(0), made_on(240));
    let world = World::of(with_next(&current, &next, Some(on(9999))));
    assert_eq!(world.change(on(241)), Some(Change::MarkPublished));
}

#[test]
fn a_mark_from_a_clock_that_is_behind_does_not_shorten_the_wait() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    for (since, change) in [
        (None, None),
        (Some(on(241)), None),
        (Some(on(241) - PERIODS.propagation), Some(Change::Promote)),
    ] {
        world.next_trusted_since = since;
        assert_eq!(world.change(on(241)), change, "{since:?}");
    }
    // Where the time runs out, the mark must do.
    world.next_trusted_since = None;
    let urgent = change_urgent(&current);
    assert_eq!(world.change(urgent - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(urgent), Some(Change::Promote));
    // Where the bundle is not ours to know, the mark is all there is.
    (world.published, world.next_trusted_since) = (None, None);
    assert_eq!(world.change(on(241)), Some(Change::Promote));
}

#[test]
fn the_ca_of_a_served_leaf_stays_trusted_when_another_pair_is_put_into_the_secret() {
    let (served, put) = (made_on(1), made_on(0));
    let mut world = World::of(alone(&put));
    world.published = Some(published(&[&served]));
    world.leaf = Some(leaf(&served, on(2)));
    let step = world.decide(on(3));
    assert_eq!(step.change, Some(Change::Keep(served.anchor().clone())));
    assert_eq!((step.sign, step.publish), (false, None));
    let kept = world.after(Change::Keep(served.anchor().clone()), on(3));
    let drop_at = on(3) + PERIODS.leaf_validity + PERIODS.propagation;
    assert_eq!(kept.previous.as_ref().unwrap().drop_at, drop_at);
    assert_eq!(kept.bundle().len(), 2);

    // One that has expired signs nothing, but takes no trust away either.
    let mut expired = World::of(alone(&made_on(-400)));
    expired.published = Some(published(&[&served]));
    expired.leaf = Some(leaf(&served, on(2)));
    let step = expired.decide(on(3));
    let keep = vec![served.anchor().clone()];
    assert_eq!(step.change, Some(Change::Begin { keep }));
    assert_eq!((step.sign, step.publish), (false, None));

    // One that nobody trusts, or whose leaf is over, is nothing to keep.
    world.published = Some(published(&[]));
    assert_eq!(world.change(on(3)), None);
    world.published = Some(published(&[&served]));
    assert_eq!(world.change(on(10)), None);
}

#[test]
fn a_new_change_waits_until_the_last_one_is_over() {
    let (old, current) = (made_on(0), made_on(1));
    let world = World::of(with_previous(&current, &old, on(300)));
    assert_eq!(world.change(on(299)), None);
    assert_eq!(world.change(on(300)), Some(Change::DropPrevious));
}

#[test]
fn after_months_of_standstill_an_expired_ca_gives_way_at_once() {
    let (current, next) = (made_on(0), made_on(300));
    let later = on(366);
    assert_eq!(
        World::of(alone(&current)).change(later),
        Some(Change::Begin { keep: vec![] })
    );
    let world = World::of(with_next(&current, &next, None));
    assert_eq!(world.change(later), Some(Change::Promote));
    assert!(!world.decide(later).sign, "an expired CA signs nothing");
    let much_later = on(700);
    assert_eq!(
        world.change(much_later),
        Some(Change::Begin { keep: vec![] })
    );
}

#[test]
fn where_the_bundle_is_not_ours_to_know_the_change_goes_by_time_alone() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, None));
    world.published = None;
    assert_eq!(world.change(on(240)), Some(Change::MarkPublished));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    world.published = None;
    assert_eq!(world.change(on(240)), None);
    assert_eq!(
        world.change(on(240) + PERIODS.propagation),
        Some(Change::Promote)
    );
    assert_eq!(world.decide(on(240)).publish, None);
}

#[test]
fn a_change_that_does_not_fit_what_is_held_leaves_it_alone() {
    let (current, next) = (made_on(0), made_on(1));
    let alone = Held::Authorities(alone(&current));
    let with_next = Held::Authorities(with_next(&current, &next, None));
    for (change, held) in [
        (Change::AddNext, &with_next),
        (Change::AddNext, &Held::Missing),
        (Change::Promote, &alone),
        (Change::MarkPublished, &alone),
        (Change::MarkUnpublished, &Held::Missing),
        (Change::DropPrevious, &Held::Missing),
    ] {
        assert!(change.apply(held, on(1), &PERIODS).unwrap().is_none());
    }
}

#[test]
fn periods_that_cannot_work_together_are_named() {
    let seconds = TimeDelta::seconds;
    let check = |leaf, ca, propagation| {
        let periods = Periods {
            leaf_validity: seconds(leaf),
            ca_validity: seconds(ca),
            propagation: seconds(propagation),
        };
        periods.check()
    };
    assert_eq!(Periods::default().check(), Ok(()));
    assert_eq!(check(6, 24, 2), Ok(()));
    assert_eq!(check(1, 24, 2), Err(PeriodsError::Leaf));
    assert_eq!(check(6, 24, -1), Err(PeriodsError::Propagation));
    assert_eq!(check(6, 17, 2), Err(PeriodsError::Authority));
    assert_eq!(check(6, 18, 2), Ok(()));
}
