//! Tests that the declared state is reached although components of the cluster, or the operator itself, are killed,
//! restarted or lose a permission. These scenarios run alone.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::OPERATOR;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cleanup::await_ended_namespaces,
    kinds::{AGENT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE},
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator, report,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    an_operator_killed_in_the_middle_of_churn_loses_nothing,
    a_standby_takes_over_from_a_killed_leader,
    an_api_server_that_restarts_loses_no_agent,
    a_missing_right_is_named_and_its_return_is_noticed,
);

const AGENTS: usize = 50;
const KILLS: usize = 5;

/// Returns an agent of the churn. Every third agent runs a Pod, the others are stopped: the load is for the operator, not
/// for the node.
fn churned(index: usize, round: u32) -> Value {
    let replicas = usize::from(index.is_multiple_of(3));
    let mut fields = json!({"replicas": replicas, "systemPrompt": format!("round {round}")});
    // These agents have a Secret in one round and none in the next one.
    if has_secret(index, round) {
        fields["storage"] = json!("postgresql");
        fields["databaseUrl"] = json!("postgresql://u:p@db.example/x");
    }
    agent(&format!("a{index}"), fields)
}

fn has_secret(index: usize, round: u32) -> bool {
    index % 3 == 1 && round.is_multiple_of(2)
}

async fn an_operator_killed_in_the_middle_of_churn_loses_nothing(ns: Namespace) -> Result<()> {
    await_ended_namespaces(&ns.env, &ns.name).await?;
    let replicas = operator::replicas(&ns.env).await?;
    let over = AtomicBool::new(false);
    let churn = async {
        for round in 0.. {
            let last = over.load(Ordering::Relaxed);
            if last {
                // An apply to an object that is being deleted is lost with the object.
                let none = |agents: &ObjectsByName| agents.values().all(|it| it.metadata.deletion_timestamp.is_none());
                ns.until_all(AGENT, START_TIMEOUT, "the deleted agents gone", none).await?;
            }
            for index in 0..AGENTS {
                ns.apply(&churned(index, round)).await?;
                if !last && index % 10 == 9 {
                    ns.delete(AGENT, &format!("a{index}")).await?;
                }
            }
            if last {
                break;
            }
            let half = |agents: &ObjectsByName| agents.values().filter(|it| it.is_current()).count() * 2 > AGENTS;
            ns.until_all(AGENT, START_TIMEOUT, "half of the agents looked at", half).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let kills = async {
        let mut dice = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.subsec_nanos());
        report::line(&format!("      the moments of the kills are drawn from {dice}"));
        for _ in 0..KILLS {
            let leader = operator::leader(&ns.env).await?;
            for pod in operator::pods(&ns.env).await? {
                operator::kill(&ns.env, &pod.name_any()).await?;
            }
            let other = |holder: &str| !holder.is_empty() && holder != leader;
            operator::await_leader(&ns.env, START_TIMEOUT, "a new holder of the lease", other).await?;
            // A random moment of its work, independent of the steps of the test.
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let moment = Duration::from_millis(u64::from(dice >> 22));
            let _ = poll::<(), _>(moment, "the moment", || async { Ok(None) }).await;
        }
        over.store(true, Ordering::Relaxed);
        operator::ready(&ns.env, replicas).await
    };
    tokio::try_join!(churn, kills)?;

    let done = |it: &Object| {
        let phase = if it.number("/spec/replicas") == 0 { "Terminated" } else { "Running" };
        it.phase() == phase && it.is_current() && it.condition("Ready").is_true()
    };
    let all = |agents: &ObjectsByName| agents.len() == AGENTS && agents.values().all(done);
    let what = "every agent where its spec wants it";
    let agents = ns.until_all(AGENT, Duration::from_secs(300), what, all).await?;
    let deployments = ns.list(DEPLOYMENT).await?;
    ensure!(deployments.len() == AGENTS, "{} Deployments for {AGENTS} agents", deployments.len());
    for (kind, name) in [(CONFIG_MAP, "-config"), (SERVICE, ""), (SECRET, "-config")] {
        let ours = |it: &&Object| it.labels().contains_key("recif.dev/agent");
        let found: Vec<_> = ns.list(kind).await?.iter().filter(ours).map(|it| it.name_any()).collect();
        let with_one = agents.values().filter(|it| !it.text("/spec/databaseUrl").is_empty()).count();
        let wanted = if kind == SECRET { with_one } else { AGENTS };
        ensure!(found.len() == wanted, "{} for {AGENTS} agents: {found:?}", kind.kind);
        let is_wanted = |it: &String| it.strip_suffix(name).is_some_and(|agent| agents.contains_key(agent));
        ensure!(found.iter().all(is_wanted), "{} that no agent wants: {found:?}", kind.kind);
    }
    for deployment in deployments {
        let agent = agents.get(&deployment.name_any()).context("a Deployment without its agent")?;
        ensure!(
            deployment.text("/spec/template/metadata/annotations/recif.dev~1config-hash")
                == agent.text("/status/contentHash"),
            "Deployment/{} has an old configuration",
            deployment.name_any()
        );
    }
    Ok(())
}

async fn a_standby_takes_over_from_a_killed_leader(ns: Namespace) -> Result<()> {
    let replicas = operator::replicas(&ns.env).await?;
    operator::scale(&ns.env, 2).await?;
    let result = handover(&ns).await;
    operator::scale(&ns.env, replicas).await?;
    result
}

async fn handover(ns: &Namespace) -> Result<()> {
    let leader = operator::leader(&ns.env).await?;
    let pods = operator::pods(&ns.env).await?;
    let pod = pods.iter().find(|pod| leader.contains(&pod.id())).context("the lease names no Pod of the operator")?;
    operator::kill(&ns.env, &pod.name_any()).await?;
    let holder = operator::leader(&ns.env).await?;
    ensure!(holder == leader, "the lease was handed over to {holder:?}: that was an orderly end");
    let other = |holder: &str| !holder.is_empty() && holder != leader;
    operator::await_leader(&ns.env, Duration::from_secs(12), "another holder of the lease", other).await?;
    ns.start(&agent("later", json!({}))).await?;
    ensure!(ns.chat("later", "hi").await? == "echo: hi", "it does not echo");
    Ok(())
}

async fn an_api_server_that_restarts_loses_no_agent(ns: Namespace) -> Result<()> {
    const COUNT: usize = 10;
    // A restarted API server does not serve our kinds at first, and a namespace that is deleted in that time leaves their
    // objects behind.
    await_ended_namespaces(&ns.env, &ns.name).await?;
    let uids: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    let create = async {
        for index in 0..COUNT {
            let agent = agent(&format!("a{index}"), json!({}));
            poll(START_TIMEOUT, "the agent applied", || async { ns.apply(&agent).await.map(Some) }).await?;
        }
        Ok(())
    };
    tokio::try_join!(create, ns.env.cluster(&["restart-apiserver"]))?;
    let all = |agents: &ObjectsByName| agents.len() == COUNT && agents.values().all(Object::is_running);
    ns.until_all(AGENT, Duration::from_secs(180), "all agents running", all).await?;
    let now: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    ensure!(now == uids, "the operator's Pods were replaced");
    let restarts = |pod: &Object| pod.number("/status/containerStatuses/0/restartCount");
    ensure!(operator::pods(&ns.env).await?.iter().all(|pod| restarts(pod) == 0), "the operator was restarted");
    Ok(())
}

async fn a_missing_right_is_named_and_its_return_is_noticed(ns: Namespace) -> Result<()> {
    ns.start(&agent("early", json!({}))).await?;
    let before: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    let roles = roles(&ns).await?;
    for role in &roles {
        set_rules(&ns, role, without(role.at("/rules"), "services", "create")).await?;
    }
    let result = without_the_right(&ns).await;
    for role in &roles {
        set_rules(&ns, role, role.at("/rules").clone()).await?;
    }
    result?;
    ns.until(AGENT, "late", Duration::from_secs(120), "comes up by itself", Object::is_running).await?;
    let after: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    ensure!(before == after, "the operator's Pods were replaced");
    Ok(())
}

async fn without_the_right(ns: &Namespace) -> Result<()> {
    await_denied(ns, "services", "create").await?;
    ns.apply(&agent("late", json!({}))).await?;
    let sentence = |it: &Object| {
        let ready = it.condition("Ready");
        ready.is_false() && ready.message.contains("create") && ready.message.contains("services")
    };
    ns.until(AGENT, "late", REPORT_TIMEOUT, "names the verb and the resource", sentence).await?;
    let edited = ns.edit(AGENT, "early", json!({"spec": {"systemPrompt": "go on"}})).await?;
    let goes_on = |it: &Object| it.is_running() && it.generation() == edited.generation();
    ns.until(AGENT, "early", START_TIMEOUT, "goes on", goes_on).await?;
    Ok(())
}

/// Waits until the API server denies the operator a verb on a resource: it hears of a changed role a moment later.
async fn await_denied(ns: &Namespace, resource: &str, verb: &str) -> Result<()> {
    let attributes = json!({"namespace": ns.name, "resource": resource, "verb": verb});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": OPERATOR, "resourceAttributes": attributes},
    });
    poll(REPORT_TIMEOUT, "the operator without the right", || async {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())?;
        let verdict: Value = ns.env.client.request(request).await.context("ask for a right")?;
        ensure!(verdict["status"]["allowed"] == false, "{verdict}");
        Ok(Some(()))
    })
    .await
}

/// Returns the ClusterRoles that are bound to the operator.
async fn roles(ns: &Namespace) -> Result<Vec<Object>> {
    let bindings = ns.env.all(CLUSTER_ROLE_BINDING).list(&Default::default()).await?;
    let ours = |binding: &&Object| {
        let mut subjects = binding.at("/subjects").as_array().into_iter().flatten();
        subjects.any(|it| it["namespace"] == operator::NAMESPACE && it["name"] == operator::NAME)
    };
    let mut roles = Vec::new();
    for binding in bindings.items.iter().filter(ours) {
        roles.push(ns.env.all(CLUSTER_ROLE).get(binding.text("/roleRef/name")).await?);
    }
    ensure!(!roles.is_empty(), "no ClusterRole is bound to the operator");
    Ok(roles)
}

/// Returns the rules without one verb on one resource.
fn without(rules: &Value, resource: &str, verb: &str) -> Value {
    let mut left = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        let named = |key: &str| rule[key].as_array().cloned().unwrap_or_default();
        let (resources, verbs) = (named("resources"), named("verbs"));
        if !resources.contains(&json!(resource)) || !verbs.contains(&json!(verb)) {
            left.push(rule.clone());
            continue;
        }
        let but = |values: &[Value], one: &str| values.iter().filter(|it| *it != one).cloned().collect::<Vec<_>>();
        let (mut others, mut reduced) = (rule.clone(), rule.clone());
        others["resources"] = json!(but(&resources, resource));
        reduced["resources"] = json!([resource]);
        reduced["verbs"] = json!(but(&verbs, verb));
        left.extend(
            [others, reduced].into_iter().filter(|it| it["resources"] != json!([]) && it["verbs"] != json!([])),
        );
    }
    Value::Array(left)
}

async fn set_rules(ns: &Namespace, role: &Object, rules: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"rules": rules}));
    let roles = ns.env.all(CLUSTER_ROLE);
    let changed = roles.patch(&role.name_any(), &PatchParams::default(), &patch).await;
    changed.map(drop).context("change the operator's rights")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_verb_on_one_resource_is_taken_away_and_nothing_else() {
        let rules = json!([
            {"apiGroups": [""], "resources": ["services", "secrets"], "verbs": ["get", "create"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        ]);
        let expected = json!([
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]},
            {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        ]);
        assert_eq!(without(&rules, "services", "create"), expected);
    }
}
