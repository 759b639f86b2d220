//! Runs two replicas of the operator, each behind a proxy of its own, and disturbs the leader: the other replica takes
//! over, and only one of them writes at a time (O9).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    fault::{ApiCall, CallFilter, FaultProxy, FaultRule, FaultTrigger, ProxyFault},
    local_operator::operator::OperatorProcess,
};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{counts::is_change, fault_env::FaultEnv, script::ScriptNamespace};

/// Length of the disturbance, longer than the duration of the lease.
const LENGTH: Duration = Duration::from_secs(30);
/// Time limit for the take-over by the other replica.
const TAKE_OVER: Duration = Duration::from_secs(15);

/// Least number of scripts: the last of so many starts after the take-over, and gives the new leader something to write.
const SCRIPTS: usize = 4;

/// Disturbance of the leader in the middle of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// SIGSTOP, later SIGCONT.
    Stopped,
    /// Requests for the lease get no response.
    Unanswered,
    /// Another client deletes the lease.
    LeaseDeleted,
}

/// Scenarios of this file.
pub(crate) const TAKE_OVERS: &[(&str, Disturbance)] = &[
    ("P23-lease-unanswered", Disturbance::Unanswered),
    ("P31-leader-stopped", Disturbance::Stopped),
    ("P32-lease-deleted", Disturbance::LeaseDeleted),
];

/// One of the two replicas.
struct OperatorReplica {
    proxy: FaultProxy,
    operator: OperatorProcess,
}

impl OperatorReplica {
    /// Returns its writes with their times, in order.
    fn writes(&self) -> Vec<(Instant, ApiCall)> {
        let log = &self.proxy.faults.log;
        let entries = log.since(Duration::ZERO).into_iter();
        let written = entries.filter(is_change);
        written.map(|entry| (log.started() + entry.at, entry.call)).collect()
    }
}

/// Plays one scenario.
pub(crate) async fn play(env: &FaultEnv, name: &str, disturbance: Disturbance) -> Result<String> {
    env.baseline().await?;
    let namespaces = env.create_namespaces(name, env.args.seeds.clamp(SCRIPTS, 10)).await?;
    let played = play_in(env, name, disturbance, &namespaces).await;
    // The next scenario must not find its objects, even after a failure.
    for place in &namespaces {
        place.remove().await?;
    }
    played
}

async fn play_in(
    env: &FaultEnv,
    name: &str,
    disturbance: Disturbance,
    namespaces: &[ScriptNamespace],
) -> Result<String> {
    let log = env.log(name);
    let mut replicas = Vec::new();
    for uid in ["one", "other"] {
        let proxy = env.proxy().await?;
        let operator = env.operator(&proxy, &log, uid, None).await?;
        replicas.push(OperatorReplica { proxy, operator });
    }
    let count = u32::try_from(namespaces.len()).unwrap_or(u32::MAX);
    // The scripts start one after the other, so that there is much to reconcile before, during and after the disturbance.
    let scripts = (0_u32..).zip(namespaces.iter().cloned()).map(|(nth, place)| {
        tokio::spawn(async move {
            sleep(LENGTH * nth / count).await;
            place.play().await
        })
    });
    let scripts: Vec<_> = scripts.collect();
    let leads = until_one_writes(&replicas).await?;
    let disturbed = Instant::now();
    match disturbance {
        Disturbance::Stopped => {
            replicas[leads].operator.signal(Signal::STOP)?;
            sleep(LENGTH).await;
            replicas[leads].operator.signal(Signal::CONT)?;
        }
        Disturbance::Unanswered => {
            let leases = CallFilter { verbs: &[], resource: "leases", subresource: "", namespace: "" };
            replicas[leads].proxy.faults.schedule.set(&[FaultRule::new(
                leases,
                FaultTrigger::Always,
                ProxyFault::Silence,
            )]);
            sleep(LENGTH).await;
            replicas[leads].proxy.faults.schedule.set(&[]);
        }
        Disturbance::LeaseDeleted => {
            let leases: Api<Lease> = Api::namespaced(env.client.clone(), "recif-system");
            leases.delete("recif-operator", &DeleteParams::default()).await.context("delete the lease")?;
        }
    }
    for script in try_join_all(scripts).await.context("a script panicked")? {
        script?;
    }
    let [one, other] = replicas.as_mut_slice() else { unreachable!("there are two") };
    env.settle(namespaces, &mut [&mut one.operator, &mut other.operator], &log).await?;
    env.await_equal_to_baseline(namespaces).await?;
    let (old, new) = (replicas[leads].writes(), replicas[1 - leads].writes());
    let judged = check_take_over(disturbance, disturbed, &old, &new);
    for replica in replicas {
        replica.operator.stop().await?;
    }
    judged
}

async fn until_one_writes(replicas: &[OperatorReplica]) -> Result<usize> {
    let begun = Instant::now();
    loop {
        // More than 20 writes: the leader is in the middle of its work.
        if let Some(leads) = replicas.iter().position(|replica| replica.writes().len() > 20) {
            return Ok(leads);
        }
        ensure!(begun.elapsed() < Duration::from_secs(30), "neither replica writes");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Checks the writes of `old`, the replica that led, and of `new`, the other one.
fn check_take_over(
    disturbance: Disturbance,
    disturbed: Instant,
    old: &[(Instant, ApiCall)],
    new: &[(Instant, ApiCall)],
) -> Result<String> {
    let Some((first, _)) = new.first() else {
        ensure!(disturbance == Disturbance::LeaseDeleted, "no replica took over");
        return Ok("the same one goes on leading".to_owned());
    };
    let after = first.saturating_duration_since(disturbed);
    let late: Vec<_> =
        old.iter().filter(|(at, _)| at > first).map(|(at, call)| format!("{call} {:?}", *at - *first)).collect();
    ensure!(late.is_empty(), "O9: writes of the old leader after the first of the new one: {late:?}");
    ensure!(after < TAKE_OVER, "the other one wrote {after:?} after the disturbance began");
    Ok(format!("taken over after {:.1} s", after.as_secs_f32()))
}
