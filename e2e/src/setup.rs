//! Deployment of operator and gateway before the scenarios.

use std::time::Duration;

use anyhow::Result;

use crate::{
    env::{Env, output},
    gateway, operator,
};

/// Deploys operator and gateway, if an image was given.
pub(crate) async fn deploy(env: &Env) -> Result<()> {
    let Some(image) = &env.paths.operator_image else { return Ok(()) };
    let minute = Duration::from_secs(60);
    let kubectl = env.file("hack/kubectl");
    let mut build = env.in_cluster(&kubectl);
    build.arg("kustomize").arg(env.file("config/default"));
    let manifests = output(build, None, minute).await?.replace("recif.local/operator:dev", image);
    let mut apply = env.in_cluster(&kubectl);
    apply.args(["apply", "--server-side", "--force-conflicts", "--filename", "-"]);
    output(apply, Some(manifests), minute).await?;
    if env.paths.lose_wakes {
        let deployment = format!("deployment/{}", operator::NAME);
        env.kubectl(&["--namespace", operator::NAMESPACE, "set", "env", &deployment, "RECIF_LOSE_WAKES=true"]).await?;
    }
    operator::ready(env, operator::replicas(env).await?).await?;
    gateway::ready(env, 0).await
}
