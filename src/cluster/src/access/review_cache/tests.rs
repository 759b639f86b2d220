use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{sync::Notify, time::advance};

use super::*;

const POLICY: CachePolicy =
    CachePolicy { renew: Duration::from_secs(50), fresh: Duration::from_secs(60), grace: Duration::from_secs(300) };

fn key(number: usize) -> Digest {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Outcome that a scripted review returns.
type Scheduled = Result<Result<u32, Denial>, Unavailable>;

/// Cache whose reviews return a script of outcomes, of which the last one repeats.
struct Scripted {
    verdicts: ReviewCache<u32>,
    asked: Arc<AtomicUsize>,
    outcomes: Arc<Mutex<Vec<Scheduled>>>,
}

impl Scripted {
    fn new(outcomes: &[Scheduled]) -> Self {
        let outcomes = Arc::new(Mutex::new(outcomes.to_vec()));
        Self { verdicts: ReviewCache::new(POLICY), asked: Arc::default(), outcomes }
    }

    async fn get(&self, number: usize) -> Scheduled {
        let (asked, outcomes) = (self.asked.clone(), self.outcomes.clone());
        let review = || async move {
            asked.fetch_add(1, Ordering::Relaxed);
            let mut outcomes = outcomes.lock().unwrap();
            let outcome = if outcomes.len() > 1 { outcomes.remove(0) } else { outcomes[0] };
            outcome.map(|verdict| ReviewVerdict { verdict, at: Instant::now() })
        };
        self.verdicts.get(key(number), review).await.map(|answer| answer.verdict)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Lets spawned tasks run.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_is_believed_for_a_minute_and_renewed_behind_the_callers_back() {
    let scripted = Scripted::new(&[Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3))]);
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    advance(Duration::from_secs(49)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    assert_eq!(scripted.asked(), 1);
    advance(Duration::from_secs(2)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)), "the known one serves while it is renewed");
    settle().await;
    assert_eq!(scripted.asked(), 2);
    assert_eq!(scripted.get(0).await, Ok(Ok(2)));
    advance(Duration::from_secs(61)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(3)), "an old one is reviewed first");
}

#[tokio::test(start_paused = true)]
async fn a_no_is_believed_for_five_seconds() {
    let scripted = Scripted::new(&[Ok(Err(Denial::Forbidden)), Ok(Ok(1))]);
    assert_eq!(scripted.get(0).await, Ok(Err(Denial::Forbidden)));
    advance(Duration::from_secs(4)).await;
    assert_eq!(scripted.get(0).await, Ok(Err(Denial::Forbidden)));
    assert_eq!(scripted.asked(), 1);
    advance(Duration::from_secs(2)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn a_yes_that_was_taken_back_ends() {
    let scripted = Scripted::new(&[Ok(Ok(1)), Ok(Err(Denial::Unknown)), Err(Unavailable)]);
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    advance(Duration::from_secs(60)).await;
    assert_eq!(scripted.get(0).await, Ok(Err(Denial::Unknown)));
    advance(Duration::from_secs(6)).await;
    assert_eq!(scripted.get(0).await, Ok(Err(Denial::Unknown)), "the old yes does not come back");
    assert_eq!(scripted.asked(), 3);
    advance(Duration::from_secs(3)).await;
    assert_eq!(scripted.get(0).await, Ok(Err(Denial::Unknown)));
    assert_eq!(scripted.asked(), 3, "not asked again at once");
    advance(Duration::from_secs(300)).await;
    assert_eq!(scripted.get(0).await, Err(Unavailable), "nor does the no serve for ever");
}

#[tokio::test(start_paused = true)]
async fn a_known_grant_serves_for_five_minutes_without_the_api_server() {
    let scripted = Scripted::new(&[Ok(Ok(1)), Err(Unavailable)]);
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    advance(Duration::from_secs(61)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    assert_eq!(scripted.asked(), 2);
    advance(Duration::from_secs(3)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    assert_eq!(scripted.asked(), 2, "not asked again at once");
    advance(Duration::from_secs(230)).await;
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    advance(Duration::from_secs(7)).await;
    assert_eq!(scripted.get(0).await, Err(Unavailable));
    assert_eq!(scripted.get(1).await, Err(Unavailable), "who was not known is not let in");
}

#[tokio::test(start_paused = true)]
async fn an_old_yes_waits_a_second_for_one_who_does_not_answer() {
    let scripted = Scripted::new(&[Ok(Ok(1))]);
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    advance(Duration::from_secs(61)).await;
    let started = Instant::now();
    for _ in 0..3 {
        let silent = || std::future::pending::<ReviewResult<u32>>();
        assert_eq!(scripted.verdicts.get(key(0), silent).await.unwrap().verdict, Ok(1));
    }
    assert!(started.elapsed() < Duration::from_secs(2), "only the first one waited");
}

#[tokio::test]
async fn callers_share_one_review_that_goes_on_without_them() {
    let verdicts = Arc::new(ReviewCache::<u32>::new(POLICY));
    let (reviews, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let ask = || {
        let (verdicts, reviews, go) = (verdicts.clone(), reviews.clone(), go.clone());
        tokio::spawn(async move {
            let review = || async move {
                reviews.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                Ok(ReviewVerdict { verdict: Ok(7), at: Instant::now() })
            };
            verdicts.get(key(0), review).await.unwrap().verdict
        })
    };
    let first = ask();
    settle().await;
    let others: Vec<_> = (0..20).map(|_| ask()).collect();
    settle().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    go.notify_one();
    for other in others {
        assert_eq!(other.await.unwrap(), Ok(7));
    }
    assert_eq!(reviews.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_review_that_breaks_is_started_again() {
    let verdicts = ReviewCache::<u32>::new(POLICY);
    let broken = || async { panic!("broken") };
    assert_eq!(verdicts.get(key(0), broken).await.unwrap_err(), Unavailable);
    let sound = || async { Ok(ReviewVerdict { verdict: Ok(7), at: Instant::now() }) };
    assert_eq!(verdicts.get(key(0), sound).await.unwrap().verdict, Ok(7));
}

#[tokio::test]
async fn wrong_tokens_drive_out_no_right_one_and_are_bounded() {
    let scripted = Scripted::new(&[Ok(Ok(1)), Ok(Err(Denial::Unknown))]);
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    for number in 1..=CAPACITY + 10 {
        assert_eq!(scripted.get(number).await, Ok(Err(Denial::Unknown)));
    }
    let asked = scripted.asked();
    assert_eq!(scripted.get(0).await, Ok(Ok(1)));
    assert_eq!(scripted.asked(), asked);
    let kept = lock(&scripted.verdicts.state);
    assert_eq!((kept.denied.entries.len(), kept.denied.order.len(), kept.in_flight.len()), (CAPACITY, CAPACITY, 0));
}
