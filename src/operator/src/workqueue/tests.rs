//! Tests of deduplication, delays and terms of leadership.

use tokio::{sync::mpsc, time::sleep};

use super::*;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// Runs a queue in which each step takes `took` and then returns `next`, and reports the beginnings of the steps.
fn start(
    keys: &[&str],
    workers: usize,
    took: Duration,
    next: impl Fn(&Key) -> Requeue + Send + Sync + 'static,
) -> (Arc<Workqueue>, mpsc::UnboundedReceiver<(String, Duration)>, tokio::task::JoinHandle<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queue = Arc::new(Workqueue::default());
    let (running, begun, next) = (queue.clone(), Instant::now(), Arc::new(next));
    let keys = keys.iter().map(|name| key(name)).collect();
    let task = tokio::spawn(async move {
        let work = move |key: Key| {
            let (sender, next) = (sender.clone(), next.clone());
            async move {
                sender.send((key.name.clone(), begun.elapsed())).unwrap();
                sleep(took).await;
                next(&key)
            }
        };
        running.run(|| keys, workers, work).await;
    });
    (queue, receiver, task)
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_key_is_queued_once() {
    let (queue, mut steps, _task) = start(&["a", "a", "b"], 1, SECOND, |_| Requeue::OnChange);
    sleep(SECOND / 2).await;
    queue.add(&key("b"));
    assert_eq!(queue.depth(), 1);
    sleep(SECOND * 10).await;
    assert_eq!(steps.recv().await.unwrap().0, "a");
    assert_eq!(steps.recv().await.unwrap().0, "b");
    assert!(steps.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_is_worked_on_is_worked_on_again_and_never_twice_at_once() {
    let (queue, mut steps, _task) = start(&["a"], 4, SECOND, |_| Requeue::OnChange);
    sleep(SECOND / 2).await;
    queue.add(&key("a"));
    queue.add(&key("a"));
    assert_eq!(steps.recv().await.unwrap().1, Duration::ZERO);
    assert_eq!(steps.recv().await.unwrap().1, SECOND);
    sleep(SECOND * 10).await;
    assert!(steps.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn adding_overrides_a_delay() {
    let (queue, mut steps, _task) = start(&["a"], 1, Duration::ZERO, |_| Requeue::After(SECOND * 60));
    steps.recv().await.unwrap();
    sleep(SECOND).await;
    queue.add(&key("a"));
    assert_eq!(steps.recv().await.unwrap().1, SECOND);
    assert_eq!(steps.recv().await.unwrap().1, SECOND * 61, "the delay begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_lossy_queue_loses_one_wake_of_a_hundred_and_looks_again_within_five_seconds() {
    let (sender, mut steps) = mpsc::unbounded_channel();
    let queue = Arc::new(Workqueue::lossy());
    let (running, begun) = (queue.clone(), Instant::now());
    let _task = tokio::spawn(async move {
        let work = move |_| {
            let sent = sender.send(begun.elapsed());
            async move { if sent.is_ok() { Requeue::After(SECOND * 600) } else { Requeue::OnChange } }
        };
        running.run(|| vec![key("a")], 1, work).await;
    });
    assert_eq!(steps.recv().await.unwrap(), Duration::ZERO);
    for _ in 0..100 {
        queue.add(&key("a"));
        sleep(SECOND / 100).await;
    }
    let mut seen = 0;
    while steps.try_recv().is_ok() {
        seen += 1;
    }
    assert_eq!(seen, 99);
    assert!(steps.recv().await.unwrap() < SECOND * 7);
    for _ in 0..99 {
        queue.add(&key("a"));
    }
    queue.add(&key("new"));
    sleep(SECOND / 100).await;
    let new = key("new");
    assert!(queue.lock().states.contains_key(&new), "the first wake of a key is not lost");
}

#[tokio::test(start_paused = true)]
async fn what_moved_goes_on_at_once_behind_the_others() {
    let (_queue, mut steps, task) = start(&["a", "b"], 1, SECOND, |_| Requeue::Now);
    for expected in ["a", "b", "a", "b"] {
        assert_eq!(steps.recv().await.unwrap().0, expected);
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_panic_loses_no_key() {
    let (_queue, mut steps, _task) = start(&["a"], 1, Duration::ZERO, |_| panic!("a defect"));
    assert_eq!(steps.recv().await.unwrap().1, Duration::ZERO);
    assert_eq!(steps.recv().await.unwrap().1, SECOND * 60);
}

#[tokio::test(start_paused = true)]
async fn no_more_workers_than_asked_for() {
    let (_queue, mut steps, _task) = start(&["a", "b", "c"], 2, SECOND, |_| Requeue::OnChange);
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(steps.recv().await.unwrap().1);
    }
    assert_eq!(times, [Duration::ZERO, Duration::ZERO, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_into_being_while_a_term_begins_is_not_lost() {
    let (sender, mut steps) = mpsc::unbounded_channel();
    let queue = Arc::new(Workqueue::default());
    let running = queue.clone();
    let _task = tokio::spawn(async move {
        let listed = || {
            running.add(&key("late"));
            vec![key("a")]
        };
        let work = move |key: Key| {
            let sent = sender.send(key.name);
            async move { if sent.is_ok() { Requeue::OnChange } else { Requeue::Now } }
        };
        running.run(listed, 1, work).await;
    });
    assert_eq!(steps.recv().await.unwrap(), "late");
    assert_eq!(steps.recv().await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_drops_the_work_and_takes_nothing_more() {
    let (queue, mut steps, task) = start(&["a", "b"], 1, SECOND, |_| Requeue::Now);
    steps.recv().await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    queue.add(&key("c"));
    assert_eq!(queue.depth(), 0);
    assert!(steps.recv().await.is_none(), "the step under way is gone, and its sender with it");
}
